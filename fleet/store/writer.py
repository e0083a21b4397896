"""The one thread that talks to the database.

Naive concurrent writers lose most of their commits to "database is locked"; so all of a process's
statements go through one queue to one thread, every write transaction starts with ``BEGIN IMMEDIATE``
(it waits for the lock up front instead of failing half way), and other fleet processes are waited for.
Writes nobody waits for are collected for 100 ms into one transaction; a write somebody waits for
commits at once, together with what was queued before it, so order is kept.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.core.errors import FleetError, RefusedError
from fleet.core.paths import make_private, shown, state_dir
from fleet.store.spool import take_in

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

BATCH_SECONDS = 0.1
# Opening costs a quarter of a second of CPU (SQLAlchemy); a run has hosts to connect to meanwhile.
PATIENCE_SECONDS = 0.5
BATCH_MOST = 1000
BUSY_SECONDS = 30.0

Work = Callable[["Connection"], Any]


class StoreError(FleetError):
    """The database could not be opened, read or written."""


@dataclass
class Job:
    """One piece of work for the thread. ``result`` is there when somebody waits for it.

    ``parts`` is the same work in pieces, for when one of them is bad.
    """

    work: Work
    writes: bool
    result: Future[Any] | None = None
    parts: Callable[[], list[Work]] | None = None


class Mark(Enum):
    """What may stand in place of a job."""

    COMMIT = "commit"
    END = "end"


class Writer:
    """Runs jobs in order on a thread that starts with the first one.

    The first error of a job nobody waited for is kept, and raised by the next call.
    """

    def __init__(
        self, url: str | None, *, patience_s: float = PATIENCE_SECONDS, spools: Path | None = None
    ) -> None:
        self._url = url
        self._patience_s = patience_s
        self._spools = spools
        self._opening = False
        self._abandoned = False
        self._queue: queue.SimpleQueue[Job | Mark] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._closed = False
        self._awaited = threading.Event()

    def put(self, work: Work, parts: Callable[[], list[Work]] | None = None) -> None:
        """Write soon; an error surfaces at the next call.

        The database is opened when somebody waits for it, or after a moment.
        """
        self._submit(Job(work, writes=True, parts=parts))

    def write(self, work: Work) -> Any:
        """Write and return when it is committed."""
        return self._wait(Job(work, writes=True, result=Future()))

    def read(self, work: Work) -> Any:
        """Read what was committed, everything put before included."""
        return self._wait(Job(work, writes=False, result=Future()))

    def start(self) -> None:
        """Open the database now, so that this overlaps with the caller's work."""
        self._awaited.set()
        self._start_thread()

    def _start_thread(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="fleet-store", daemon=True)
                self._thread.start()

    @property
    def opening(self) -> bool:
        """Whether the database is open, or about to be: what is queued will be committed."""
        return self._opening or self._awaited.is_set()

    def abandon(self) -> bool:
        """Close without ever opening the database, if nobody needed it; False where it is in use."""
        with self._lock:
            if self.opening or self._closed:
                return False
            self._abandoned = self._closed = True
            thread = self._thread
        self._awaited.set()
        if thread is not None:
            thread.join()
        return True

    def close(self) -> None:
        """Commit what is queued, end the thread, and raise what went wrong unseen."""
        with self._lock:
            thread, already = self._thread, self._closed
            self._closed = True
        self._awaited.set()
        if thread is not None and not already:
            self._queue.put(Mark.END)
            thread.join()
        self._raise_kept()

    def _submit(self, job: Job) -> None:
        self._raise_kept()
        if self._closed:
            raise RuntimeError("the store is closed")
        if job.result is not None:
            self._awaited.set()
        self._start_thread()
        self._queue.put(job)

    def _wait(self, job: Job) -> Any:
        self._submit(job)
        assert job.result is not None
        value = job.result.result()
        self._raise_kept()
        return value

    def _raise_kept(self) -> None:
        with self._lock:
            error, self._error = self._error, None
        if error is not None:
            raise error

    # ---- in the thread ----

    def _run(self) -> None:
        self._awaited.wait(self._patience_s)
        with self._lock:
            if self._abandoned:
                return
            self._opening = True
        try:
            engine, connection = _open(self._url)
            if self._spools is not None:
                take_in(connection, self._spools, lambda one: _transaction(one, writes=True))
        except BaseException as error:
            self._refuse_all(error)
            return
        try:
            for batch in self._batches():
                self._do(connection, batch)
        finally:
            connection.close()
            engine.dispose()

    def _refuse_all(self, error: BaseException) -> None:
        """The database cannot be opened: every job fails with the reason, until close."""
        while isinstance(job := self._queue.get(), Job):
            self._fail(job, error)

    def _batches(self) -> Iterator[list[Job]]:
        """Jobs in order: writes collected until somebody waits for one, a read on its own."""
        batch: list[Job] = []
        deadline = 0.0
        while True:
            if not batch:
                deadline = time.monotonic() + BATCH_SECONDS
            job = self._next(batch, deadline)
            if isinstance(job, Job) and job.writes and len(batch) < BATCH_MOST:
                batch.append(job)
                continue
            if batch:
                yield batch
            if job is Mark.END:
                return
            batch = [job] if isinstance(job, Job) else []
            if batch and not batch[0].writes:
                yield batch
                batch = []

    def _next(self, batch: list[Job], deadline: float) -> Job | Mark:
        """The job that may join ``batch``; ``Mark.COMMIT`` when the batch should go as it is.

        While somebody waits for the batch only what is queued already joins it: many hosts' transitions
        then share one commit.
        """
        try:
            if not batch:
                return self._queue.get()
            if batch[-1].result is not None:
                return self._queue.get_nowait()
            return self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return Mark.COMMIT

    def _do(self, connection: Connection, batch: list[Job]) -> None:
        try:
            with _transaction(connection, writes=batch[0].writes):
                values = [job.work(connection) for job in batch]
        except BaseException as error:
            pieces = _pieces(batch)
            if len(pieces) > 1 and not _is_down(error):
                for job in pieces:  # one bad job must not take the others with it
                    self._do(connection, [job])
                return
            for job in batch:
                self._fail(job, _worded(error, self._url))
            return
        for job, value in zip(batch, values, strict=True):
            if job.result is not None:
                job.result.set_result(value)

    def _fail(self, job: Job, error: BaseException) -> None:
        if job.result is not None:
            job.result.set_exception(error)
            return
        with self._lock:
            self._error = self._error or error


