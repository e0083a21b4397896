"""Where the kernel log is read: /dev/kmsg, else the journal, else dmesg, whichever lets us.

Logs are read as they come and never held: a buffer of 64 MB costs no memory. The wordings are known to
:mod:`.xid_lines`, the framings to :mod:`.log_stamps`.
"""

from __future__ import annotations

import os
import stat

from fleet.agent.facts import reason_of
from fleet.agent.facts.log_stamps import boot_time, kmsg_stamp, rfc3339, seconds_since_boot, written_at
from fleet.agent.facts.xid_lines import Collector

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Callable, List, Optional, Union

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KMSG = "/dev/kmsg"

DEADLINE_S = 15.0
JOURNAL_LINES = 50_000
FILE_LIMIT = 64 * 1024 * 1024
RECORDS_LIMIT = 1_000_000  # a log that is written faster than it is read has no end
_RECORD = 16 * 1024
_LONGEST_LINE = 8 * 1024


class Log:
    """One log while it is read: bytes in, oldest first; the part of the facts out."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = 0
        self.overwritten: Optional[bool] = None
        self._boot_unix = boot_time()
        self._collector = Collector(self._boot_unix)
        self._begins_at: Optional[float] = None
        self._left = b""

    def line(self, line: bytes) -> None:
        """Take one line. All but the first and the driver's cost two searches and nothing else."""
        self.lines += 1
        if self.lines == 1:
            self._first(line.decode("utf-8", "replace"))
        if b"NVRM" in line or b"SXid" in line:
            # The kernel writes a line break within a message of /dev/kmsg as \x0a.
            for part in line.decode("utf-8", "replace").replace("\\x0a", "\n").splitlines():
                self._collector.add(part)

    def _first(self, line: str) -> None:
        self._begins_at = written_at(line, self._boot_unix)
        if self.source == "dmesg":
            # The kernel's first message has the stamp 0.000000.
            seconds = seconds_since_boot(line)
            self.overwritten = seconds > 0 if seconds is not None else None

    def piece(self, text: str) -> None:
        """Take what a command has printed, which ends anywhere."""
        lines = (self._left + text.encode("utf-8", "replace")).split(b"\n")
        self._left = lines.pop()[-_LONGEST_LINE:]
        for line in lines:
            self.line(line)

    def part(self) -> Json:
        """``kernel_log``; what could not be told is null with a reason."""
        if self._left:
            self.line(self._left)
            self._left = b""
        part: Json = {
            "source": self.source,
            "begins_at": rfc3339(self._begins_at),
            "overwritten": self.overwritten,
        }
        for name in ("begins_at", "overwritten"):
            if part[name] is None:
                part[name + "_reason"] = "not_supported"
        part.update(self._collector.document())
        return part


def read(host: Host) -> Union[Json, str]:
    """The ``kernel_log`` part from the first log that may be read, or the reason why there is none."""
    reasons: List[str] = []
    for source in (_kmsg, _journal, _dmesg):
        found = source(host)
        if isinstance(found, Log):
            return found.part()
        reasons.append(found)
    return next((one for one in ("permission", "error") if one in reasons), "not_supported")


def _kmsg(host: Host) -> Union[Log, str]:
    """The log of /dev/kmsg, or the reason why not. It may be a regular file, where a log was put there."""
    log = Log("kmsg")
    try:
        fd = os.open(host.path(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            kind = os.fstat(fd)
            if stat.S_ISREG(kind.st_mode):
                _read_file(log, fd, kind.st_size)
            elif stat.S_ISCHR(kind.st_mode):
                read_records(log, lambda: os.read(fd, _RECORD))
            else:
                return "not_supported"
        finally:
            os.close(fd)
    except OSError as error:
        return reason_of(error)
    return log


def read_records(log: Log, read: Callable[[], bytes]) -> None:
    """Feed the records that ``read`` gives, one a call, until it would wait or the log ends.

    The kernel answers EPIPE when the record that was due is gone, and goes on with the oldest there is.
    """
    first: Optional[int] = None
    lost = False
    for _ in range(RECORDS_LIMIT):
        try:
            record = read()
        except BlockingIOError:
            break
        except BrokenPipeError:
            lost = True
            continue
        if not record:
            break
        if first is None:
            stamp = kmsg_stamp(record[:80].decode("ascii", "replace"))
            first = stamp[0] if stamp is not None else None
        # Behind the first line stand the fields of the device, indented.
        log.line(record.split(b"\n", 1)[0])
    log.overwritten = True if lost else first > 0 if first is not None else None


def _read_file(log: Log, fd: int, size: int) -> None:
    """Feed a file, at most its last :data:`FILE_LIMIT` bytes."""
    with open(fd, "rb", closefd=False) as stream:
        log.overwritten = size > FILE_LIMIT
        if log.overwritten:
            stream.seek(size - FILE_LIMIT)
            stream.readline(_LONGEST_LINE)  # the rest of a line
        left = FILE_LIMIT
        while left > 0:
            line = stream.readline(_LONGEST_LINE)
            if not line:
                return
            left -= len(line)
            log.line(line)


def _journal(host: Host) -> Union[Log, str]:
    argv = ["journalctl", "-k", "-b", "-o", "short-unix", "--no-pager", "-q", "-n", str(JOURNAL_LINES)]
    found = _command(host, Log("journal"), argv)
    if isinstance(found, Log) and found.lines >= JOURNAL_LINES:
        found.overwritten = True
    return found


def _dmesg(host: Host) -> Union[Log, str]:
    return _command(host, Log("dmesg"), ["dmesg"])


def _command(host: Host, log: Log, argv: List[str]) -> Union[Log, str]:
    """The log that a command prints, or the reason why not: one that prints nothing was not let read it."""
    from fleet.agent.resources.base import StepFailed

    if host.which(argv[0]) is None:
        return "not_supported"

    def take(text: str, stream: str) -> None:
        if stream == "stdout":
            log.piece(text)

    try:
        result = host.run(argv, deadline_s=DEADLINE_S, on_output=take)
    except StepFailed:
        return "error"
    if result.timed_out:
        return "error"  # the newest lines are the last ones
    if result.ok and log.lines:
        return log
    complaint = result.stderr.lower()
    return "permission" if "permission" in complaint or "not permitted" in complaint else "not_supported"
