"""The log file: what happened in fleet itself, for reading afterwards. Never on the screen.

Plain lines, ``time pid level message key=value``; continuation lines (a traceback) are indented. Every
line passes the process's scrubber and loses its control characters, so that neither a secret nor a
hostile host's escape sequences lie in wait for whoever opens the file. Several fleet processes append
to one file: each line is a single ``O_APPEND`` write.
"""

from __future__ import annotations

import os
import threading
import traceback as tracebacks
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet.core.documents import Scrub
from fleet.core.ids import utc_now
from fleet.core.paths import make_private, shown, state_dir

if TYPE_CHECKING:
    import logging

SIZE_LIMIT = 5 * 1024 * 1024
KEPT = 3

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)}


class LogFile:
    """One log file, opened at the first line written, mode 0600, rotated at 5 MiB, three kept.

    ``path`` None means ``fleet.log`` in the state directory. A log that cannot be written never stops
    the work: the reason is kept in :attr:`broken` and the lines are dropped. Thread-safe.
    """

    def __init__(
        self, path: Path | None = None, scrub: Scrub | None = None, *, limit: int = SIZE_LIMIT
    ) -> None:
        self.path = path or state_dir() / "fleet.log"
        self.broken: str | None = None
        self._private = path is None
        self._scrub = scrub or (lambda text: text)
        self._limit = limit
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._size = 0

    @property
    def shown(self) -> str:
        """The path as messages name it."""
        return shown(self.path)

    def info(self, message: str, **fields: Any) -> None:
        """Something that helps to follow a run afterwards."""
        self.write("info", message, fields)

    def error(self, message: str, **fields: Any) -> None:
        """Something that went wrong."""
        self.write("error", message, fields)

    def traceback(self, message: str, error: BaseException) -> None:
        """``message`` and the traceback of ``error``."""
        self.write("error", message + "\n" + "".join(tracebacks.format_exception(error)), {})

    def write(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """Append one entry."""
        words = "".join(f" {name}={_value(value)}" for name, value in fields.items())
        text = self._scrub(f"{level} {message.rstrip()}{words}").translate(_CONTROL).replace("\n", "\n    ")
        line = f"{utc_now()} {os.getpid()} {text}\n".encode("utf-8", "backslashreplace")
        with self._lock:
            if self.broken is None:
                self._append(line)

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _append(self, line: bytes) -> None:
        try:
            if self._descriptor is None:
                self._open()
            if self._size + len(line) > self._limit:
                self._rotate()
            assert self._descriptor is not None
            os.write(self._descriptor, line)
            self._size += len(line)
        except OSError as error:
            self.broken = f"{self.shown}: {error.strerror or error}"

    def _open(self) -> None:
        if self._private:
            make_private(self.path.parent)
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        """Shift ``fleet.log`` to ``fleet.log.1`` and so on, unless another process already has."""
        assert self._descriptor is not None
        mine = os.fstat(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = None
        try:
            still_there = os.path.samestat(mine, os.stat(self.path))
        except FileNotFoundError:
            still_there = False
        if still_there:
            for number in range(KEPT - 1, 0, -1):
                older, newer = self._numbered(number), self._numbered(number - 1)
                if newer.exists():
                    newer.replace(older)
        self._open()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path


def _value(value: Any) -> str:
    text = str(value)
    return repr(text) if not text or any(character in text for character in " \n\"'=") else text


def library_handler(log: LogFile) -> logging.Handler:
    """A handler that sends what libraries log (paramiko, invoke) at warning and above to ``log``."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.write(record.levelname.lower(), f"{record.name}: {record.getMessage()}", {})

    return Handler(logging.WARNING)