def _pieces(batch: list[Job]) -> list[Job]:
    """The jobs of a batch; of a job alone, its parts."""
    if len(batch) > 1 or batch[0].parts is None:
        return batch
    return [Job(work, writes=True) for work in batch[0].parts()]


@contextmanager
def _transaction(connection: Connection, *, writes: bool) -> Iterator[None]:
    connection.info["fleet_writes"] = writes
    with connection.begin():
        yield


def _open(url: str | None) -> tuple[Engine, Connection]:
    """The engine and its one connection, at the current version."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    from fleet.store.migrations import migrate

    try:
        engine = create_engine(url or _default_url(), **_engine_arguments(url))
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        connection = engine.connect()
        with _transaction(connection, writes=True):
            migrate(connection)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise RefusedError(
            f"the store {_safe(url)} cannot be used: {error}",
            remedy="sqlite:///FILE, or postgresql+psycopg://USER@HOST/DATABASE with psycopg installed",
        ) from error
    except Exception as error:
        raise _worded(error, url) from error
    return engine, connection


def _default_url() -> str:
    path = make_private(state_dir()) / "fleet.db"
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return f"sqlite:///{path}"


def _engine_arguments(url: str | None) -> dict[str, Any]:
    if url is None or url.startswith("sqlite"):
        return {"connect_args": {"timeout": BUSY_SECONDS}}
    return {"pool_pre_ping": True}


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # fleet says BEGIN itself, see _begin_sqlite
    cursor = connection.cursor()
    # FULL: an acknowledged transition survives a power cut.
    cursor.execute("PRAGMA synchronous=FULL")
    if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        _switch_to_wal(cursor)
    cursor.close()


def _switch_to_wal(cursor: Any) -> None:
    """Once per file. SQLite does not honour the busy timeout here, so a locked file is asked again."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")  # readers do not block the writer
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.info.get("fleet_writes", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _is_down(error: BaseException) -> bool:
    """Whether the database itself is the trouble (locked, gone, full): trying job by job is no use."""
    from sqlalchemy.exc import InterfaceError, OperationalError

    return isinstance(error, (OperationalError, InterfaceError))


def _worded(error: BaseException, url: str | None) -> BaseException:
    """A database error as one of fleet's; anything else (a bug) as it is."""
    from sqlalchemy.exc import DBAPIError

    if not isinstance(error, (DBAPIError, OSError)):
        return error
    cause = error.orig if isinstance(error, DBAPIError) else error
    return StoreError(
        f"the store {_safe(url)} failed: {str(cause).strip()}",
        remedy="check that it is there, writable, and its disk not full; then: fleet resume RUN",
    )


def _safe(url: str | None) -> str:
    """The database's name without its password."""
    if url is None:
        return shown(state_dir() / "fleet.db")
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "given"
