"""What the store does to its tables, one function per statement; run by the writer thread only.

Neutral SQL: an upsert is an update and, where nothing was there, an insert, within one transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    null,
    select,
    update,
)

from fleet.store.records import APPLYING, BaselineRow, HostRow, InspectionRow, RunRow
from fleet.store.tables import BASELINES, EVENTS, HOST_STATES, INSPECTIONS, PLANS, REPORTS, RUNS, TRANSITIONS

Values = Mapping[str, Any]

_STEP_KINDS = ("step_started", "step_result")
_BASELINE = ("host", "gpu", "test", "key")


def insert_run(connection: Connection, values: Values) -> None:
    """A new run. An id that is there already is an IntegrityError."""
    connection.execute(insert(RUNS), [dict(values)])


def insert_events(connection: Connection, rows: Sequence[Values]) -> None:
    """Events, their ``data`` as JSON text."""
    if rows:
        connection.execute(insert(EVENTS), [dict(values) for values in rows])


def end_run(connection: Connection, run: str, values: Values) -> None:
    """How the run ended: at, exit code, duration, counts."""
    connection.execute(update(RUNS).where(RUNS.c.run == run), dict(values))


def reopen_run(connection: Connection, run: str) -> None:
    """The run goes on (resume): it has no end any more."""
    connection.execute(update(RUNS).where(RUNS.c.run == run).values(ended_at=None, exit_code=None))


def put_host_state(connection: Connection, values: Values) -> None:
    """The host's state now, and the transition to it. Once touched, a host stays so."""
    run, host = values["run"], values["host"]
    here = and_(HOST_STATES.c.run == run, HOST_STATES.c.host == host)
    touched = connection.execute(select(HOST_STATES.c.touched).where(here)).scalar()
    now = {**values, "touched": int(bool(touched) or values["state"] == APPLYING)}
    _upsert(connection, HOST_STATES, ("run", "host"), now)
    there = and_(TRANSITIONS.c.run == run, TRANSITIONS.c.host == host)
    last = connection.execute(select(func.max(TRANSITIONS.c.number)).where(there)).scalar()
    connection.execute(insert(TRANSITIONS), [{**values, "number": (last or 0) + 1}])


def note_ends(connection: Connection, ends: Sequence[Values]) -> None:
    """Hosts' ends as their events tell them, in order, unless that state is committed already.

    All of a batch together: a run of many hosts ends many at once, and each statement has its price.
    """
    for run in dict.fromkeys(values["run"] for values in ends):
        _note_ends_of(connection, run, [values for values in ends if values["run"] == run])


def _note_ends_of(connection: Connection, run: str, ends: Sequence[Values]) -> None:
    columns = (HOST_STATES.c.host, HOST_STATES.c.state, HOST_STATES.c.touched)
    rows = connection.execute(select(*columns).where(HOST_STATES.c.run == run)).all()
    before = {row.host: row.state for row in rows}
    touched = {row.host: row.touched for row in rows}
    numbers = _last_transitions(connection, run)
    now: dict[str, Values] = {}
    transitions = []
    for values in ends:
        host = values["host"]
        if (now.get(host) or {"state": before.get(host)})["state"] == values["state"]:
            continue
        numbers[host] = numbers.get(host, 0) + 1
        transitions.append({**values, "number": numbers[host]})
        now[host] = {**values, "touched": int(bool(touched.get(host)) or values["state"] == APPLYING)}
    _replace(connection, HOST_STATES, ("run", "host"), list(now.values()))
    if transitions:
        connection.execute(insert(TRANSITIONS), transitions)


def _last_transitions(connection: Connection, run: str) -> dict[str, int]:
    """The number of each host's last transition."""
    query = select(TRANSITIONS.c.host, func.max(TRANSITIONS.c.number)).where(TRANSITIONS.c.run == run)
    rows = connection.execute(query.group_by(TRANSITIONS.c.host))
    return {host: number for host, number in rows}  # noqa: C416 - rows are not plain pairs to mypy


def put_plan(connection: Connection, values: Values) -> None:
    """The plan of one segment on one host."""
    _upsert(connection, PLANS, ("run", "host", "segment", "plan_hash"), values)


def put_reports(connection: Connection, reports: Sequence[Values]) -> None:
    """Hosts' reports; a later one of the same run and host replaces it."""
    latest = {(values["run"], values["host"]): values for values in reports}
    _replace(connection, REPORTS, ("run", "host"), list(latest.values()))


def runs(connection: Connection, limit: int) -> list[RunRow]:
    """The latest runs, newest first."""
    rows = connection.execute(select(RUNS).order_by(RUNS.c.created_at.desc(), RUNS.c.run).limit(limit))
    return [_run_row(row) for row in rows]


