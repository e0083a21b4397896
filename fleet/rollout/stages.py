"""In which order units move: canary, batches, and the rest."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.rollout.members import Member, Unit, units_of
from fleet.rollout.strategy import Strategy


@dataclass(frozen=True)
class Stage:
    """Units that may move at the same time, limits permitting. Nothing moves beyond a gate that did not prove it."""

    name: str
    units: tuple[Unit, ...]
    gate: bool = False

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(name for unit in self.units for name in unit.names)


def stages_of(strategy: Strategy, members: Sequence[Member]) -> list[Stage]:
    """The stages, none empty. Shares are of all that take part; the last stage is whatever is left.

    A batch is whole units, at least one, and no larger than asked where units allow it.
    """
    units = deque(_spread(units_of(members)))
    total = sum(len(unit.hosts) for unit in units)
    sizes = [max(1, amount.of(total)) for amount in strategy.batches]
    canary = strategy.canary
    if canary is None:
        canary = sizes.pop(0) if sizes else 1
    stages: list[Stage] = []
    if canary and total > 1:
        stages.append(Stage("canary", _take(units, canary), gate=True))
    for size in () if strategy.as_drained else sizes:
        stages.append(Stage("batch", _take(units, size)))
    stages.append(Stage("as drained" if strategy.as_drained else "batch", tuple(units)))
    return [stage for stage in stages if stage.units]


def _take(units: deque[Unit], size: int) -> tuple[Unit, ...]:
    taken: list[Unit] = []
    count = 0
    while units and (not taken or count + len(units[0].hosts) <= size):
        taken.append(units.popleft())
        count += len(taken[-1].hosts)
    return tuple(taken)


def _spread(units: Sequence[Unit]) -> list[Unit]:
    """One failure domain after the other, so that no batch is all of one; carriers of others' paths at the end."""
    lanes: dict[tuple[str | None, ...], deque[Unit]] = {}
    for unit in units:
        lanes.setdefault(unit.domains, deque()).append(unit)
    ordered: list[Unit] = []
    waiting = deque(lanes.values())
    while waiting:
        lane = waiting.popleft()
        ordered.append(lane.popleft())
        if lane:
            waiting.append(lane)
    return sorted(ordered, key=lambda unit: any(member.last for member in unit.hosts))
