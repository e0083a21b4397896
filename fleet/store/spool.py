"""What a run tells the store before the database is opened, kept in a file so that no crash loses it.

Opening the database costs a fifth of a second of CPU (SQLAlchemy), as much as everything else that fleet
does in a run that changes nothing; and in such a run nobody waits for the store. So its rows go to a file
of their own, and whoever opens the database next takes them in (:func:`take_in`), before anything is read.
A run that applies something waits for its transitions and therefore opens the database at once.

One JSON object per line, ``{"kind", "values"}``; the file is locked (flock) as long as its process lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection

RUN, EVENT, END, REPORT, RUN_END = "run", "event", "end", "report", "run_end"

Row = tuple[str, Mapping[str, Any]]


class Spool:
    """The file of one process and run. Raises OSError where it cannot be written."""

    def __init__(self, folder: Path, run: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"{run}-{os.getpid()}.jsonl"
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC
        self._file = open(os.open(self._path, flags, 0o600), "w", encoding="utf-8")  # noqa: SIM115
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._lock = threading.Lock()

    def write(self, *rows: Row) -> None:
        """Add rows; they are with the operating system when this returns."""
        text = "".join(json.dumps({"kind": kind, "values": dict(values)}) + "\n" for kind, values in rows)
        with self._lock:
            if not self._file.closed:
                self._file.write(text)
                self._file.flush()

    def leave(self) -> None:
        """Close it, for the next one that opens the database."""
        with self._lock:
            self._file.close()

    def discard(self) -> None:
        """Remove it: the database has what it holds."""
        with self._lock:
            self._path.unlink(missing_ok=True)
            self._file.close()


def waiting(folder: Path) -> int:
    """How many files wait to be taken in."""
    return sum(1 for _ in folder.glob("*.jsonl"))


def take_in(
    connection: Connection,
    folder: Path,
    transaction: Callable[[Connection], AbstractContextManager[None]],
) -> None:
    """Take in every file whose process has ended. One that cannot be understood is kept as ``*.bad``."""
    for path in sorted(folder.glob("*.jsonl")):
        try:
            file = path.open(encoding="utf-8")
        except FileNotFoundError:
            continue  # another process was faster
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # its process lives, or another one is taking it in
            try:
                with transaction(connection):
                    _keep(connection, list(_rows(file)))
            except (ValueError, KeyError, TypeError):
                path.rename(path.with_suffix(".bad"))
            else:
                path.unlink(missing_ok=True)


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    """The rows in a file, up to one that was cut off when its process died."""
    for line in lines:
        if not line.endswith("\n"):
            return
        row = json.loads(line)
        yield row["kind"], row["values"]


def _keep(connection: Connection, rows: list[Row]) -> None:
    """Put rows into the database; those it has from before a crash are left out."""
    from fleet.store import statements

    of = {
        kind: [values for one, values in rows if one == kind] for kind in (RUN, EVENT, END, REPORT, RUN_END)
    }
    for values in of[RUN]:
        if not statements.runs_like(connection, values["run"]):
            statements.insert_run(connection, values)
    last = {run: statements.last_seq(connection, run) for run in {values["run"] for values in of[EVENT]}}
    statements.insert_events(connection, [row for row in of[EVENT] if row["seq"] > last[row["run"]]])
    statements.note_ends(connection, of[END])
    statements.put_reports(connection, of[REPORT])
    for values in of[RUN_END]:
        statements.end_run(connection, values["run"], {k: v for k, v in values.items() if k != "run"})