def runs_like(connection: Connection, prefix: str) -> list[RunRow]:
    """The runs whose id begins with ``prefix``, newest first."""
    begins = RUNS.c.run.startswith(prefix, autoescape=True)
    rows = connection.execute(select(RUNS).where(begins).order_by(RUNS.c.created_at.desc()).limit(20))
    return [_run_row(row) for row in rows]


def events(
    connection: Connection, run: str, host: str | None, kinds: Sequence[str] | None, after: int
) -> list[dict[str, Any]]:
    """Events in order, as the columns hold them with ``data`` parsed."""
    query = select(EVENTS).where(EVENTS.c.run == run, EVENTS.c.seq > after).order_by(EVENTS.c.seq)
    if host is not None:
        query = query.where(EVENTS.c.host == host)
    if kinds is not None:
        query = query.where(EVENTS.c.kind.in_(kinds))
    return [{**row._mapping, "data": json.loads(row.data)} for row in connection.execute(query)]


def last_seq(connection: Connection, run: str) -> int:
    """The number of the run's last event, 0 when it has none."""
    query = select(func.max(EVENTS.c.seq)).where(EVENTS.c.run == run)
    return int(connection.execute(query).scalar() or 0)


def host_rows(connection: Connection, run: str) -> list[HostRow]:
    """Every host of the run that has a state, by name, with the last step heard of."""
    steps = _last_steps(connection, run)
    rows = connection.execute(
        select(HOST_STATES).where(HOST_STATES.c.run == run).order_by(HOST_STATES.c.host)
    )
    return [_host_row(row, steps.get(row.host, {})) for row in rows]


def touched_hosts(connection: Connection, run: str) -> list[str]:
    """Hosts whose worker may have been started."""
    states = select(HOST_STATES.c.host).where(HOST_STATES.c.run == run, HOST_STATES.c.touched == 1)
    steps = select(EVENTS.c.host).where(EVENTS.c.run == run, EVENTS.c.kind.in_(_STEP_KINDS)).distinct()
    found = {row.host for query in (states, steps) for row in connection.execute(query)}
    return sorted(host for host in found if host is not None)


def transitions(connection: Connection, run: str, host: str) -> list[tuple[str, str]]:
    """(state, at) of every transition of the host, oldest first."""
    there = and_(TRANSITIONS.c.run == run, TRANSITIONS.c.host == host)
    query = select(TRANSITIONS.c.state, TRANSITIONS.c.at).where(there).order_by(TRANSITIONS.c.number)
    return [(row.state, row.at) for row in connection.execute(query)]


def plans(connection: Connection, run: str, host: str) -> list[dict[str, Any]]:
    """The host's plans, by segment and then age."""
    there = and_(PLANS.c.run == run, PLANS.c.host == host)
    rows = connection.execute(select(PLANS.c.plan).where(there).order_by(PLANS.c.segment, PLANS.c.at))
    return [json.loads(row.plan) for row in rows]


def reports(connection: Connection, run: str, host: str | None) -> dict[str, dict[str, Any]]:
    """Report documents by host."""
    query = select(REPORTS.c.host, REPORTS.c.document).where(REPORTS.c.run == run).order_by(REPORTS.c.host)
    if host is not None:
        query = query.where(REPORTS.c.host == host)
    return {row.host: json.loads(row.document) for row in connection.execute(query)}


def run_ids(connection: Connection, limit: int) -> list[str]:
    """The ids of the latest runs, newest first: without their lists of hosts, which may be long."""
    query = select(RUNS.c.run).order_by(RUNS.c.created_at.desc(), RUNS.c.run).limit(limit)
    return [row.run for row in connection.execute(query)]


def reported_hosts(connection: Connection, run: str) -> list[str]:
    """The hosts that have a report of this run, by name: read from the index alone."""
    query = select(REPORTS.c.host).where(REPORTS.c.run == run).order_by(REPORTS.c.host)
    return [row.host for row in connection.execute(query)]


def facts_of(
    connection: Connection, run: str, hosts: Sequence[str], without: Sequence[str]
) -> dict[str, dict[str, Any] | None]:
    """The facts in the reports of these hosts: a few hundred names at most, as databases bind no more.

    Parts named in ``without`` are null, not collected. SQLite cuts them out itself where it can, which takes half the
    time of reading all of a report in Python: most of one is what NVML says of each GPU.
    """
    there = and_(REPORTS.c.run == run, REPORTS.c.host.in_(hosts))
    cut = bool(without) and connection.dialect.name == "sqlite" and sqlite3.sqlite_version_info >= _JSON_SINCE
    column = _facts_without(without) if cut else REPORTS.c.document
    rows = connection.execute(
        select(REPORTS.c.host, column.label("text")).where(there).order_by(REPORTS.c.host)
    )
    if cut:
        return {row.host: json.loads(row.text) if row.text is not None else None for row in rows}
    return {row.host: _without(json.loads(row.text).get("facts"), without) for row in rows}


