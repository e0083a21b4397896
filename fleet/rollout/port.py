"""What a rollout needs from outside: somewhere to keep its decisions, and the time.

:class:`fleet.store.Store` is the first; both are stood in for by tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

#: The hosts' transitions of one commit, in order: host, number, state, detail.
Transition = tuple[str, int, str, Mapping[str, Any]]


class Kept(Protocol):
    """A rollout as it was kept. ``revision`` goes up with every commit and every taking up."""

    @property
    def document(self) -> Mapping[str, Any]: ...
    @property
    def control(self) -> Mapping[str, Any]: ...
    @property
    def revision(self) -> int: ...
    @property
    def hosts(self) -> Mapping[str, tuple[str, int, Mapping[str, Any]]]:
        """Host -> state, number, detail."""


class Persistence(Protocol):
    """Each call is one transaction, durable when it returns."""

    def register_rollout(
        self, run: str, document: Mapping[str, Any], control: Mapping[str, Any], claims: Mapping[str, str]
    ) -> int:
        """Keep a new rollout and its claims (claim -> host), or raise RefusedError where another has one of them."""

    def commit_rollout(
        self,
        run: str,
        revision: int,
        transitions: Sequence[Transition],
        control: Mapping[str, Any] | None,
        *,
        ended: bool = False,
    ) -> int:
        """Keep what was decided and return the new revision; ``ended`` gives the claims back.

        Raises RefusedError where ``revision`` is not the kept one: another process has taken the rollout up.
        """

    def take_up_rollout(self, run: str) -> Kept:
        """The rollout as kept, from now on this caller's: commits of an earlier owner are refused."""


class Clock(Protocol):
    """The wall clock: it is kept and compared across restarts, so a monotonic one would not do."""

    def now(self) -> datetime:
        """Now, with its time zone: windows are in that zone."""
