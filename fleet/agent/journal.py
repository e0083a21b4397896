"""The journal of one run on one host: what was about to be done, and what came of it.

A file of lines, each the canonical JSON of one record with its sequence number and CRC-32, followed
by the zeros of space allocated ahead. Intents, results and edges of segments are on the disk before
the next thing happens. A reader takes the longest prefix of whole, correct, consecutive records; a
writer cuts the rest off. Readers: :class:`Tail`, :func:`read_journal`; what the records mean for a
run that goes on: :mod:`fleet.agent.progress`.
"""

from __future__ import annotations

import errno
import os
import zlib

from fleet.agent.paths import make_private_folder, sync_folder
from fleet.agent.protocol import canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from fleet.agent.protocol import Json

CHUNK = 1024 * 1024  # allocated at a time
RESERVE = 256 * 1024  # left free after an intent, so that its result can be written on a full disk
DURABLE = frozenset(["begin", "intent", "result", "notified", "handled", "reboot", "end"])
_READ = 256 * 1024


def encode_record(record: Json) -> bytes:
    """The line of a record: its CRC-32 (over the canonical JSON without it) is added."""
    checksum = zlib.crc32(canonical(record).encode("utf-8"))
    return canonical(dict(record, crc=checksum)).encode("utf-8") + b"\n"


def decode_record(line: bytes) -> Optional[Json]:
    """The record of a line without its newline; None unless it is exactly what a writer wrote."""
    from fleet.agent import strict_json

    try:
        record = strict_json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(record, dict) or not isinstance(record.get("seq"), int):
        return None
    bare = {key: value for key, value in record.items() if key != "crc"}
    return record if _same(bare, line) else None


def _same(bare: Json, line: bytes) -> bool:
    try:
        return encode_record(bare) == line + b"\n"
    except ValueError:  # NaN, which json reads but nobody writes
        return False


class Tail:
    """Reads records as they come to be written, from the first one after ``after_seq``.

    A line that is incomplete or wrong is not passed: it is looked at again at the next call, when
    a writer may have completed it, or cut it off and written something else.
    """

    def __init__(self, path: str, after_seq: int = 0) -> None:
        self.path = path
        self.after_seq = after_seq
        self.last_seq = 0
        self.last_kind: Optional[str] = None
        self.offset = 0
        self._descriptor: Optional[int] = None

    def read(self, limit: int = 64) -> list[Json]:
        """Up to ``limit`` new records, [] when there are none now (or no journal yet)."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return []
        records: list[Json] = []
        while len(records) < limit:
            found, more = self._step(limit - len(records))
            records.extend(found)
            if not more:
                break
        return records

    def _step(self, limit: int) -> tuple[list[Json], bool]:
        """Records of one piece of the file, and whether there may be more right now."""
        data = self._piece()
        found: list[Json] = []
        start = 0
        while len(found) < limit:
            end = data.find(b"\n", start)
            record = decode_record(data[start:end]) if end >= 0 else None
            if record is None or record["seq"] != self.last_seq + 1:
                return found, start > 0
            self.last_seq += 1
            self.last_kind = record.get("kind")
            self.offset += end + 1 - start
            start = end + 1
            if self.last_seq > self.after_seq:
                found.append(record)
        return found, False

    def _piece(self) -> bytes:
        """The bytes from the offset up to the first zero: at least one line where one is complete."""
        assert self._descriptor is not None
        size = _READ
        while True:
            raw = os.pread(self._descriptor, size, self.offset)
            data, zero, _ = raw.partition(b"\0")
            if zero or len(raw) < size or b"\n" in data:
                return data
            size *= 4

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_journal(path: str, after_seq: int = 0) -> list[Json]:
    """Every record that can be trusted, after ``after_seq``; [] where there is no journal."""
    tail = Tail(path, after_seq)
    try:
        records: list[Json] = []
        while True:
            piece = tail.read(1024)
            records.extend(piece)
            if not piece:
                return records
    finally:
        tail.close()


class Journal:
    """The writer. ``clean`` sees every record before it is written (the worker scrubs secrets there).

    Thread-safe. Raises OSError (ENOSPC …) where a record cannot be written; nothing of it remains.
    """

    def __init__(self, path: str, *, clock: Callable[[], float], clean: Callable[[Any], Any]) -> None:
        import threading

        make_private_folder(os.path.dirname(path))
        self._lock = threading.Lock()
        self._writer: Optional[int] = None
        self._identity = threading.get_ident
        self._clock = clock
        self._clean = clean
        tail = Tail(path)
        while tail.read(1024):
            pass
        tail.close()
        self.last_seq = tail.last_seq
        self._position = tail.offset
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._descriptor, self._position)
        self._allocated = self._position
        sync_folder(os.path.dirname(path))

    def append(self, kind: str, **fields: Any) -> Json:
        """Write one record; on return, the durable kinds are on the disk."""
        body = self._clean(fields)
        with self._lock:
            self._writer = self._identity()
            try:
                record: Json = dict(body, kind=kind, seq=self.last_seq + 1, at=round(self._clock(), 3))
                self._write(encode_record(record), kind)
            finally:
                self._writer = None
            return record

    def written_by_me(self) -> bool:
        """Whether the calling thread is in the middle of :meth:`append` (asked by signal handlers).

        An exception raised there could leave a record that readers saw and the next one replaces.
        """
        return self._writer == self._identity()

    def _write(self, line: bytes, kind: str) -> None:
        self._allocate(len(line) + (RESERVE if kind == "intent" else 0))
        written = 0
        while written < len(line):
            written += os.pwrite(self._descriptor, line[written:], self._position + written)
        if kind in DURABLE:
            os.fdatasync(self._descriptor)
        self._position += len(line)
        self.last_seq += 1

    def _allocate(self, needed: int) -> None:
        """Have ``needed`` bytes of disk after the position; zeros until they are written."""
        missing = self._position + needed - self._allocated
        if missing <= 0:
            return
        length = -(-missing // CHUNK) * CHUNK
        try:
            os.posix_fallocate(self._descriptor, self._allocated, length)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            _write_zeros(self._descriptor, self._allocated, length)
        os.fsync(self._descriptor)
        self._allocated += length

    def close(self) -> None:
        """Give back the space not used and close."""
        with self._lock:
            if self._descriptor >= 0:
                os.ftruncate(self._descriptor, self._position)
                os.close(self._descriptor)
                self._descriptor = -1


def _write_zeros(descriptor: int, offset: int, length: int) -> None:
    zeros = bytes(64 * 1024)
    for start in range(offset, offset + length, len(zeros)):
        os.pwrite(descriptor, zeros, start)
