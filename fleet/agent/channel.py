"""The agent's end of the wire: lines in, lines out, beats, and noticing that the other end is gone.

Two threads: one reads standard input (so that beats are heard during a long request), one beats. All
writing is under one lock, one whole line at a time, on a private copy of standard output: file
descriptor 1 itself is pointed at standard error, so that a stray print cannot corrupt the wire.
"""

from __future__ import annotations

import os
import time

from fleet.agent.paths import write_all
from fleet.agent.protocol import BEAT_SECONDS, SILENCE_SECONDS, FramingError, LineBuffer, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from fleet.agent.protocol import Json

_WAITING_REQUESTS = 4  # lines of up to 16 MiB each; the reader waits while the queue is full
_READ = 64 * 1024
LAST_WORDS_S = 15.0  # how long a request may still run when nobody listens any more


class Closed(Exception):
    """The controller is gone, or said bye."""


class Channel:
    """Messages from file descriptor ``source`` and to ``sink``."""

    def __init__(
        self,
        source: int,
        sink: int,
        *,
        beat_s: float = BEAT_SECONDS,
        silence_s: float = SILENCE_SECONDS,
        last_words_s: float = LAST_WORDS_S,
    ) -> None:
        import queue
        import threading

        self._source = source
        self._sink = sink
        self._beat_s = beat_s
        self._silence_s = silence_s
        self._last_words_s = last_words_s
        self._lock = threading.Lock()
        self._messages: queue.Queue[Optional[Json]] = queue.Queue(_WAITING_REQUESTS)
        self._empty = queue.Empty
        self._gone = threading.Event()
        self._heard = time.monotonic()
        for work in (self._read, self._beat):
            threading.Thread(target=work, daemon=True).start()

    def send(self, message: Json) -> None:
        """One message out. Raises Closed where nobody reads."""
        self._write(encode(message))

    def receive(self, timeout_s: float) -> Optional[Json]:
        """The next message but beats; None when none came in time. Raises Closed at the end."""
        try:
            message = self._messages.get(timeout=timeout_s)
        except self._empty:
            message = None
            if not self._gone.is_set():
                return None
        if message is None:
            raise Closed
        return message

    def gone(self) -> bool:
        """Whether the controller is known to be gone."""
        return self._gone.is_set()

    def _write(self, line: bytes) -> None:
        with self._lock:
            try:
                write_all(self._sink, line)
            except OSError:
                self._gone.set()
                raise Closed from None

    def _read(self) -> None:
        """Thread: lines from the source into the queue, until end of file or silence."""
        buffer = LineBuffer()
        while not self._gone.is_set():
            data = self._next_bytes()
            if not data:
                break
            try:
                for line in buffer.feed(data):
                    self._take(line)
            except FramingError as error:
                self._refuse(str(error))
                break
        self._gone.set()
        self._put(None)
        # A request that outlasts its listener (a read of a dead network disk) must not keep us here.
        time.sleep(self._last_words_s)
        os._exit(0)

    def _next_bytes(self) -> bytes:
        """Bytes as they come; b"" at the end of file, and after too long a silence."""
        import select

        while True:
            left = self._heard + self._silence_s - time.monotonic()
            if left <= 0:
                return b""
            ready, _, _ = select.select([self._source], [], [], left)
            if ready:
                self._heard = time.monotonic()
                return os.read(self._source, _READ)

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        message = decode(line)
        if message["type"] != "beat":
            self._put(message)

    def _put(self, message: Optional[Json]) -> None:
        """Into the queue. While it is full we do not read, so what we do not hear is not silence."""
        self._messages.put(message)
        self._heard = time.monotonic()

    def _refuse(self, why: str) -> None:
        """What came is not the protocol: say so and close; there is no way to find the next message."""
        error = {"kind": "bad_request", "message": why}
        try:
            self._write(encode({"type": "response", "id": None, "error": error}))
        except Closed:
            return

    def _beat(self) -> None:
        """Thread: say that we live."""
        beat = encode({"type": "beat"})
        while not self._gone.wait(self._beat_s):
            try:
                self._write(beat)
            except Closed:
                return
