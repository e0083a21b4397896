"""The shape of an inventory: which groups there are, what is in them, and who sets variables where.

:func:`read_groups` reads Ansible's YAML, :func:`read_json` the JSON that ``--list`` prints. Both fill a
:class:`Shape`; wrong shapes become problems that say what was found and what is wanted.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from fleet.core.errors import Position, Problem
from fleet.core.yaml import Kind, Node, as_read, quote_advice
from fleet.inventory.merge import Layer
from fleet.inventory.ranges import RangeError, expand

BODY_KEYS = ("hosts", "vars", "children")


@dataclass
class GroupShape:
    """One group as collected from everywhere it is mentioned. Dicts with None serve as ordered sets."""

    name: str
    position: Position
    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    parents: dict[str, None] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    depth: int = 0
    priority: int = 1


@dataclass
class HostShape:
    """One host as collected from everywhere it is mentioned."""

    name: str
    position: Position
    groups: dict[str, None] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)


class Shape:
    """Groups and hosts in the order in which the file first names them."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupShape] = {}
        self.hosts: dict[str, HostShape] = {}
        self._ancestors: dict[tuple[str, ...], tuple[str, ...]] = {}

    def group(self, name: str, position: Position) -> GroupShape:
        found = self.groups.get(name)
        if found is None:
            found = self.groups[name] = GroupShape(name, position)
        return found

    def host(self, name: str, node_position: Callable[[], Position], group: str) -> HostShape:
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = HostShape(name, node_position())
        found.groups[group] = None
        self.groups[group].hosts[name] = None
        return found

    def link(self, problems: list[Problem]) -> None:
        """Complete the tree: ``all`` on top, ``ungrouped``, parents, depths. Circles become problems."""
        start = (
            Position(next(iter(self.groups.values())).position.file, 1, 1)
            if self.groups
            else Position("", 1, 1)
        )
        top = self.group("all", start)
        alone = self.group("ungrouped", start)
        for name, host in self.hosts.items():
            if all(group == "all" for group in host.groups):
                host.groups["ungrouped"] = None
                alone.hosts[name] = None
        for group in self.groups.values():
            for child in group.children:
                self.groups[child].parents[group.name] = None
        for group in self.groups.values():
            if group is not top and not group.parents:
                group.parents["all"] = None
                top.children[group.name] = None
        self._depths(problems)

    def _depths(self, problems: list[Problem]) -> None:
        """Depth is the longest way from ``all``; Kahn's order, so what is left over stands in a circle."""
        waiting = {name: len(group.parents) for name, group in self.groups.items()}
        ready = [name for name, count in waiting.items() if count == 0]
        done = 0
        while ready:
            group = self.groups[ready.pop()]
            done += 1
            for child in group.children:
                self.groups[child].depth = max(self.groups[child].depth, group.depth + 1)
                waiting[child] -= 1
                if waiting[child] == 0:
                    ready.append(child)
        if done < len(self.groups):
            circle = [name for name, count in waiting.items() if count]
            where = self.groups[circle[0]].position
            problems.append(Problem(where, f"groups contain each other in a circle: {', '.join(circle)}"))
            for name in circle:
                self.groups[name].children.clear()
                self.groups[name].parents.clear()

    def groups_of_hosts(self) -> dict[str, tuple[str, ...]]:
        """Each host's groups and all their parents, without ``all``, weakest first."""
        return {name: self._all_groups(tuple(host.groups)) for name, host in self.hosts.items()}

    def _all_groups(self, direct: tuple[str, ...]) -> tuple[str, ...]:
        known = self._ancestors.get(direct)
        if known is None:
            found: set[str] = set()
            todo = list(direct)
            while todo:
                name = todo.pop()
                if name not in found and name != "all":
                    found.add(name)
                    todo.extend(self.groups[name].parents)
            groups = sorted(
                (self.groups[name] for name in found), key=lambda g: (g.depth, g.priority, g.name)
            )
            known = self._ancestors[direct] = tuple(group.name for group in groups)
        return known

    def members(self) -> dict[str, tuple[str, ...]]:
        """Every group's hosts, those of its children included, in file order."""
        inside: dict[str, list[str]] = {name: [] for name in self.groups}
        for name, groups in self.groups_of_hosts().items():
            inside["all"].append(name)
            for group in groups:
                inside[group].append(name)
        return {name: tuple(hosts) for name, hosts in inside.items()}


# --- Ansible's YAML ------------------------------------------------------------------------------------


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
        wrong = _wrong_name(name, "group")
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
                f"group {name} must be a mapping with {_listed(BODY_KEYS)}, not {as_read(body)}",
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
            self.problem(at, _unknown_key(group.name, key, value))

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
        address, port = _address_and_port(key)
        names = [address] if _is_ipv6(address) else expand(address)
        for name in names[:1]:
            wrong = _wrong_name(name, "host")
            if wrong:
                raise RangeError(wrong)
        if port is None:
            self.expanded[key] = names
        return names, port


def _address_and_port(key: str) -> tuple[str, str | None]:
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]*)\](?::(\d+))?", key)
    if bracketed and _is_ipv6(bracketed[1]):
        return bracketed[1], bracketed[2]
    outside = re.sub(r"\[[^\]]*\]", "", key)
    if outside.count(":") == 1:
        tail = re.fullmatch(r"(.+):(\d+)", key)
        if tail:
            return tail[1], tail[2]
    return key, None


def _is_ipv6(text: str) -> bool:
    if text.count(":") < 2:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


_FORBIDDEN = re.compile(r"[\s,;!&{}()\"'\\$`<>|*?#/\x00-\x1f\x7f]")


def _wrong_name(name: str, what: str) -> str | None:
    """Why a name cannot be used: empty, or with a character that patterns, files or shells take apart."""
    if not name:
        return f"a {what} needs a name"
    bad = _FORBIDDEN.search(name)
    if bad:
        shown = "a space" if bad[0].isspace() else f'the character "{bad[0]}"'
        return f'"{name}" is not a name for a {what}: it holds {shown}'
    if name.startswith(("-", "~", "@")):
        return f'"{name}" is not a name for a {what}: it starts with {name[0]}'
    if what == "host" and ":" in name and not _is_ipv6(name):
        return f'"{name}" is not a name for a host: a port is written gpu01:2222, an IPv6 address in full'
    return None


def _nothing(near: Node) -> Node:
    return Node(Kind.NULL, near.file, near.line, near.column)


def _port(port: str, at: Position) -> Node:
    return Node(Kind.INT, at.file, at.line, at.column, port, int(port))


def _quoted(node: Node) -> str:
    return f'"{node.text}"' if node.is_scalar else as_read(node)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


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


def _unknown_key(group: str, key: str, value: Node) -> str:
    near = get_close_matches(key, (*BODY_KEYS,), 1, 0.6)
    if near:
        return f"{key} is not a key of group {group}; did you mean {near[0]}?"
    if value.kind is Kind.MAP or value.kind is Kind.NULL:
        hint = f"is {key} a group (then put it under children:) or a host (under hosts:)?"
    else:
        hint = "variables of a group stand under vars:"
    return f"{key} is not a key of group {group} ({_listed(BODY_KEYS)}); {hint}"


# --- the JSON of ansible-inventory --list -------------------------------------------------------------


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
            self.problems.append(Problem(at, _unknown_key(group.name, key, value)))

    def _hosts(self, group: GroupShape, value: Node) -> None:
        for item in self._texts(value, f"hosts of group {group.name}"):
            wrong = _wrong_name(item.text, "host")
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
