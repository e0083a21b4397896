"""Ansible's YAML inventory into a :class:`~fleet.inventory.shape.Shape`.

Wrong shapes become problems that say what was found and what is wanted. Anything with one obvious meaning
(a list of names under ``hosts:``) is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fleet.core.errors import Position, Problem
from fleet.core.yaml import Kind, Node, as_read, quote_advice
from fleet.inventory.merge import Layer
from fleet.inventory.names import BODY_KEYS, address_and_port, is_ipv6, unknown_key, wrong_name
from fleet.inventory.ranges import RangeError, expand
from fleet.inventory.shape import GroupShape, Shape


def read_groups(root: Node, shape: Shape, problems: list[Problem]) -> None:
    """Read a YAML inventory: a mapping of groups at the top."""
    if root.kind is not Kind.MAP:
        what = "a playbook?" if root.kind is Kind.LIST else "an inventory starts with the group all"
        message = f"an inventory is a mapping of groups (all:), not {as_read(root)}; {what}"
        problems.append(Problem(root.position, message))
        return
    reader = _Groups(shape, problems)
    for name, body in root.children.items():
        reader.group(name, body, root.key_position(name), parent=None)


class _Groups:
    def __init__(self, shape: Shape, problems: list[Problem]) -> None:
        self.shape = shape
        self.problems = problems
        self.expanded: dict[str, list[str]] = {}

    def problem(self, position: Position, message: str) -> None:
        self.problems.append(Problem(position, message))

    def group(self, name: str, body: Node, at: Position, parent: str | None) -> None:
        wrong = wrong_name(name, "group")
        if wrong is None and name == "all" and parent is not None:
            wrong = "all contains every group already and cannot be a child"
        if wrong:
            self.problem(at, wrong)
            return
        group = self.shape.group(name, at)
        if parent is not None:
            self.shape.groups[parent].children[name] = None
        if body.kind is Kind.NULL:
            return
        if body.kind is not Kind.MAP:
            self.problem(
                body.position,
                f"group {name} must be a mapping with {', '.join(BODY_KEYS)}, not {as_read(body)}",
            )
            return
        for key, value in body.children.items():
            self._part(group, key, value, body.key_position(key))

    def _part(self, group: GroupShape, key: str, value: Node, at: Position) -> None:
        if key == "hosts":
            self._hosts(group, value)
        elif key == "children":
            self._children(group, value)
        elif key == "vars":
            self._vars(group, value)
        else:
            self.problem(at, unknown_key(group.name, key, value))

    def _vars(self, group: GroupShape, value: Node) -> None:
        if value.kind is Kind.NULL:
            return
        if value.kind is not Kind.MAP:
            self.problem(
                value.position, f"vars of group {group.name} must be a mapping, not {as_read(value)}"
            )
            return
        group.layers.append(Layer(f"group {group.name}", value.children))
        priority = value.children.get("ansible_group_priority")
        if priority is not None and priority.kind is Kind.INT:
            group.priority = int(priority.text)

    def _children(self, group: GroupShape, value: Node) -> None:
        for name, body, at in self._entries(group, "children", value):
            self.group(name, body, at, parent=group.name)

    def _hosts(self, group: GroupShape, value: Node) -> None:
        if value.kind is Kind.MAP:  # the usual shape, in the fastest way: inventories have thousands
            for key, body in value.children.items():
                self._host(group, key, body, value)
            return
        for name, body, at in self._entries(group, "hosts", value):
            self._host(group, name, body, None, at)

    def _entries(self, group: GroupShape, part: str, value: Node) -> Iterable[tuple[str, Node, Position]]:
        """Name, body and place of each entry of ``hosts`` or ``children``, in any shape with one meaning."""
        where = f"{part} of group {group.name}"
        if value.kind is Kind.MAP:
            for key, body in value.children.items():
                yield key, body, value.key_position(key)
        elif value.kind is Kind.LIST:
            for item in value.items:
                yield from self._item(where, item)
        elif value.kind is Kind.TEXT and not re.search(r"[\s,]", value.text) and value.text:
            yield value.text, _nothing(value), value.position
        elif value.kind is not Kind.NULL:
            self.problem(value.position, _bare(where, value))

    def _item(self, where: str, item: Node) -> Iterable[tuple[str, Node, Position]]:
        if item.kind is Kind.TEXT:
            yield item.text, _nothing(item), item.position
        elif item.kind is Kind.MAP and len(item.children) == 1:
            for key, body in item.children.items():
                yield key, body, item.key_position(key)
        elif item.is_scalar:
            self.problem(item.position, f"{where}: {quote_advice(item)}")
        else:
            message = f"{where} must be a mapping (gpu01:) or a list of names (- gpu01), not {as_read(item)}"
            self.problem(item.position, message)

    def _host(
        self, group: GroupShape, key: str, body: Node, mapping: Node | None, at: Position | None = None
    ) -> None:
        def place() -> Position:
            return mapping.key_position(key) if mapping is not None else (at or body.position)

        try:
            names, port = self._names(key)
        except RangeError as error:
            self.problem(place(), str(error))
            return
        if body.kind is not Kind.MAP and body.kind is not Kind.NULL:
            self.problem(body.position, f"host {key} must be a mapping of variables, not {_quoted(body)}")
            return
        layer = Layer(f"host {key}", body.children) if body.children else None
        for name in names:
            host = self.shape.host(name, place, group.name)
            if port is not None:
                host.layers.append(Layer(f"host {key}", {"ansible_port": _port(port, place())}))
            if layer is not None:
                host.layers.append(layer)

    def _names(self, key: str) -> tuple[list[str], str | None]:
        """The names a host key stands for, and the port written behind it (``gpu01:2222``), if any."""
        known = self.expanded.get(key)
        if known is not None:
            return known, None
        address, port = address_and_port(key)
        names = [address] if is_ipv6(address) else expand(address)
        for name in names[:1]:
            wrong = wrong_name(name, "host")
            if wrong:
                raise RangeError(wrong)
        if port is None:
            self.expanded[key] = names
        return names, port


def _nothing(near: Node) -> Node:
    return Node(Kind.NULL, near.file, near.line, near.column)


def _port(port: str, at: Position) -> Node:
    return Node(Kind.INT, at.file, at.line, at.column, port, int(port))


def _quoted(node: Node) -> str:
    return f'"{node.text}"' if node.is_scalar else as_read(node)


def _bare(where: str, value: Node) -> str:
    if value.kind is Kind.TEXT and re.search(r"\s", value.text):
        names = value.text.split()
        return (
            f"{where}: these lines are one text to YAML (no colons): write {names[0]}: {names[1]}: … "
            "each on its own line with a colon behind the name"
        )
    if value.kind is Kind.TEXT and "," in value.text:
        return f"{where}: write each name on its own line with a colon behind it, not with commas"
    return f"{where} must be a mapping (gpu01:) or a list of names, not {_quoted(value)}"
