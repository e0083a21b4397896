"""A client of the Docker Engine API over its unix socket, small and quick to import.

It speaks HTTP/1.1 itself: ``http.client`` and ``urllib`` cost more start-up time than all the questions
of a no-op run. Used by the ``image``, ``container`` and ``registry_login`` resources, by
:mod:`fleet.agent.facts.engine` and by the ``registry_digest`` query. Image references and registry
credentials in the engine's own formats are here too.
"""

from __future__ import annotations

import base64
import json
import socket
import time

from fleet.agent import strict_json

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

    from fleet.agent.protocol import Json

SOCKET = "/var/run/docker.sock"
READ_TIMEOUT_S = 10.0
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


class Engine:
    """One engine. Reads share a connection; everything else gets its own.

    All methods raise :class:`EngineUnavailable` when the socket does not answer in time and
    :class:`EngineError` for an error answer, except where they say that 404 gives None.
    """

    def __init__(self, socket_path: str = SOCKET, timeout_s: float = READ_TIMEOUT_S) -> None:
        self.socket_path = socket_path
        self.timeout_s = timeout_s
        self._kept: Optional[_Connection] = None
        self._version: Optional[Json] = None
        self._headers: Dict[str, str] = {}

    # --- about the engine

    def version(self) -> Json:
        """GET /version. Also fixes the API version that all other requests are made in: the daemon's own,
        since an old client version is refused by new daemons and a new one by old daemons."""
        answer = self._ask(_Call("GET", "/version", self.timeout_s))
        if not isinstance(answer, dict) or not isinstance(answer.get("ApiVersion"), str):
            raise EngineUnavailable("%s does not answer as a Docker Engine" % self.socket_path, "protocol")
        self._version = answer
        return answer

    def api_version(self) -> str:
        """The daemon's API version, for example "1.41"."""
        return str((self._version or self.short_version())["ApiVersion"])

    def short_version(self) -> Json:
        """What /_ping says of the version: ``ApiVersion``, or all of /version where it does not say.

        Docker answers it at once; for /version it starts programs, which costs the host 6 ms of CPU.
        Podman says who it is in /version alone.
        """
        try:
            self._raw(_Call("GET", "/_ping", self.timeout_s))
        except EngineUnavailable:
            raise
        except EngineError:
            return self.version()
        spoken = self._headers.get("api-version")
        if not spoken or "libpod-api-version" in self._headers:
            return self.version()
        self._version = {"ApiVersion": spoken}
        return self._version

    def info(self) -> Json:
        """GET /info. It also fails while the daemon is still starting, so it tells a working engine."""
        return _object(self.get("/info"))

    # --- images

    def image(self, reference: str) -> Optional[Json]:
        """What the engine knows of a local image; None when it is not there."""
        return self._object_or_none("/images/%s/json" % reference)

    def images(self) -> List[Json]:
        """Every local image that has a name or digest."""
        return _objects(self.get("/images/json"))

    def has_image(self, reference: str) -> bool:
        return self.image(reference) is not None

    def pull(
        self,
        reference: str,
        auth: Optional[Json],
        *,
        deadline_s: float,
        on_event: Callable[[Json], None],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Pull ``name:tag`` or ``name@digest``; ``on_event`` gets each progress object.

        ``auth`` is {"username", "password"} or None; it travels in a header, nothing is stored.
        """
        name, separator, version = split_version(reference)
        query = {"fromImage": name + "@" + version} if separator == "@" else {"fromImage": name}
        if separator != "@":
            query["tag"] = version or "latest"
        headers = {} if auth is None else {"X-Registry-Auth": registry_auth(reference, auth)}
        for event in self.stream("/images/create", query, headers, deadline_s, cancelled):
            if isinstance(event.get("error"), str):
                raise EngineError(event["error"])
            on_event(event)

    def tag(self, source: str, reference: str) -> None:
        name, _, version = split_version(reference)
        self.post("/images/%s/tag" % source, {"repo": name, "tag": version or "latest"})

    def remove_image(self, reference: str) -> None:
        self.request("DELETE", "/images/%s" % reference)

    def distribution(self, reference: str, auth: Optional[Json], deadline_s: float = 30.0) -> Json:
        """What the *registry* has for ``reference``: its answer's ``Descriptor.digest``. Uses the network."""
        headers = {} if auth is None else {"X-Registry-Auth": registry_auth(reference, auth)}
        path = "/distribution/%s/json" % reference
        return _object(self.request("GET", path, headers=headers, deadline_s=deadline_s))

    def authenticate(self, registry: str, auth: Json, deadline_s: float = 30.0) -> None:
        """Ask the registry, through the engine, whether the credentials are right."""
        body = {"username": auth["username"], "password": auth["password"], "serveraddress": registry}
        self.request("POST", "/auth", body=body, deadline_s=deadline_s)

    # --- containers

    def containers(self, *, all: bool = True) -> List[Json]:
        return _objects(self.get("/containers/json", {"all": "1" if all else "0"}))

    def container(self, name: str) -> Optional[Json]:
        return self._object_or_none("/containers/%s/json" % name)

    def create_container(self, name: str, configuration: Json) -> str:
        """The new container's id."""
        answer = self.request("POST", "/containers/create", {"name": name}, configuration, deadline_s=60.0)
        return str(_object(answer)["Id"])

    def start_container(self, name: str) -> None:
        self.post("/containers/%s/start" % name, deadline_s=120.0)

    def wait_container(
        self, name: str, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> int:
        """The exit code of a container, once it has ended. EngineUnavailable ("timeout") past the deadline."""
        for answer in self.stream("/containers/%s/wait" % name, {}, {}, deadline_s, cancelled):
            return int(answer.get("StatusCode") or 0)
        raise EngineUnavailable("the engine did not say how %s ended" % name, "protocol")

    def stop_container(self, name: str, grace_s: int = 10) -> None:
        self.post("/containers/%s/stop" % name, {"t": str(grace_s)}, deadline_s=grace_s + 60.0)

    def remove_container(self, name: str, *, force: bool = False) -> None:
        query = {"force": "1"} if force else {}
        self.request("DELETE", "/containers/%s" % name, query, deadline_s=60.0)

    def logs(self, name: str, tail: Optional[int] = 20) -> str:
        """The last lines of both outputs (``None``: all), in the order they were written."""
        query = {"stdout": "1", "stderr": "1", "tail": "all" if tail is None else str(tail)}
        raw = self._raw(_Call("GET", self._versioned("/containers/%s/logs" % name), self.timeout_s, query))
        return demultiplex(raw).decode("utf-8", "replace")

    def follow(
        self, name: str, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[bytes]:
        """What a container prints, both outputs as they come, until it ends. EngineUnavailable ("timeout") past
        the deadline."""
        query = {"stdout": "1", "stderr": "1", "follow": "1", "tail": "all"}
        call = _Call("GET", self._versioned("/containers/%s/logs" % name), deadline_s, query)
        connection = _Connection(self.socket_path, self.timeout_s)
        try:
            connection.set_deadline(deadline_s, cancelled)
            connection.send(call)
            status, headers = connection.read_head()
            if status >= 300:
                raise _error(status, connection.read_all(headers))
            yield from frames(connection.body(headers))
        finally:
            connection.close()

    def networks(self) -> List[Json]:
        return _objects(self.get("/networks"))

    # --- the transport

    def get(self, path: str, query: Optional[Dict[str, str]] = None) -> Any:
        return self.request("GET", path, query)

    def post(
        self, path: str, query: Optional[Dict[str, str]] = None, deadline_s: Optional[float] = None
    ) -> Any:
        return self.request("POST", path, query, deadline_s=deadline_s)

    def request(
        self,
        method: str,
        path: str,
        query: Optional[Dict[str, str]] = None,
        body: Optional[Json] = None,
        *,
        headers: Optional[Dict[str, str]] = None,
        deadline_s: Optional[float] = None,
    ) -> Any:
        """One request in the daemon's own API version; the parsed JSON answer, None for an empty one."""
        limit = self.timeout_s if deadline_s is None else deadline_s
        try:
            return self._ask(_Call(method, self._versioned(path), limit, query, body, headers))
        except EngineError as error:
            if not (error.status == 400 and "client version" in error.message):
                raise
        self._version = None  # the daemon was replaced since we asked
        return self._ask(_Call(method, self._versioned(path), limit, query, body, headers))

    def stream(
        self,
        path: str,
        query: Dict[str, str],
        headers: Dict[str, str],
        deadline_s: float,
        cancelled: Callable[[], bool],
    ) -> Iterator[Json]:
        """POST, and yield each JSON object of the answer as it comes."""
        connection = _Connection(self.socket_path, self.timeout_s)
        try:
            connection.set_deadline(deadline_s, cancelled)
            connection.send(_Call("POST", self._versioned(path), deadline_s, query, None, headers))
            status, answer_headers = connection.read_head()
            if status >= 300:
                raise _error(status, connection.read_all(answer_headers))
            pending = b""
            for piece in connection.body(answer_headers):
                *lines, pending = (pending + piece).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _object(_json(line))
            if pending.strip():
                yield _object(_json(pending))
        finally:
            connection.close()

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _versioned(self, path: str) -> str:
        return "/v%s%s" % (self.api_version(), path)

    def _object_or_none(self, path: str) -> Optional[Json]:
        try:
            return _object(self.get(path))
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    def _ask(self, call: _Call) -> Any:
        raw = self._raw(call)
        return _json(raw) if raw.strip() else None

    def _raw(self, call: _Call) -> bytes:
        kept, self._kept = self._kept, None
        if kept is not None and call.method == "GET":
            try:
                return self._exchange(kept, call)
            except EngineUnavailable as error:
                if error.reason != "closed":
                    raise  # else the daemon closed it meanwhile: ask again on a new one
        elif kept is not None:
            kept.close()
        return self._exchange(_Connection(self.socket_path, self.timeout_s), call)

    def _exchange(self, connection: _Connection, call: _Call) -> bytes:
        connection.set_deadline(call.deadline_s, lambda: False)
        try:
            connection.send(call)
            status, headers = connection.read_head()
            raw = connection.read_all(headers)
            self._headers = headers
        except BaseException:
            connection.close()
            raise
        reusable = (
            call.method == "GET" and connection.whole and headers.get("connection", "").lower() != "close"
        )
        if reusable:
            self._kept = connection
        else:
            connection.close()
        if status >= 300:
            raise _error(status, raw)
        return raw


class _Call:
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


class _Connection:
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

    def send(self, call: _Call) -> None:
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


def _error(status: int, raw: bytes) -> EngineError:
    text = raw.decode("utf-8", "replace").strip()
    try:
        message = strict_json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        message = text or "HTTP status %d" % status
    return EngineError(str(message), status)


def _json(raw: bytes) -> Any:
    try:
        return strict_json.loads(raw.decode("utf-8", "replace"))
    except ValueError as error:
        raise EngineUnavailable(
            "the engine sent something that is not JSON: %s" % error, "protocol"
        ) from None


def _object(value: Any) -> Json:
    if not isinstance(value, dict):
        raise EngineUnavailable(
            "the engine sent %s where an object was due" % type(value).__name__, "protocol"
        )
    return value


def _objects(value: Any) -> List[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


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


# --- image references


def split_version(reference: str) -> Tuple[str, str, str]:
    """("registry/name", "@" or ":" or "", digest or tag or ""). A tag before a digest is dropped."""
    name, at, digest = reference.partition("@")
    head, colon, tag = name.rpartition(":")
    has_tag = bool(colon) and "/" not in tag
    if at:
        return (head if has_tag else name), "@", digest
    return (head, ":", tag) if has_tag else (name, "", "")


def registry_of(reference: str) -> str:
    """The registry a reference is pulled from; "docker.io" when it names none."""
    first, slash, _ = reference.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first
    return "docker.io"


def canonical_name(reference: str) -> str:
    """The repository in full, for comparing: ``torch`` -> ``docker.io/library/torch``."""
    name = split_version(reference)[0]
    if registry_of(name) != "docker.io":
        return name
    name = name[len("docker.io/") :] if name.startswith("docker.io/") else name
    return "docker.io/" + (name if "/" in name else "library/" + name)


def registry_auth(reference: str, auth: Json) -> str:
    """The X-Registry-Auth header: base64url of JSON."""
    registry = registry_of(reference)
    server = "https://index.docker.io/v1/" if registry == "docker.io" else registry
    body = {"username": auth["username"], "password": auth["password"], "serveraddress": server}
    return base64.urlsafe_b64encode(json.dumps(body).encode("utf-8")).decode("ascii")
