"""What one format printed, as a tree of names and texts: the same for XML's elements and the text's indentation."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Iterator, List, Optional


class Node:
    """``name``, the ``text`` beside or in it, and what is below it, in order."""

    __slots__ = ("children", "name", "text")

    def __init__(self, name: str, text: str = "") -> None:
        self.name = name
        self.text = text
        self.children: List[Node] = []

    def add(self, name: str, text: str = "") -> Node:
        """A new last child."""
        child = Node(name, text)
        self.children.append(child)
        return child

    def at(self, path: str) -> Optional[Node]:
        """The first node at ``fb_memory_usage/total``; ``power/**/draw`` is at any depth below ``power``."""
        node = self
        anywhere = False
        for name in path.split("/"):
            if name == "**":
                anywhere = True
                continue
            within = node.below() if anywhere else iter(node.children)
            found = next((child for child in within if child.name == name), None)
            if found is None:
                return None
            node, anywhere = found, False
        return node

    def below(self) -> Iterator[Node]:
        """Everything below, breadth first."""
        waiting = list(self.children)
        for node in waiting:
            yield node
            waiting.extend(node.children)
