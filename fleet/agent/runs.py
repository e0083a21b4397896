"""The runs a host remembers: which are open, closing one, and throwing old ones away.

A run is open from its start until its host needs the lease no more (``closed`` is the mark). An open
run is never thrown away; of the others 50 are kept, and of those as many as 200 MB hold.
"""

from __future__ import annotations

import os

from fleet.agent.history import History
from fleet.agent.paths import write_durably

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from fleet.agent.paths import Paths
    from fleet.agent.protocol import Json

KEEP_RUNS = 50
KEEP_BYTES = 200 * 1000 * 1000


def run_names(paths: Paths) -> list[str]:
    """Every run with a folder here, sorted."""
    try:
        return sorted(os.listdir(paths.runs))
    except FileNotFoundError:
        return []


def open_runs(paths: Paths) -> list[Json]:
    """The open runs as hello says them: run, segment, status (None: no end written), last_seq."""
    found = []
    for run in run_names(paths):
        if os.path.exists(paths.closed(run)):
            continue
        history = History.load(paths.journal(run))
        current = history.current
        found.append(
            {
                "run": run,
                "segment": current.segment if current is not None else None,
                "status": current.status if current is not None else None,
                "last_seq": history.last_seq,
            }
        )
    return found


def close_run(paths: Paths, run: str, why: str) -> None:
    """Mark a run as closed; without a folder there is nothing to mark."""
    if os.path.isdir(paths.run(run)):
        write_durably(paths.closed(run), why.encode("utf-8", "replace") + b"\n")


def reopen_run(paths: Paths, run: str) -> None:
    """Take the mark off again: the run goes on."""
    try:
        os.unlink(paths.closed(run))
    except FileNotFoundError:
        return


def prune(paths: Paths, keep: str, *, runs: int = KEEP_RUNS, size: int = KEEP_BYTES) -> list[str]:
    """Throw away the oldest closed runs beyond the limits, never ``keep``; the names thrown away."""
    closed = [(moment, name) for name, moment in _closed_moments(paths) if name != keep]
    gone = []
    kept, total = 1, _size(paths.run(keep))
    for _, name in sorted(closed, reverse=True):
        kept, total = kept + 1, total + _size(paths.run(name))
        if kept > runs or total > size:
            remove_folder(paths.run(name))
            gone.append(name)
    return gone


def _closed_moments(paths: Paths) -> list[tuple[str, float]]:
    found = []
    for name in run_names(paths):
        moment = _modified(paths.closed(name))
        if moment is not None:
            found.append((name, moment))
    return found


def _modified(path: str) -> Optional[float]:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return None


def _size(folder: str) -> int:
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in entries)
    except FileNotFoundError:
        return 0


def remove_folder(folder: str) -> None:
    """Remove a folder and everything in it, without following links; gone already is fine."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remove_folder(entry.path)
                else:
                    os.unlink(entry.path)
        os.rmdir(folder)
    except FileNotFoundError:
        return
