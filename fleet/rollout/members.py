"""The hosts a rollout looks at, as far as its decisions need to know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.rollout.window import Window


@dataclass(frozen=True)
class Member:
    """One host in the rollout's scope.

    ``unit``: hosts with the same one move together (its own name where it moves alone). ``domain``: its failure
    domain, None where none is limited. ``claim``: what no two rollouts may have at once, the address it is reached
    at. ``left_out``: why it is only counted and not upgraded. ``last``: it carries others' SSH path, or is the
    controller. ``window``: its own hours, where the strategy names none.
    """

    name: str
    unit: str
    domain: str | None = None
    claim: str = ""
    left_out: str | None = None
    last: bool = False
    window: Window | None = None

    @property
    def takes_part(self) -> bool:
        """Whether it is to be upgraded."""
        return self.left_out is None


@dataclass(frozen=True)
class Unit:
    """Hosts that move as one."""

    name: str
    hosts: tuple[Member, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.hosts)

    @property
    def windows(self) -> tuple[Window, ...]:
        """The hours of its hosts: it moves when all are open."""
        return tuple({member.window for member in self.hosts if member.window is not None})

    @property
    def domains(self) -> tuple[str | None, ...]:
        """The failure domain of each host, sorted: units with the same ones need the same room."""
        return tuple(sorted((member.domain for member in self.hosts), key=str))


def units_of(members: Sequence[Member]) -> list[Unit]:
    """The units of those that take part, in the order of their first hosts."""
    found: dict[str, list[Member]] = {}
    for member in members:
        if member.takes_part:
            found.setdefault(member.unit, []).append(member)
    return [Unit(name, tuple(hosts)) for name, hosts in found.items()]
