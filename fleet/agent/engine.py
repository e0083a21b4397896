"""A client of the Docker Engine API over its unix socket, small and quick to import.

Used by the ``image``, ``container`` and ``registry_login`` resources, by :mod:`fleet.agent.facts.engine` and by the
``registry_digest`` query. It speaks HTTP itself, in :mod:`.engine_http`; image references are in
:mod:`.image_reference`.
"""

from __future__ import annotations

from fleet.agent import strict_json
from fleet.agent.engine_http import (
    Call,
    Connection,
    EngineCancelled,
    EngineError,
    EngineUnavailable,
    demultiplex,
    error_of,
    frames,
)
from fleet.agent.image_reference import registry_auth, split_version

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Callable, Dict, Iterator, List, Optional

    from fleet.agent.protocol import Json

__all__ = ["SOCKET", "Engine", "EngineCancelled", "EngineError", "EngineUnavailable"]

SOCKET = "/var/run/docker.sock"
READ_TIMEOUT_S = 10.0


class Engine:
    """One engine. Reads share a connection; everything else gets its own.

    All methods raise :class:`EngineUnavailable` when the socket does not answer in time and
    :class:`EngineError` for an error answer, except where they say that 404 gives None.
    """

    def __init__(self, socket_path: str = SOCKET, timeout_s: float = READ_TIMEOUT_S) -> None:
        self.socket_path = socket_path
        self.timeout_s = timeout_s
        self._kept: Optional[Connection] = None
        self._version: Optional[Json] = None
        self._headers: Dict[str, str] = {}

    # --- about the engine

    def version(self) -> Json:
        """GET /version. Also fixes the API version that all other requests are made in: the daemon's own,
        since an old client version is refused by new daemons and a new one by old daemons."""
        answer = self._ask(Call("GET", "/version", self.timeout_s))
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
            self._raw(Call("GET", "/_ping", self.timeout_s))
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
        raw = self._raw(Call("GET", self._versioned("/containers/%s/logs" % name), self.timeout_s, query))
        return demultiplex(raw).decode("utf-8", "replace")

    def follow(
        self, name: str, deadline_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[bytes]:
        """What a container prints, both outputs as they come, until it ends. EngineUnavailable ("timeout") past
        the deadline."""
        query = {"stdout": "1", "stderr": "1", "follow": "1", "tail": "all"}
        call = Call("GET", self._versioned("/containers/%s/logs" % name), deadline_s, query)
        connection = Connection(self.socket_path, self.timeout_s)
        try:
            connection.set_deadline(deadline_s, cancelled)
            connection.send(call)
            status, headers = connection.read_head()
            if status >= 300:
                raise error_of(status, connection.read_all(headers))
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
            return self._ask(Call(method, self._versioned(path), limit, query, body, headers))
        except EngineError as error:
            if not (error.status == 400 and "client version" in error.message):
                raise
        self._version = None  # the daemon was replaced since we asked
        return self._ask(Call(method, self._versioned(path), limit, query, body, headers))

    def stream(
        self,
        path: str,
        query: Dict[str, str],
        headers: Dict[str, str],
        deadline_s: float,
        cancelled: Callable[[], bool],
    ) -> Iterator[Json]:
        """POST, and yield each JSON object of the answer as it comes."""
        connection = Connection(self.socket_path, self.timeout_s)
        try:
            connection.set_deadline(deadline_s, cancelled)
            connection.send(Call("POST", self._versioned(path), deadline_s, query, None, headers))
            status, answer_headers = connection.read_head()
            if status >= 300:
                raise error_of(status, connection.read_all(answer_headers))
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

    def _ask(self, call: Call) -> Any:
        raw = self._raw(call)
        return _json(raw) if raw.strip() else None

    def _raw(self, call: Call) -> bytes:
        kept, self._kept = self._kept, None
        if kept is not None and call.method == "GET":
            try:
                return self._exchange(kept, call)
            except EngineUnavailable as error:
                if error.reason != "closed":
                    raise  # else the daemon closed it meanwhile: ask again on a new one
        elif kept is not None:
            kept.close()
        return self._exchange(Connection(self.socket_path, self.timeout_s), call)

    def _exchange(self, connection: Connection, call: Call) -> bytes:
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
            raise error_of(status, raw)
        return raw


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
