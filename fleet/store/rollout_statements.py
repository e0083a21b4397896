"""What the store does to the tables of rollouts; run by the writer thread only, one call per transaction.

Two promises are kept here rather than by who calls: no host is claimed by two rollouts (the claim is the primary key,
and is looked up under the write lock), and no commit of an owner that has been replaced gets in (the revision).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select, text, update

from fleet.core.errors import InputError, RefusedError
from fleet.store.records import RolloutRow
from fleet.store.statements import replace_rows
from fleet.store.tables import ROLLOUT_CLAIMS, ROLLOUT_HOSTS, ROLLOUT_TRANSITIONS, ROLLOUTS

Values = Mapping[str, Any]

_ADVISORY_LOCK = 0x726F6C6C  # "roll"
_NAMES_AT_ONCE = 500  # databases bind no more than some thousand values
_SHOWN = 5


def register(connection: Connection, values: Values, claims: Mapping[str, str]) -> int:
    """A new rollout with its claims (claim -> host). Raises RefusedError, naming who has one of them."""
    if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE already keeps others out
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
    taken = list(_taken(connection, list(claims)))
    if taken:
        raise _overlapping(taken)
    connection.execute(insert(ROLLOUTS), [{**values, "revision": 1}])
    rows = [{"claim": claim, "run": values["run"], "host": host} for claim, host in claims.items()]
    if rows:
        connection.execute(insert(ROLLOUT_CLAIMS), rows)
    return 1


def _taken(connection: Connection, claims: Sequence[str]) -> Iterator[tuple[str, str]]:
    for start in range(0, len(claims), _NAMES_AT_ONCE):
        some = claims[start : start + _NAMES_AT_ONCE]
        query = select(ROLLOUT_CLAIMS.c.run, ROLLOUT_CLAIMS.c.host).where(ROLLOUT_CLAIMS.c.claim.in_(some))
        yield from ((row.run, row.host) for row in connection.execute(query.order_by(ROLLOUT_CLAIMS.c.claim)))


def _overlapping(taken: Sequence[tuple[str, str]]) -> RefusedError:
    run = taken[0][0]
    hosts = [host for other, host in taken if other == run]
    shown = ", ".join(hosts[:_SHOWN]) + (f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else "")
    return RefusedError(
        f"rollout {run} has not ended and has {shown}; two rollouts of one host would break both their limits",
        remedy=f"let it end (fleet resume {run}), cancel it, or leave its hosts out with --limit",
    )


def commit(
    connection: Connection,
    run: str,
    revision: int,
    transitions: Sequence[Values],
    control: str | None,
    ended_at: str | None,
) -> int:
    """What was decided since ``revision``; the new revision. Raises RefusedError for a revision that is past."""
    changes: dict[str, Any] = {"revision": revision + 1}
    if control is not None:
        changes["control"] = control
    if ended_at is not None:
        changes["ended_at"] = ended_at
    here = (ROLLOUTS.c.run == run) & (ROLLOUTS.c.revision == revision)
    if connection.execute(update(ROLLOUTS).where(here), changes).rowcount == 0:
        raise RefusedError(
            f"rollout {run} has been taken up by another process; this one decides nothing any more",
            remedy=f"watch it: fleet runs show {run}",
        )
    if transitions:
        connection.execute(insert(ROLLOUT_TRANSITIONS), [dict(values) for values in transitions])
        latest = {values["host"]: values for values in transitions}
        replace_rows(connection, ROLLOUT_HOSTS, ("run", "host"), list(latest.values()))
    if ended_at is not None:
        connection.execute(delete(ROLLOUT_CLAIMS).where(ROLLOUT_CLAIMS.c.run == run))
    return revision + 1


def take_up(connection: Connection, run: str) -> RolloutRow:
    """The rollout, its revision raised: whoever had it can commit no more. Raises InputError for an unknown run."""
    here = ROLLOUTS.c.run == run
    connection.execute(update(ROLLOUTS).where(here).values(revision=ROLLOUTS.c.revision + 1))
    return read(connection, run)


def read(connection: Connection, run: str) -> RolloutRow:
    """The rollout as it is. Raises InputError for a run that is none."""
    row = connection.execute(select(ROLLOUTS).where(ROLLOUTS.c.run == run)).one_or_none()
    if row is None:
        raise InputError(f"run {run} is not a rollout", remedy="fleet runs lists them")
    rows = connection.execute(select(ROLLOUT_HOSTS).where(ROLLOUT_HOSTS.c.run == run))
    return RolloutRow(
        run=run,
        document=json.loads(row.document),
        control=json.loads(row.control),
        revision=row.revision,
        created_at=row.created_at,
        ended_at=row.ended_at,
        hosts={one.host: (one.state, one.number, json.loads(one.detail)) for one in rows},
    )


def transitions(connection: Connection, run: str, host: str) -> list[tuple[int, str, str]]:
    """(number, state, at) of every transition of the host, oldest first."""
    table = ROLLOUT_TRANSITIONS
    query = select(table).where(table.c.run == run, table.c.host == host).order_by(table.c.number)
    return [(row.number, row.state, row.at) for row in connection.execute(query)]
