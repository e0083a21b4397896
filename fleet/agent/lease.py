"""The lease: which run this host belongs to. Durable, never expires, cleared by name only.

``lease.json`` says who; a lock (flock) on ``lease.lock`` says that a worker lives. Both are looked at
and changed only under a third, short lock (``lease.edit``), so two sessions cannot both see a free host.
"""

from __future__ import annotations

import fcntl
import os

from fleet.agent.paths import make_private_folder, read_bytes, remove_durably, write_durably
from fleet.agent.protocol import canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Optional

    from fleet.agent.paths import Paths
    from fleet.agent.protocol import Json

UNREADABLE = "unreadable"  # the run named by a lease.json that makes no sense


class Locked(Exception):
    """Another run holds the lease; ``lease`` says which, since when, from where and by whom."""

    def __init__(self, lease: Json) -> None:
        super().__init__(
            "run %s holds this host since %s (operator %s, controller %s)"
            % tuple(lease.get(key) or "unknown" for key in ("run", "since", "operator", "controller"))
        )
        self.lease = lease


class WorkerAlive(Exception):
    """A live worker holds the lock: of this run when it is the lease's run."""


class Lease:
    """The lease of one host. Reading never writes; every method raises OSError when the disk fails."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def read(self) -> Optional[Json]:
        """The record, None where no run holds this host."""
        raw = read_bytes(self._paths.lease)
        if raw is None:
            return None
        from fleet.agent import strict_json

        try:
            record = strict_json.loads(raw.decode("utf-8"))
        except ValueError:
            record = None
        if isinstance(record, dict) and isinstance(record.get("run"), str):
            return record
        return {"run": UNREADABLE, "since": None, "operator": None, "controller": None}

    def worker_alive(self) -> bool:
        """Whether some process holds the worker's lock. Changes nothing."""
        with _Edit(self._paths, create=False):
            return self._locked()

    def claim(self, record: Json) -> bool:
        """Make ``record["run"]`` the holder. True when its worker lives (nothing is changed then).

        Raises :class:`Locked` where another run holds the host, with or without a live worker.
        """
        make_private_folder(self._paths.state)
        with _Edit(self._paths):
            held = self.read()
            if held is not None and held["run"] != record["run"]:
                raise Locked(held)
            if self._locked():
                return True
            if held is not None:
                record = dict(record, since=held.get("since"), since_unix=held.get("since_unix"))
            self._write(record)
            return False

    def hold(self, run: str, pid: int, boot_id: str) -> int:
        """Take the worker's lock for ``run``; the descriptor returned holds it until closed.

        Raises :class:`Locked` where the lease is not this run's, :class:`WorkerAlive` where the lock
        is taken.
        """
        with _Edit(self._paths):
            held = self.read()
            if held is None or held["run"] != run:
                raise Locked(held or {"run": None})
            descriptor = os.open(self._paths.lease_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise WorkerAlive(run) from None
            self._write(dict(held, pid=pid, boot_id=boot_id))
            return descriptor

    def release(self, run: str, *, by_worker: bool = False) -> bool:
        """Clear the lease if ``run`` holds it and no worker lives (or the caller is that worker)."""
        if read_bytes(self._paths.lease) is None:
            return False
        with _Edit(self._paths):
            held = self.read()
            if held is None or held["run"] != run or (self._locked() and not by_worker):
                return False
            return remove_durably(self._paths.lease)

    def _write(self, record: Json) -> None:
        write_durably(self._paths.lease, canonical(record).encode("utf-8") + b"\n")

    def _locked(self) -> bool:
        """Whether the worker's lock is taken. Only under the edit lock: the try itself takes it."""
        try:
            descriptor = os.open(self._paths.lease_lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


class _Edit:
    """The short lock. Without ``create`` nothing is written: where the file is missing no one edits."""

    def __init__(self, paths: Paths, create: bool = True) -> None:
        self._path = paths.lease_edit
        self._flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
        self._descriptor: Optional[int] = None

    def __enter__(self) -> None:
        try:
            self._descriptor = os.open(self._path, self._flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            if self._flags & os.O_CREAT:
                raise
            return
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
