"""``when`` on the result of a task of the same segment, as a condition the host evaluates.

The set is closed: changed, exit code, reboot_required, and all, any, not of these. An expression that is
exactly such becomes one; any other ends the segment, and the controller evaluates it over the real result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleet.playbook.names import environment

if TYPE_CHECKING:
    from jinja2 import nodes

Condition = dict[str, Any]
Steps = Mapping[str, "list[str]"]  # name of a registered result -> ids of the steps it comes from


def agent_condition(text: str, steps: Steps) -> Condition | None:
    """The condition ``text`` says over results of this segment, or None if it is not of the closed set."""
    from jinja2 import nodes

    tree = environment().parse("{{ " + text + " }}")
    output = tree.body[0] if tree.body else None
    if not isinstance(output, nodes.Output) or len(output.nodes) != 1:
        return None
    return _condition(output.nodes[0], steps)


def _condition(node: nodes.Node, steps: Steps) -> Condition | None:
    from jinja2 import nodes

    if isinstance(node, nodes.Not):
        inner = _condition(node.node, steps)
        return None if inner is None else {"not": inner}
    if isinstance(node, (nodes.And, nodes.Or)):
        left, right = _condition(node.left, steps), _condition(node.right, steps)
        if left is None or right is None:
            return None
        return _joined("all" if isinstance(node, nodes.And) else "any", [left, right])
    if isinstance(node, nodes.Name):
        return {"reboot_required": True} if node.name == "reboot_required" else None
    if isinstance(node, nodes.Test):
        return _changed(node.node, steps) if node.name == "changed" else None
    if isinstance(node, nodes.Getattr):
        return _changed(node.node, steps) if node.attr == "changed" else None
    return _exit_code(node, steps) if isinstance(node, nodes.Compare) else None


def _joined(word: str, parts: list[Condition]) -> Condition:
    """``a and b and c`` is one list of three."""
    flat: list[Condition] = []
    for part in parts:
        flat.extend(part.get(word, [part]))
    return {word: flat}


def _changed(node: nodes.Node, steps: Steps) -> Condition | None:
    from jinja2 import nodes

    ids = steps.get(node.name) if isinstance(node, nodes.Name) else None
    if ids is None:
        return None
    return {"changed": ids[0]} if len(ids) == 1 else {"any": [{"changed": each} for each in ids]}


def _exit_code(node: nodes.Compare, steps: Steps) -> Condition | None:
    """``result.rc == 0``, ``!= 0``, ``in [0, 2]``, ``not in [1]``; only for results of a single step."""
    from jinja2 import nodes

    left = node.expr
    if not isinstance(left, nodes.Getattr) or left.attr != "rc" or len(node.ops) != 1:
        return None
    ids = steps.get(left.node.name) if isinstance(left.node, nodes.Name) else None
    codes = _numbers(node.ops[0].expr)
    operator = node.ops[0].op
    if not ids or len(ids) != 1 or codes is None or operator not in ("eq", "ne", "in", "notin"):
        return None
    condition: Condition = {"exit_code": {"step": ids[0], "in": codes}}
    return {"not": condition} if operator in ("ne", "notin") else condition


def _numbers(node: nodes.Node) -> list[int] | None:
    from jinja2 import nodes

    parts = node.items if isinstance(node, (nodes.List, nodes.Tuple)) else [node]
    values = [part.value for part in parts if isinstance(part, nodes.Const) and type(part.value) is int]
    return values if len(values) == len(parts) else None
