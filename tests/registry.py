"""A small registry on loopback: manifests and blobs by digest, with every way to log in, and ways to misbehave."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
USER, PASSWORD = "ci", "correct horse"
Json = dict[str, Any]
Reply = tuple[int, dict[str, str], bytes]


class RegistryServer:
    """Use as a context manager. ``asked`` holds (method, path, Authorization) of every request.

    ``connections`` counts also those that do not get as far as a request.
    """

    def __init__(self, login: str | None = None, certificate: Path | None = None) -> None:
        self.login = login  # None, "basic", "token" or "anonymous_token"
        self.store: dict[str, tuple[str, bytes]] = {}  # path after /v2/ -> (type, bytes)
        self.asked: list[tuple[str, str, str | None]] = []
        self.answer_with: Callable[[str], Reply | None] = lambda path: None
        self.blobs_at: str | None = None
        self.realm: str | None = None
        self.digest_header = True
        self.connections = 0
        self._server = _Counting(("127.0.0.1", 0), _handler(self))
        self._server.registry = self
        self._server.daemon_threads = True
        self.scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.scheme = "https"
        self.place = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RegistryServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *details: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def paths(self) -> list[str]:
        """``GET manifests/1``: what was asked of the repository, without logging in."""
        said = [(method, path.rsplit("/", 2)) for method, path, _ in self.asked if path.startswith("/v2/")]
        return [f"{method} {kind}/{name}" for method, (_, kind, name) in said]

    def push(self, name: str, tag: str, configuration: Json, architectures: tuple[str, ...] = ()) -> str:
        """An image with this configuration, for one processor or behind an index; its digest."""
        blob = self._put(f"{name}/blobs/", "application/json", json.dumps(configuration).encode())
        body = json.dumps({"schemaVersion": 2, "config": {"digest": blob}}).encode()
        if not architectures:
            return self._put(f"{name}/manifests/", MANIFEST, body, tag)
        manifests: list[Json] = [
            {"digest": "sha256:" + "0" * 64, "platform": {"os": "unknown", "architecture": "unknown"}}
        ]
        for one in architectures:
            each = json.dumps({"schemaVersion": 2, "config": {"digest": blob}, "for": one}).encode()
            digest = self._put(f"{name}/manifests/", MANIFEST, each)
            manifests.append({"digest": digest, "platform": {"os": "linux", "architecture": one}})
        return self._put(f"{name}/manifests/", INDEX, json.dumps({"manifests": manifests}).encode(), tag)

    def _put(self, path: str, kind: str, body: bytes, tag: str | None = None) -> str:
        digest = f"sha256:{sha256(body).hexdigest()}"
        for name in (digest, tag):
            if name is not None:
                self.store[path + name] = (kind, body)
        return digest

    # -- what it answers -----------------------------------------------------------------------------

    def reply(self, path: str, authorization: str | None) -> Reply:
        place = urlsplit(path)
        if place.path == "/token":
            return self._token(parse_qs(place.query), authorization)
        given = self.answer_with(place.path)
        if given is not None:
            return given
        if not self._may(authorization):
            return 401, {"WWW-Authenticate": self._challenge(place.path)}, _errors("UNAUTHORIZED", "log in")
        name = place.path.removeprefix("/v2/")
        if "/blobs/" in name and self.blobs_at is not None:
            return 307, {"Location": f"{self.blobs_at}{place.path}"}, b""
        if name not in self.store:
            return 404, {}, _errors("MANIFEST_UNKNOWN", "manifest unknown")
        kind, body = self.store[name]
        digest = {"Docker-Content-Digest": f"sha256:{sha256(body).hexdigest()}"} if self.digest_header else {}
        return 200, {"Content-Type": kind, **digest}, body

    def _may(self, authorization: str | None) -> bool:
        if self.login is None:
            return True
        return authorization == (_basic() if self.login == "basic" else "Bearer a-token")

    def _challenge(self, path: str) -> str:
        if self.login == "basic":
            return 'Basic realm="a registry"'
        scope = f"repository:{path.split('/manifests/')[0].removeprefix('/v2/')}:pull"
        realm = self.realm or f"{self.scheme}://{self.place}/token"
        return f'Bearer realm="{realm}",service="a registry",scope="{scope}"'

    def _token(self, query: dict[str, list[str]], authorization: str | None) -> Reply:
        assert query["service"] == ["a registry"]
        assert query["scope"][0].startswith("repository:")
        if self.login == "token" and authorization != _basic():
            return 401, {}, _errors("UNAUTHORIZED", "who are you")
        return 200, {}, json.dumps({"access_token": "a-token"}).encode()


class _Counting(ThreadingHTTPServer):
    registry: RegistryServer

    def get_request(self) -> tuple[Any, Any]:
        self.registry.connections += 1
        return super().get_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust the certificate goes away; that is not worth a traceback."""


def _basic() -> str:
    return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def _errors(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


def _handler(registry: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            return

        def do_GET(self) -> None:
            authorization = self.headers.get("Authorization")
            registry.asked.append((self.command, self.path, authorization))
            status, headers, body = registry.reply(self.path, authorization)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

    return Handler
