"""The JSON of ``ansible-inventory --list`` and of inventory scripts into a shape.

Names are literal there: no ranges.
"""

from __future__ import annotations

from fleet.core.errors import Position, Problem
from fleet.core.yaml import Kind, Node, as_read
from fleet.inventory.merge import Layer
from fleet.inventory.names import unknown_key, wrong_name
from fleet.inventory.shape import GroupShape, Shape


def read_json(root: Node, shape: Shape, problems: list[Problem]) -> None:
    """Read what ``ansible-inventory --list`` or an inventory script prints. Names are literal: no ranges."""
    if root.kind is not Kind.MAP:
        problems.append(
            Problem(root.position, f"the JSON of --list is an object of groups, not {as_read(root)}")
        )
        return
    reader = _Json(shape, problems)
    for name, body in root.children.items():
        if name != "_meta":
            reader.group(name, body, root.key_position(name))
    meta = root.children.get("_meta")
    if meta is not None:
        reader.host_variables(meta)


class _Json:
    def __init__(self, shape: Shape, problems: list[Problem]) -> None:
        self.shape = shape
        self.problems = problems

    def group(self, name: str, body: Node, at: Position) -> None:
        group = self.shape.group(name, at)
        if body.kind is Kind.LIST:  # the oldest form: a group is its list of hosts
            self._hosts(group, body)
        elif body.kind is Kind.MAP:
            for key, value in body.children.items():
                self._part(group, key, value, body.key_position(key))
        else:
            self.problems.append(Problem(body.position, f"group {name} must be an object or a list of hosts"))

    def _part(self, group: GroupShape, key: str, value: Node, at: Position) -> None:
        if key == "hosts":
            self._hosts(group, value)
        elif key == "children":
            for item in self._texts(value, f"children of group {group.name}"):
                self.shape.group(item.text, item.position)
                group.children[item.text] = None
        elif key == "vars" and value.kind is Kind.MAP:
            group.layers.append(Layer(f"group {group.name}", value.children))
        else:
            self.problems.append(Problem(at, unknown_key(group.name, key, value)))

    def _hosts(self, group: GroupShape, value: Node) -> None:
        for item in self._texts(value, f"hosts of group {group.name}"):
            wrong = wrong_name(item.text, "host")
            if wrong:
                self.problems.append(Problem(item.position, wrong))
            else:
                self.shape.host(item.text, lambda item=item: item.position, group.name)  # type: ignore[misc]

    def _texts(self, value: Node, where: str) -> list[Node]:
        if value.kind is Kind.LIST and all(item.kind is Kind.TEXT for item in value.items):
            return value.items
        self.problems.append(Problem(value.position, f"{where} must be a list of names"))
        return []

    def host_variables(self, meta: Node) -> None:
        found = meta.children.get("hostvars")
        if found is None or found.kind is not Kind.MAP:
            self.problems.append(Problem(meta.position, "_meta must hold hostvars, an object of hosts"))
            return
        for name, body in found.children.items():
            if name not in self.shape.hosts:
                self.shape.group("all", found.position)
                self.shape.host(name, lambda name=name: found.key_position(name), "all")  # type: ignore[misc]
            if body.kind is Kind.MAP:
                self.shape.hosts[name].layers.append(Layer(f"host {name}", body.children))
            else:
                self.problems.append(Problem(body.position, f"hostvars of {name} must be an object"))
