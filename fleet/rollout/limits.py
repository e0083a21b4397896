"""Who is out of service, and whether more may be: overall, and in each failure domain.

A host counts once, whether this rollout has it, somebody else has it down or drained, or both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fleet.rollout.members import Member, Unit
from fleet.rollout.strategy import Strategy, limits_of


class Limits:
    """Kept up by ``hold`` and ``release`` (this rollout) and ``observe`` (the world); asked by ``room_for``."""

    def __init__(self, strategy: Strategy, members: Sequence[Member]) -> None:
        self.overall, self.per_domain = limits_of(strategy, members)
        self._domains = {member.name: member.domain for member in members}
        self._held: set[str] = set()
        self._down: frozenset[str] = frozenset()
        self._out = 0
        self._out_of: Counter[str | None] = Counter()

    @property
    def down(self) -> frozenset[str]:
        """Hosts last observed down or drained by others."""
        return self._down

    def hold(self, host: str) -> None:
        """This rollout has, or is about to have, the host out."""
        if host not in self._held:
            self._held.add(host)
            self._count(host, 0 if host in self._down else 1)

    def release(self, host: str) -> None:
        """The host is in service again as far as this rollout is concerned."""
        if host in self._held:
            self._held.discard(host)
            self._count(host, 0 if host in self._down else -1)

    def observe(self, down: Iterable[str]) -> None:
        """All hosts that are down or drained by others now; names out of scope count for nothing."""
        now = frozenset(name for name in down if name in self._domains)
        for host in now - self._down - self._held:
            self._count(host, 1)
        for host in self._down - now - self._held:
            self._count(host, -1)
        self._down = now

    def out(self, host: str) -> bool:
        """Whether the host counts as out."""
        return host in self._held or host in self._down

    def room_for(self, unit: Unit) -> bool:
        """Whether the unit may be taken out now. Above a limit nothing may, not even what is down already."""
        new = [member.domain for member in unit.hosts if not self.out(member.name)]
        if self._out + len(new) > self.overall:
            return False
        adding = Counter(new)
        return all(
            domain not in self.per_domain or self._out_of[domain] + adding[domain] <= self.per_domain[domain]
            for domain in set(unit.domains)
        )

    @property
    def full(self) -> bool:
        """Whether no host that serves could be taken out."""
        return self._out >= self.overall

    def exceeded_at(self, host: str) -> bool:
        """Whether more are out than may be, overall or where this host is."""
        domain = self._domains[host]
        if self._out > self.overall:
            return True
        return domain in self.per_domain and self._out_of[domain] > self.per_domain[domain]

    def _count(self, host: str, change: int) -> None:
        self._out += change
        self._out_of[self._domains[host]] += change
