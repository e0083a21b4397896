"""A small Docker Engine on a unix socket: enough of the API for the agent, and ways to misbehave."""

from __future__ import annotations

import base64
import json
import socketserver
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REGISTRY = "registry.example.net:5000"


class FakeEngine:
    """State that tests set and look at. ``requests`` holds (method, path without version, query)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.api_version = "1.41"
        self.ping_headers: dict[str, str] | None = {}  # besides Api-Version; None: there is no /_ping
        self.images: dict[str, dict[str, Any]] = {}  # id -> {"Id", "RepoDigests", "RepoTags"}
        self.registry: dict[str, str] = {}  # name:tag -> digest
        self.containers: dict[str, dict[str, Any]] = {}
        self.credentials: tuple[str, str] | None = None
        self.pull_error: str | None = None
        self.dies_at_once = False
        self.created: list[tuple[str, dict[str, Any]]] = []  # (name, body) of every container made
        self.start_error: str | None = None
        self.info: dict[str, Any] = {}
        self.ends_with: Callable[[dict[str, Any]], str] | None = None  # what a container prints, by its body
        self.released = threading.Event()  # a wait for a container is answered once this is set
        self.released.set()
        self.gone = threading.Event()  # a container was removed
        self.no_limits = False  # it may not raise a container's limits
        self.hangs = False  # a container's output goes on until it is removed
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.prefixes: set[str] = set()
        self.connections = 0
        self.close_after_answer = False
        self._server = _Server(path, _Handler)
        self._server.engine = self
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def image(self, reference: str) -> dict[str, Any] | None:
        for image in self.images.values():
            if (
                reference in image["RepoTags"]
                or reference in image["RepoDigests"]
                or reference == image["Id"]
            ):
                return image
        return None


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    engine: FakeEngine

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle, as a cancelled pull does, is not worth a traceback."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.engine: FakeEngine = self.server.engine  # type: ignore[attr-defined]
        self.engine.connections += 1

    def log_message(self, format: str, *args: Any) -> None:
        return

    def address_string(self) -> str:
        return "unix"

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        version, _, rest = path[1:].partition("/")
        if version.startswith("v1."):
            self.engine.prefixes.add(version)
            path = "/" + rest
            if version[1:] != self.engine.api_version:
                return self.answer(400, {"message": f"client version {version[1:]} is too new"})
        self.engine.requests.append((self.command, path, query))
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        return self.route(path, query, body)

    do_GET = do_POST = do_DELETE = handle_any

    def answer(self, status: int, document: Any = None, headers: Mapping[str, str] | None = None) -> None:
        raw = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
        self.close_connection = self.close_connection or self.engine.close_after_answer

    def chunks(self, pieces: list[bytes], content_type: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x;x=y\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\nTrailer: x\r\n\r\n")

    def endless(self, name: str, found: dict[str, Any]) -> None:
        """What it prints first, in two pieces; then nothing until the container is removed."""
        assert self.engine.ends_with is not None
        text = self.engine.ends_with(found["Config"]).encode()
        frame = b"\1\0\0\0" + len(text).to_bytes(4, "big") + text
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (frame[:5], frame[5:]):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.engine.gone.wait(30)
        self.close_connection = True

    def route(self, path: str, query: dict[str, str], body: dict[str, Any]) -> None:
        engine = self.engine
        if path == "/_ping" and engine.ping_headers is not None:
            return self.answer(200, headers={"Api-Version": engine.api_version, **engine.ping_headers})
        if path == "/version":
            return self.answer(200, {"Version": "20.10.24", "ApiVersion": engine.api_version})
        if path == "/info":
            return self.answer(
                200,
                {
                    "ServerVersion": "20.10.24",
                    "DockerRootDir": "/var/lib/docker",
                    "Driver": "overlay2",
                    **engine.info,
                },
            )
        if path == "/auth":
            good = (body["username"], body["password"]) == engine.credentials
            return self.answer(200 if good else 401, {"Status": "x"} if good else {"message": "unauthorized"})
        if path.startswith("/distribution/"):
            digest = engine.registry.get(path[len("/distribution/") : -len("/json")])
            if digest is None:
                return self.answer(404, {"message": "manifest unknown"})
            return self.answer(200, {"Descriptor": {"digest": digest}})
        if path == "/images/json":
            return self.answer(200, list(engine.images.values()))
        if path == "/networks":
            return self.answer(200, [{"Name": "bridge", "IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}]}}])
        if path == "/containers/json":
            listed = [
                {
                    "Id": name,
                    "Names": ["/" + name],
                    "Image": "x:1",
                    "Labels": found.get("Config", {}).get("Labels", {}),
                    "State": "running" if found["State"].get("Running") else "exited",
                }
                for name, found in engine.containers.items()
            ]
            return self.answer(200, listed)
        if path == "/images/create":
            return self.pull(query)
        if path.startswith("/images/"):
            return self.images(path[len("/images/") :], query)
        return self.containers(path[len("/containers/") :], query, body)

    def authorised(self) -> bool:
        if self.engine.credentials is None:
            return True
        header = self.headers.get("X-Registry-Auth")
        if header is None:
            return False
        given = json.loads(base64.urlsafe_b64decode(header))
        return (given["username"], given["password"]) == self.engine.credentials

    def pull(self, query: dict[str, str]) -> None:
        engine = self.engine
        name, at, digest = query["fromImage"].partition("@")
        if not at:
            digest = engine.registry.get(f"{name}:{query['tag']}", "")
        if engine.pull_error is not None:
            return self.chunks([json.dumps({"status": "x"}).encode(), _error(engine.pull_error)])
        if not self.authorised():
            return self.answer(
                500, {"message": f"Head https://{REGISTRY}: unauthorized: authentication required"}
            )
        if digest not in engine.registry.values():
            return self.answer(404, {"message": "manifest unknown: manifest unknown"})
        tags = [] if at else [f"{name}:{query['tag']}"]
        identity = "sha256:id-of-" + digest[-6:]
        image = engine.images.setdefault(identity, {"Id": identity, "RepoDigests": [], "RepoTags": []})
        image["RepoDigests"].append(f"{name}@{digest}")
        image["RepoTags"] += tags
        lines = [
            {"status": "Downloading", "id": "l1", "progressDetail": {"current": 406e6, "total": int(1.2e9)}},
            {"status": "Download complete", "id": "l1"},
            {"status": "Pull complete", "id": "l1"},
        ]
        text = b"".join(json.dumps(line).encode() + b"\r\n" for line in lines)
        return self.chunks([text[:30], text[30:31], text[31:]])

    def images(self, rest: str, query: dict[str, str]) -> None:
        reference = rest.removesuffix("/json").removesuffix("/tag")
        image = self.engine.image(reference)
        if image is None:
            return self.answer(404, {"message": f"no such image: {reference}"})
        if rest.endswith("/tag"):
            for other in self.engine.images.values():
                tag = f"{query['repo']}:{query['tag']}"
                other["RepoTags"] = [name for name in other["RepoTags"] if name != tag]
            image["RepoTags"].append(f"{query['repo']}:{query['tag']}")
            return self.answer(201)
        if self.command == "DELETE":
            self.engine.images.pop(image["Id"])
            return self.answer(200, [])
        return self.answer(200, image)

    def containers(self, rest: str, query: dict[str, str], body: dict[str, Any]) -> None:
        engine = self.engine
        name, _, verb = rest.partition("/")
        if name == "create":
            image = engine.image(body["Image"])
            if image is None:
                return self.answer(404, {"message": f"No such image: {body['Image']}"})
            state = {"Running": False, "ExitCode": 0}
            made = {"Id": "c1", "Image": image["Id"], "Config": body, "State": state}
            engine.containers[query["name"]] = made
            engine.created.append((query["name"], body))
            return self.answer(201, {"Id": "c1"})
        found = engine.containers.get(name)
        if found is None:
            return self.answer(404, {"message": f"No such container: {name}"})
        if self.command == "DELETE":
            del engine.containers[name]
            engine.gone.set()
            return self.answer(204)
        if verb == "start" and engine.no_limits and found["Config"]["HostConfig"].get("Ulimits"):
            return self.answer(500, {"message": "error setting rlimit type 8: operation not permitted"})
        if verb == "start" and engine.start_error is not None:
            return self.answer(500, {"message": engine.start_error})
        if verb == "wait":
            engine.released.wait(10)
            return self.answer(200, {"StatusCode": 0})
        if verb == "logs" and query.get("follow") and engine.hangs:
            return self.endless(name, found)
        if verb == "logs" and engine.ends_with is not None:
            text = engine.ends_with(found["Config"]).encode()
            return self.chunks(
                [b"\1\0\0\0" + len(text).to_bytes(4, "big") + text], "application/octet-stream"
            )
        if verb == "start":
            found["State"] = {"Running": not engine.dies_at_once, "ExitCode": 3 if engine.dies_at_once else 0}
            return self.answer(204)
        if verb == "stop":
            found["State"]["Running"] = False
            return self.answer(204)
        if verb == "logs":
            frames = b"\1\0\0\0\0\0\0\5oops\n" + b"\2\0\0\0\0\0\0\4bad\n"
            return self.chunks([frames[:11], frames[11:]], "application/octet-stream")
        return self.answer(200, found)


def _error(message: str) -> bytes:
    return b"\n" + json.dumps({"errorDetail": {"message": message}, "error": message}).encode()
