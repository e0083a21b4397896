"""A web server on loopback that serves signing keys, well and badly. It is its own proxy, too."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class KeyServer:
    """``serve(path, body)`` says what is there; ``requests`` are (path as sent, headers), in their order."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.closing = threading.Event()
        self._answers: dict[str, tuple[int, dict[str, str], bytes | None]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"

    def serve(self, path: str, body: bytes | str, status: int = 200, **headers: str) -> str:
        """The address. An absolute one as ``path`` is what a proxy is asked for."""
        content = body.encode() if isinstance(body, str) else body
        self._answers[path] = (status, headers, content)
        return self.url + path

    def stall(self, path: str) -> str:
        """An address that begins to answer and never ends."""
        self._answers[path] = (200, {"Content-Length": "1000"}, None)
        return self.url + path

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append((self.path, dict(self.headers)))
                status, headers, body = server._answers.get(self.path, (404, {}, b"no such thing"))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if body is None:
                    server.closing.wait()
                else:
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        return Handler

    @contextmanager
    def running(self) -> Iterator[KeyServer]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.closing.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()