# From this release on SQLite is built with its JSON functions.
_JSON_SINCE = (3, 38, 0)


def _facts_without(names: Sequence[str]) -> ColumnElement[Any]:
    pairs = [
        pair for name in names for pair in ((f"$.{name}", null()), (f"$.{name}_reason", "not_collected"))
    ]
    facts = func.json_extract(REPORTS.c.document, "$.facts")
    return func.json_set(facts, *(part for pair in pairs for part in pair))


def _without(facts: Any, names: Sequence[str]) -> Any:
    if not isinstance(facts, dict):
        return None
    return facts | {
        key: value for name in names for key, value in ((name, None), (f"{name}_reason", "not_collected"))
    }


def put_baselines(connection: Connection, rows: Sequence[Values]) -> None:
    """Baselines; a later one of the same host, GPU, test and key replaces it."""
    latest = {tuple(row[key] for key in _BASELINE): row for row in rows}
    _replace(connection, BASELINES, _BASELINE, list(latest.values()))


def baselines(connection: Connection, **place: str) -> list[BaselineRow]:
    """Baselines in order of host, GPU, test and key; ``place``: those with these values only."""
    columns = [BASELINES.c[name] for name in _BASELINE]
    query = select(BASELINES).where(*(BASELINES.c[name] == value for name, value in place.items()))
    rows = connection.execute(query.order_by(*columns))
    return [BaselineRow(**{**row._mapping, "record": json.loads(row.record)}) for row in rows]


def put_inspections(connection: Connection, rows: Sequence[Values]) -> None:
    """What was learnt of images; a later row of the same digest and source replaces it."""
    latest = {(row["digest"], row["source"]): row for row in rows}
    _replace(connection, INSPECTIONS, ("digest", "source"), list(latest.values()))


def inspections(connection: Connection, digests: Sequence[str]) -> list[InspectionRow]:
    """What was learnt of these images, in order of digest and source."""
    query = select(INSPECTIONS).where(INSPECTIONS.c.digest.in_(digests))
    rows = connection.execute(query.order_by(INSPECTIONS.c.digest, INSPECTIONS.c.source))
    return [InspectionRow(**{**row._mapping, "facts": json.loads(row.facts)}) for row in rows]


def _replace(connection: Connection, table: Table, keys: Sequence[str], rows: Sequence[Values]) -> None:
    """Put ``rows``, each in the place of the one with the same ``keys``: two statements for all of them."""
    if not rows:
        return
    here = and_(*(table.c[key] == bindparam(f"old_{key}") for key in keys))
    connection.execute(delete(table).where(here), [{f"old_{key}": row[key] for key in keys} for row in rows])
    connection.execute(insert(table), [dict(row) for row in rows])


def _upsert(connection: Connection, table: Table, keys: Iterable[str], values: Values) -> None:
    here = and_(*(table.c[key] == values[key] for key in keys))
    if connection.execute(update(table).where(here), dict(values)).rowcount == 0:
        connection.execute(insert(table), [dict(values)])


def _last_steps(connection: Connection, run: str) -> dict[str, Mapping[str, Any]]:
    """Per host: what its last step event says, with index and total carried over from the start."""
    newest = (
        select(EVENTS.c.host, EVENTS.c.kind, func.max(EVENTS.c.seq).label("seq"))
        .where(EVENTS.c.run == run, EVENTS.c.kind.in_(_STEP_KINDS))
        .group_by(EVENTS.c.host, EVENTS.c.kind)
        .subquery()
    )
    query = select(EVENTS).where(EVENTS.c.run == run, EVENTS.c.seq == newest.c.seq).order_by(EVENTS.c.seq)
    found: dict[str, Mapping[str, Any]] = {}
    for row in connection.execute(query):
        data = json.loads(row.data)
        before = found.get(row.host, {})
        if before.get("step") == data.get("step"):
            data = {**before, **{name: value for name, value in data.items() if value is not None}}
        found[row.host] = data
    return found


def _run_row(row: Row[Any]) -> RunRow:
    return RunRow(
        run=row.run,
        playbook=row.playbook,
        inventory=row.inventory,
        operator=row.operator,
        controller=row.controller,
        check=bool(row.check_mode),
        hosts=tuple(json.loads(row.hosts)),
        arguments=json.loads(row.arguments),
        fleet_version=row.fleet_version,
        created_at=row.created_at,
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        duration_s=row.duration_s,
        counts=json.loads(row.counts or "{}"),
    )


def _host_row(row: Row[Any], step: Mapping[str, Any]) -> HostRow:
    return HostRow(
        host=row.host,
        state=row.state,
        detail=json.loads(row.detail),
        at=row.at,
        touched=bool(row.touched),
        last_step=step.get("task") or step.get("step"),
        last_status=step.get("status"),
        index=step.get("index"),
        total=step.get("total"),
    )
