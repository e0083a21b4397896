"""HTTP/1.1 over the Docker Engine's unix socket: one request and its answer, within a deadline.

``http.client`` and ``urllib`` cost more start-up time than all the questions of a no-op run. Used by
:mod:`fleet.agent.engine`, whose errors are here.
"""

from __future__ import annotations

import json
import socket
import time

from fleet.agent import strict_json

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Callable, Dict, Iterable, Iterator, List, Optional, Tuple

    from fleet.agent.protocol import Json

BODY_LIMIT = 64 * 1024 * 1024


class EngineError(Exception):
    """The engine answered with an error. ``status`` is the HTTP status (0: none), ``message`` its words."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class EngineUnavailable(EngineError):
    """Nothing answers on the socket. ``reason``: absent, permission, refused, timeout or protocol."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class EngineCancelled(EngineError):
    """The caller's ``cancelled`` said so while a stream was being read."""


class Call:
    """One request."""

    __slots__ = ("body", "deadline_s", "headers", "method", "path", "query")

    def __init__(
        self,
        method: str,
        path: str,
        deadline_s: float,
        query: Optional[Dict[str, str]] = None,
        body: Optional[Json] = None,
        headers: Optional[Dict[str, str]] = None,
    ) -> None:
        self.method = method
        self.path = path
        self.deadline_s = deadline_s
        self.query = query or {}
        self.body = body
        self.headers = headers or {}

    def encoded(self) -> bytes:
        payload = b"" if self.body is None else json.dumps(self.body).encode("utf-8")
        query = "&".join(name + "=" + quote(value) for name, value in self.query.items())
        target = quote(self.path, "/:@") + ("?" + query if query else "")
        lines = ["%s %s HTTP/1.1" % (self.method, target), "Host: docker", "User-Agent: fleet"]
        lines += ["%s: %s" % pair for pair in self.headers.items()]
        if self.body is not None:
            lines.append("Content-Type: application/json")
        if self.method != "GET":
            lines.append("Content-Length: %d" % len(payload))
        return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + payload


class Connection:
    """One HTTP/1.1 connection: writes a request, reads an answer, within a deadline."""

    def __init__(self, path: str, connect_timeout_s: float) -> None:
        self._path = path
        self._buffer = b""
        self._deadline = time.monotonic() + connect_timeout_s
        self._cancelled: Callable[[], bool] = lambda: False
        self.whole = False  # the last answer ended where its framing said, so another may follow
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(connect_timeout_s)
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise _unavailable(path, error) from None

    def set_deadline(self, seconds: float, cancelled: Callable[[], bool]) -> None:
        self._deadline = time.monotonic() + seconds
        self._cancelled = cancelled

    def send(self, call: Call) -> None:
        self.whole = False
        try:
            self._socket.settimeout(max(0.1, self._deadline - time.monotonic()))
            self._socket.sendall(call.encoded())
        except BrokenPipeError:
            raise EngineUnavailable("the engine closed the connection on %s" % self._path, "closed") from None
        except OSError as error:
            raise _unavailable(self._path, error) from None

    def read_head(self) -> Tuple[int, Dict[str, str]]:
        """(status, headers with lower-case names). An interim 1xx answer is passed over."""
        while True:
            while b"\r\n\r\n" not in self._buffer:
                if len(self._buffer) > 256 * 1024:
                    raise EngineUnavailable("%s sent no end of headers" % self._path, "protocol")
                piece = self._receive()
                if not piece:
                    reason = "protocol" if self._buffer else "closed"
                    raise EngineUnavailable("the engine closed the connection on %s" % self._path, reason)
                self._buffer += piece
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            first, *rest = head.decode("iso-8859-1").split("\r\n")
            parts = first.split(" ", 2)
            if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
                raise EngineUnavailable("%s does not speak HTTP" % self._path, "protocol")
            status = int(parts[1])
            if status >= 200:
                pairs = (line.partition(":") for line in rest)
                return status, {name.strip().lower(): value.strip() for name, _, value in pairs}

    def read_all(self, headers: Dict[str, str]) -> bytes:
        pieces: List[bytes] = []
        size = 0
        for piece in self.body(headers):
            size += len(piece)
            if size > BODY_LIMIT:
                raise EngineUnavailable("an answer of more than %d bytes" % BODY_LIMIT, "protocol")
            pieces.append(piece)
        return b"".join(pieces)

    def body(self, headers: Dict[str, str]) -> Iterator[bytes]:
        """The body's pieces as they come: chunked, counted, or until the connection ends."""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            yield from self._chunks()
        elif headers.get("content-length", "").isdigit():
            left = int(headers["content-length"])
            while left:
                piece = self._take(left)
                left -= len(piece)
                yield piece
        elif "content-type" in headers and headers.get("connection", "").lower() == "close":
            yield from self._until_end()
            return
        self.whole = True

    def _until_end(self) -> Iterator[bytes]:
        piece = self._buffer or self._receive()
        self._buffer = b""
        while piece:
            yield piece
            piece = self._receive()

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size_text = self._line().split(b";")[0].strip()
            try:
                left = int(size_text, 16)
            except ValueError:
                raise EngineUnavailable("%s sent a broken chunk" % self._path, "protocol") from None
            if left == 0:
                while self._line().strip():
                    pass  # trailers
                return
            while left:
                piece = self._take(left)
                left -= len(piece)
                yield piece
            self._line()

    def _take(self, limit: int) -> bytes:
        """Between 1 and ``limit`` bytes."""
        piece = self._buffer or self._receive()
        if not piece:
            raise EngineUnavailable("the engine stopped in the middle of an answer", "protocol")
        self._buffer = piece[limit:]
        return piece[:limit]

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            piece = self._receive()
            if not piece or len(self._buffer) > 64 * 1024:
                raise EngineUnavailable("the engine stopped in the middle of an answer", "protocol")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _receive(self) -> bytes:
        """Bytes from the socket; b"" at its end. Looks at ``cancelled`` about once a second."""
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise EngineUnavailable("no answer on %s in time" % self._path, "timeout")
            if self._cancelled():
                raise EngineCancelled("cancelled")
            self._socket.settimeout(min(left, 1.0))
            try:
                return self._socket.recv(256 * 1024)
            except socket.timeout:
                continue
            except ConnectionResetError:
                return b""
            except OSError as error:
                raise _unavailable(self._path, error) from None

    def close(self) -> None:
        self._socket.close()


