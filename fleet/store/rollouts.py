"""The store's part for rollouts: what :class:`fleet.store.Store` offers beyond runs and events.

Apart from ``store.py`` because its callers are others: ``fleet.rollout`` decides, and each call here is one decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from fleet.core.ids import utc_now
from fleet.store.records import RolloutRow

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: host, number, state, detail
Transition = tuple[str, int, str, Mapping[str, Any]]


class Rollouts:
    """Mixed into the store. Every method is one transaction, durable when it returns."""

    def _write(self, work: Callable[[Connection], Any]) -> Any:
        raise NotImplementedError

    def _read(self, work: Callable[[Connection], Any]) -> Any:
        raise NotImplementedError

    def _json(self, value: Any) -> str:
        raise NotImplementedError

    def register_rollout(
        self, run: str, document: Mapping[str, Any], control: Mapping[str, Any], claims: Mapping[str, str]
    ) -> int:
        """Keep a new rollout and claim its hosts (claim -> host); its first revision.

        Raises RefusedError where a rollout that has not ended has one of the claims: nothing is kept then.
        """
        values = {"run": run, "document": self._json(dict(document)), "control": self._json(dict(control))}
        values["created_at"] = utc_now()
        return cast("int", self._write(lambda connection: _sql().register(connection, values, claims)))

    def commit_rollout(
        self,
        run: str,
        revision: int,
        transitions: Sequence[Transition],
        control: Mapping[str, Any] | None,
        *,
        ended: bool = False,
    ) -> int:
        """Keep transitions of hosts, in order, and the rollout's control where it changed; the new revision.

        ``ended`` gives the claims back. Raises RefusedError when ``revision`` is past: somebody else took it up.
        """
        at = utc_now()
        rows = [
            {
                "run": run,
                "host": host,
                "number": number,
                "state": state,
                "detail": self._json(detail),
                "at": at,
            }
            for host, number, state, detail in transitions
        ]
        text = self._json(dict(control)) if control is not None else None
        end = at if ended else None
        return cast(
            "int", self._write(lambda connection: _sql().commit(connection, run, revision, rows, text, end))
        )

    def take_up_rollout(self, run: str) -> RolloutRow:
        """The rollout as kept; from now on only this caller's commits are taken."""
        return cast("RolloutRow", self._write(lambda connection: _sql().take_up(connection, run)))

    def rollout(self, run: str) -> RolloutRow:
        """The rollout as kept, to look at."""
        return cast("RolloutRow", self._read(lambda connection: _sql().read(connection, run)))

    def rollout_transitions(self, run: str, host: str) -> list[tuple[int, str, str]]:
        """(number, state, at) of every transition of one host, oldest first."""
        found = self._read(lambda connection: _sql().transitions(connection, run, host))
        return cast("list[tuple[int, str, str]]", found)


def _sql() -> Any:
    """The statements; imported by the writer thread, because SQLAlchemy comes with them."""
    from fleet.store import rollout_statements

    return rollout_statements
