"""The shape of an inventory: which groups there are, what is in them, and who sets variables where.

A :class:`Shape` is filled by :mod:`fleet.inventory.yaml_shape` or :mod:`fleet.inventory.json_shape`, then
linked: ``all`` on top, depths, members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fleet.core.errors import Position, Problem
from fleet.inventory.merge import Layer


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