def _unavailable(path: str, error: OSError) -> EngineUnavailable:
    if isinstance(error, FileNotFoundError):
        return EngineUnavailable("there is no Docker socket at %s" % path, "absent")
    if isinstance(error, PermissionError):
        return EngineUnavailable("no permission to use %s" % path, "permission")
    if isinstance(error, ConnectionRefusedError):
        return EngineUnavailable("nothing listens on %s: the engine is not running" % path, "refused")
    if isinstance(error, socket.timeout):
        return EngineUnavailable("no answer on %s in time" % path, "timeout")
    return EngineUnavailable("%s: %s" % (path, error.strerror or error), "refused")


def error_of(status: int, raw: bytes) -> EngineError:
    """The error of an answer whose status is no success."""
    text = raw.decode("utf-8", "replace").strip()
    try:
        message = strict_json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        message = text or "HTTP status %d" % status
    return EngineError(str(message), status)


def quote(text: str, safe: str = "") -> str:
    """Percent-encode for a URL; ``urllib.parse`` is not worth its import time here."""
    keep = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~" + safe)
    return "".join(chr(b) if chr(b) in keep else "%%%02X" % b for b in text.encode("utf-8"))


def demultiplex(raw: bytes) -> bytes:
    """Container output without the 8-byte frame headers that the engine adds when there is no terminal."""
    out: List[bytes] = []
    position = 0
    while position + 8 <= len(raw):
        if raw[position] > 2 or raw[position + 1 : position + 4] != b"\0\0\0":
            return raw if not out else b"".join(out)
        size = int.from_bytes(raw[position + 4 : position + 8], "big")
        out.append(raw[position + 8 : position + 8 + size])
        position += 8 + size
    return b"".join(out) if out else raw


def frames(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """As :func:`demultiplex`, of an output that is still being written. Without headers (a terminal): as it is."""
    pending, plain = b"", False
    for piece in pieces:
        pending += piece
        while pending and not plain:
            if len(pending) >= 4 and (pending[0] > 2 or pending[1:4] != b"\0\0\0"):
                plain = True
                break
            if len(pending) < 8:
                break
            size = int.from_bytes(pending[4:8], "big")
            if len(pending) < 8 + size:
                break
            yield pending[8 : 8 + size]
            pending = pending[8 + size :]
        if plain:
            yield pending
            pending = b""
