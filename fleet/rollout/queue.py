"""The units of a stage that wait for their turn, found without looking at all of them each time.

Units that need the same room (the same failure domains) stand in one line: where the first does not fit, none behind it
does. So a question costs as much as there are domains, however many hosts wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from fleet.rollout.members import Unit

_Lane = dict[str, Unit]


class StageQueue:
    """Units in their order, by need. Those ``preferred`` (idle hosts) go before others that need the same room."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._place = {unit.name: place for place, unit in enumerate(units)}
        self._lanes: dict[tuple[str | None, ...], _Lane] = {}
        self._preferred: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def prefer(self, hosts: Collection[str]) -> None:
        """Let units all of whose hosts are among these go first."""
        self._preferred = frozenset(hosts)

    def add(self, unit: Unit) -> None:
        """The unit waits (again): at the end of its line."""
        self._lanes.setdefault(unit.domains, {})[unit.name] = unit

    def remove(self, unit: Unit) -> None:
        """The unit does not wait any more."""
        lane = self._lanes.get(unit.domains, {})
        lane.pop(unit.name, None)
        if not lane:
            self._lanes.pop(unit.domains, None)

    def take(
        self, fits: Callable[[Unit], bool], ready: Callable[[Unit], bool], *, alike: bool
    ) -> Iterator[Unit]:
        """Take out units that fit, one at a time, in order; ``fits`` is asked again after each.

        ``ready``: whether a unit that fits may go now (its window); one that may not keeps nobody behind it.
        ``alike``: where a unit does not fit, none with the same domains does.
        """
        for domains in sorted(self._lanes, key=self._first):
            for unit in self._in_order(self._lanes[domains]):
                if not ready(unit):
                    continue
                if fits(unit):
                    self.remove(unit)
                    yield unit
                elif alike:
                    break

    def __iter__(self) -> Iterator[Unit]:
        return (unit for lane in self._lanes.values() for unit in lane.values())

    def _first(self, domains: tuple[str | None, ...]) -> int:
        return self._place[next(iter(self._lanes[domains]))]

    def _in_order(self, lane: _Lane) -> list[Unit]:
        if not self._preferred:
            return list(lane.values())
        return sorted(lane.values(), key=lambda unit: not self._preferred.issuperset(unit.names))
