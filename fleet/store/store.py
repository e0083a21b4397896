"""The door to the store: one method per thing the engine and the history commands need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import fleet
from fleet.core.documents import Scrub, json_text
from fleet.core.errors import InputError
from fleet.core.events import Event
from fleet.core.ids import utc_now
from fleet.core.paths import make_private, shown, state_dir
from fleet.store import spool
from fleet.store.records import BaselineRow, HostRow, InspectionRow, RunRow
from fleet.store.spool import Spool
from fleet.store.writer import StoreError, Writer

if TYPE_CHECKING:
    from sqlalchemy import Connection

Names = Sequence[str]
#: Facts by host, None where the report has none.
Found = dict[str, dict[str, Any] | None]

SHORTEST_PREFIX = 4
# A run that nobody waited for so long is opened after all, so that `fleet runs` sees it.
SPOOL_SECONDS = 5.0
# More files than these are taken in before another is left.
SPOOLS_MOST = 50
# So many of the latest runs are looked through for a host's newest report.
RUNS_LOOKED_AT = 500
# So many reports are in memory at once where they are looked at one by one.
REPORTS_AT_ONCE = 50


class Rows:
    """Events, hosts' ends and reports that came one after the other, written together.

    Each is (kind, values), kind being EVENT, END or REPORT of :mod:`fleet.store.spool`; rows may be added until it is
    begun. It can be run again (the writer does, when a transaction failed) with the same rows, or in parts.
    """

    def __init__(self, *rows: tuple[str, dict[str, Any]]) -> None:
        self._rows = list(rows)
        self._lock = threading.Lock()
        self._open = True

    def add(self, *rows: tuple[str, dict[str, Any]]) -> bool:
        """Whether ``rows`` joined; all do, or none."""
        with self._lock:
            if self._open:
                self._rows.extend(rows)
            return self._open

    def close(self) -> None:
        """Let no row join any more."""
        with self._lock:
            self._open = False

    def parts(self) -> list[Callable[[Connection], Any]]:
        """One row each."""
        return [Rows(row) for row in self._rows]

    def __call__(self, connection: Connection) -> None:
        self.close()
        sql = _sql()
        sql.insert_events(connection, self._of(spool.EVENT))
        sql.note_ends(connection, self._of(spool.END))
        sql.put_reports(connection, self._of(spool.REPORT))

    def _of(self, kind: str) -> list[dict[str, Any]]:
        return [values for one, values in self._rows if one == kind]


class Store:
    """Runs and what happened in them, in the database at ``url`` (None: SQLite in the state directory).

    The constructor returns at once; the database is opened by the writer thread while the caller goes
    on. What goes wrong there is raised by the next call or by :meth:`close`: StoreError, or
    RefusedError for a URL that cannot be used or a store written by a newer fleet. Every text passes
    ``scrub`` on its way in. Use as a context manager, or call :meth:`close`.
    """

    def __init__(self, url: str | None = None, *, scrub: Scrub | None = None) -> None:
        self._spools = state_dir() / "spool" if url is None else None
        if self._spools is None:
            self._writer = Writer(url)
        else:
            self._writer = Writer(None, patience_s=SPOOL_SECONDS, spools=self._spools)
        self._spool: Spool | None = None
        self._scrub = scrub
        self._rows = Rows()
        self._rows.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Commit what is queued, or leave it to the next one that opens the database. Safe to call twice."""
        kept, self._spool = self._spool, None
        if kept is not None and self._writer.abandon():
            kept.leave()
            return
        self._writer.close()
        if kept is not None:
            kept.discard()

    # ---- what the engine writes ----

    def create_run(
        self,
        run: str,
        *,
        playbook: str,
        inventory: str,
        operator: str,
        controller: str,
        hosts: Sequence[str],
        check: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Register a run. Returns before it is committed; any acknowledged call after it waits for it.

        ``arguments`` is what ``fleet resume`` needs to continue: no secrets.
        """
        values = {
            "run": run,
            "playbook": playbook,
            "inventory": inventory,
            "operator": operator,
            "controller": controller,
            "check_mode": int(check),
            "hosts": self._json(list(hosts)),
            "arguments": self._json(dict(arguments or {})),
            "fleet_version": fleet.__version__,
            "created_at": utc_now(),
        }
        if self._spools is not None and not self._writer.opening:
            self._open_spool(self._spools, run)
        self._spool_rows((spool.RUN, values))
        self._put(lambda connection: _sql().insert_run(connection, values))

    def _open_spool(self, folder: Path, run: str) -> None:
        try:
            make_private(folder.parent)
            self._spool = Spool(folder, run)
        except OSError as error:
            raise _cannot_spool(error, folder) from error
        if spool.waiting(folder) > SPOOLS_MOST:
            self._writer.start()

    def _spool_rows(self, *rows: tuple[str, dict[str, Any]]) -> None:
        """Keep rows from a crash for as long as the database is not open."""
        if self._spool is None or self._writer.opening:
            return
        try:
            self._spool.write(*rows)
        except OSError as error:
            assert self._spools is not None
            raise _cannot_spool(error, self._spools) from error

    def append(self, event: Event) -> None:
        """Keep one event; committed within about 100 ms.

        ``host_ended`` also puts the host's state and ``run_ended`` ends the run's record, with it.
        """
        values = {
            "run": event.run,
            "seq": event.seq,
            "at": event.at,
            "host": event.host,
            "kind": event.kind,
            "data": self._json(dict(event.data)),
        }
        if event.kind == "host_ended":
            self._join((spool.EVENT, values), (spool.END, self._end_of(event)))
        elif event.kind == "run_ended":
            end = self._run_end_of(event)
            self._spool_rows((spool.EVENT, values), (spool.RUN_END, {"run": event.run, **end}))
            self._put(
                lambda connection: (
                    _sql().insert_events(connection, [values]),
                    _sql().end_run(connection, event.run, end),
                )
            )
        else:
            self._join((spool.EVENT, values))

    def _join(self, *rows: tuple[str, dict[str, Any]]) -> None:
        """Queue rows, with those that wait already if possible."""
        self._spool_rows(*rows)
        if not self._rows.add(*rows):
            self._rows = opened = Rows(*rows)
            self._writer.put(opened, opened.parts)

    def _put(self, work: Callable[[Connection], Any]) -> None:
        """Queue a write. Events after it are not written before it."""
        self._rows.close()
        self._writer.put(work)

    def _end_of(self, event: Event) -> dict[str, Any]:
        """The state of the host that ``host_ended`` tells."""
        data = dict(event.data)
        return {
            "run": event.run,
            "host": event.host,
            "state": data.get("status"),
            "at": event.at,
            "detail": self._json(data),
        }

    def _run_end_of(self, event: Event) -> dict[str, Any]:
        """The end of the run that ``run_ended`` tells."""
        data = event.data
        return {
            "ended_at": event.at,
            "exit_code": data.get("exit_code"),
            "duration_s": data.get("duration_s"),
            "counts": self._json(dict(data.get("counts") or {})),
        }

    def reopen_run(self, run: str) -> None:
        """The run goes on: committed when this returns."""
        self._write(lambda connection: _sql().reopen_run(connection, run))

    def put_host_state(
        self, run: str, host: str, state: str, detail: Mapping[str, Any] | None = None
    ) -> None:
        """Commit a transition of one host; durable when this returns.

        ``state`` is a word of the engine's; ``records.APPLYING`` is the one from which on the host
        counts as touched, and must be put before its worker is started.
        """
        values = {"run": run, "host": host, "state": state, "detail": self._json(dict(detail or {}))}
        values["at"] = utc_now()
        self._write(lambda connection: _sql().put_host_state(connection, values))

    def save_plan(self, run: str, host: str, segment: int, plan: Mapping[str, Any], plan_hash: str) -> None:
        """Keep the plan of a segment (references, no secrets). Committed before the next transition."""
        values = {
            "run": run,
            "host": host,
            "segment": segment,
            "plan_hash": plan_hash,
            "plan": self._json(dict(plan)),
            "at": utc_now(),
        }
        self._put(lambda connection: _sql().put_plan(connection, values))

    def put_report(self, run: str, host: str, document: Mapping[str, Any]) -> None:
        """Keep a host's report; a later one of the same run replaces it."""
        values = {"run": run, "host": host, "at": utc_now(), "document": self._json(dict(document))}
        self._join((spool.REPORT, values))

    def save_baselines(self, rows: Sequence[BaselineRow]) -> None:
        """Keep baselines; each replaces an earlier one of its host, GPU, test and key. Durable when this returns."""
        values = [{**vars(row), "record": self._json(dict(row.record))} for row in rows]
        self._write(lambda connection: _sql().put_baselines(connection, values))

    def save_inspections(self, rows: Sequence[InspectionRow]) -> None:
        """Keep what was learnt of images; replaces what the same source said of the same digest. Durable on return."""
        values = [{**vars(row), "facts": self._json(dict(row.facts))} for row in rows]
        self._write(lambda connection: _sql().put_inspections(connection, values))

    # ---- what is asked of it ----

    def runs(self, limit: int = 20) -> list[RunRow]:
        """The latest runs, newest first."""
        return cast("list[RunRow]", self._writer.read(lambda connection: _sql().runs(connection, limit)))

    def find_run(self, prefix: str) -> RunRow:
        """The one run whose id begins with ``prefix`` (four digits or more), or ``last``.

        Raises InputError when there is none, or several: then it lists them.
        """
        if prefix == "last":
            latest = self.runs(1)
            if not latest:
                raise InputError("there is no run yet", remedy="fleet provision INVENTORY starts one")
            return latest[0]
        if len(prefix) < SHORTEST_PREFIX:
            raise InputError(f"run id {prefix!r} is too short: give at least {SHORTEST_PREFIX} digits")
        found: list[RunRow] = self._writer.read(lambda connection: _sql().runs_like(connection, prefix))
        exact = [row for row in found if row.run == prefix]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if not found:
            raise InputError(f"there is no run {prefix}", remedy="fleet runs lists them")
        candidates = "\n".join(f"  {row.run}  {row.created_at}  {row.playbook}" for row in found)
        raise InputError(f"run id {prefix} could mean {len(found)} runs:\n{candidates}")

    def run(self, prefix: str) -> RunRow:
        """Same as :meth:`find_run`."""
        return self.find_run(prefix)

    def events(
        self, run: str, host: str | None = None, kinds: Sequence[str] | None = None, *, after: int = 0
    ) -> list[Event]:
        """Events of a run in order: of one host, of some kinds, with numbers above ``after``."""
        rows = self._writer.read(lambda connection: _sql().events(connection, run, host, kinds, after))
        return [Event(**row) for row in rows]

    def last_seq(self, run: str) -> int:
        """The number of the run's last event (0: none); a resumed run counts on from it."""
        return cast("int", self._writer.read(lambda connection: _sql().last_seq(connection, run)))

    def hosts(self, run: str) -> list[HostRow]:
        """Every host of the run that has a state, by name."""
        return cast("list[HostRow]", self._writer.read(lambda connection: _sql().host_rows(connection, run)))

    def touched_hosts(self, run: str) -> list[str]:
        """Hosts whose worker may have been started: resume reads each one's journal first."""
        return cast("list[str]", self._writer.read(lambda connection: _sql().touched_hosts(connection, run)))

    def transitions(self, run: str, host: str) -> list[tuple[str, str]]:
        """(state, at) of every transition of the host, oldest first."""
        found = self._writer.read(lambda connection: _sql().transitions(connection, run, host))
        return cast("list[tuple[str, str]]", found)

    def plans(self, run: str, host: str) -> list[dict[str, Any]]:
        """The host's saved plans, by segment and then age."""
        found = self._writer.read(lambda connection: _sql().plans(connection, run, host))
        return cast("list[dict[str, Any]]", found)

    def report(self, run: str, host: str) -> dict[str, Any] | None:
        """The host's report, raw as it was written; None when there is none."""
        return self.reports(run, host).get(host)

    def reports(self, run: str, host: str | None = None) -> dict[str, dict[str, Any]]:
        """Reports of the run by host, raw as they were written."""
        found = self._writer.read(lambda connection: _sql().reports(connection, run, host))
        return cast("dict[str, dict[str, Any]]", found)

    def newest_facts(
        self, hosts: Iterable[str], *, without: Sequence[str] = (), runs: int = RUNS_LOOKED_AT
    ) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(host, run, facts) of the newest report that has facts at all, for each of ``hosts`` that has one.

        The latest ``runs`` are looked through, newest first. A few reports at a time are in memory: ten thousand
        of them would fill gigabytes. Parts of the facts named in ``without`` are null, as if they were not collected.
        """
        left = set(hosts)
        for run in self._writer.read(lambda connection: _sql().run_ids(connection, runs)):
            if not left:
                return
            names = [name for name in self._reported(run) if name in left]
            for some in self._ahead(_chunks(names), partial(self._facts_of, run, without)):
                for host, facts in some.items():
                    if facts is not None:
                        left.discard(host)
                        yield host, run, facts

    def _ahead(self, chunks: Iterable[Names], read: Callable[[Names], Found]) -> Iterator[Found]:
        """What is read of each chunk; the next is read while the caller is at work on one."""
        waiting: Future[Found] | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="fleet-store-ahead") as pool:
            for chunk in chunks:
                following = pool.submit(read, chunk)
                if waiting is not None:
                    yield waiting.result()
                waiting = following
            if waiting is not None:
                yield waiting.result()

    def _reported(self, run: str) -> list[str]:
        return cast("list[str]", self._writer.read(lambda connection: _sql().reported_hosts(connection, run)))

    def _facts_of(self, run: str, without: Names, hosts: Names) -> Found:
        found = self._writer.read(lambda connection: _sql().facts_of(connection, run, hosts, without))
        return cast("Found", found)

    def baseline(self, host: str, gpu: str, test: str, key: str) -> BaselineRow | None:
        """The baseline of one GPU at one test under one key; None where there is none."""
        found = self._baselines(host=host, gpu=gpu, test=test, key=key)
        return found[0] if found else None

    def baselines(self, host: str | None = None) -> list[BaselineRow]:
        """Every baseline, or those of one host, in order of host, GPU, test and key."""
        return self._baselines(**({} if host is None else {"host": host}))

    def inspections(self, digests: Sequence[str]) -> list[InspectionRow]:
        """What was learnt of the images with these digests, in order of digest and source."""
        found = self._writer.read(lambda connection: _sql().inspections(connection, list(digests)))
        return cast("list[InspectionRow]", found)

    def _baselines(self, **place: str) -> list[BaselineRow]:
        found = self._writer.read(lambda connection: _sql().baselines(connection, **place))
        return cast("list[BaselineRow]", found)

    def _write(self, work: Callable[[Connection], Any]) -> None:
        """Write and return when it is committed."""
        self._rows.close()
        self._writer.write(work)

    def _json(self, value: Any) -> str:
        return json_text(value, self._scrub)


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), REPORTS_AT_ONCE):
        yield names[start : start + REPORTS_AT_ONCE]


def _cannot_spool(error: OSError, folder: Path) -> StoreError:
    return StoreError(
        f"cannot write {shown(folder)}: {error.strerror}", remedy="make room there, or set FLEET_STATE_DIR"
    )


def _sql() -> Any:
    """The statements; imported by the writer thread, because SQLAlchemy comes with them."""
    from fleet.store import statements

    return statements
