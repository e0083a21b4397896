"""The Engine API client: versions, framing, timeouts, and what a broken engine does to it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.agent.engine import (
    Engine,
    EngineCancelled,
    EngineError,
    EngineUnavailable,
)
from fleet.agent.engine_http import demultiplex, quote
from fleet.agent.image_reference import canonical_name, registry_of, split_version

from .fake import FakeEngine


def test_requests_use_the_daemons_own_api_version(engine: FakeEngine) -> None:
    client = Engine(engine.path)
    assert client.image("nothing:1") is None
    assert client.info()["Driver"] == "overlay2"
    assert engine.prefixes == {"v1.41"}


@pytest.mark.parametrize(
    ("ping", "asked"),
    [
        ({}, ["/_ping"]),
        ({"Libpod-API-Version": "4.3.1"}, ["/_ping", "/version"]),
        (None, ["/_ping", "/version"]),
    ],
    ids=["docker", "podman", "no ping"],
)
def test_the_slow_version_is_asked_only_where_ping_does_not_tell(
    engine: FakeEngine, ping: dict[str, str] | None, asked: list[str]
) -> None:
    engine.ping_headers = ping
    assert Engine(engine.path).short_version()["ApiVersion"] == "1.41"
    assert [path for _, path, _ in engine.requests] == asked


def test_a_daemon_replaced_by_a_newer_one_is_asked_anew(engine: FakeEngine) -> None:
    client = Engine(engine.path)
    client.info()
    engine.api_version = "1.52"
    assert client.info()["Driver"] == "overlay2"
    assert client.api_version() == "1.52"


def test_reads_share_one_connection_and_survive_its_end(engine: FakeEngine) -> None:
    client = Engine(engine.path)
    for _ in range(3):
        client.info()
    assert engine.connections == 1
    engine.close_after_answer = True
    for _ in range(3):
        client.info()
    client.close()
    assert engine.connections >= 3


def test_an_error_answer_carries_status_and_words(engine: FakeEngine) -> None:
    with pytest.raises(EngineError, match="No such container: x") as caught:
        Engine(engine.path).start_container("x")
    assert caught.value.status == 404


def test_logs_are_demultiplexed(engine: FakeEngine) -> None:
    engine.containers["x"] = {"State": {}}
    assert Engine(engine.path).logs("x") == "oops\nbad\n"


def test_no_socket_and_no_listener_are_told_apart(root: Path) -> None:
    with pytest.raises(EngineUnavailable, match="no Docker socket") as caught:
        Engine(str(root / "none.sock")).version()
    assert caught.value.reason == "absent"
    path = str(root / "dead.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
    with pytest.raises(EngineUnavailable, match="not running") as caught:
        Engine(path).version()
    assert caught.value.reason == "refused"


class Raw:
    """Answers every connection with the same bytes, then ends it (or hangs)."""

    def __init__(self, path: Path, data: bytes, *, hang: bool = False) -> None:
        self.path = str(path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._data = data
        self._hang = hang
        self._held: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.recv(65536)
            connection.sendall(self._data)
            if self._hang:
                self._held.append(connection)
            else:
                connection.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnope",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    ],
)
def test_a_broken_answer_is_an_unavailable_engine(root: Path, data: bytes) -> None:
    with pytest.raises(EngineUnavailable):
        Engine(Raw(root / "raw.sock", data).path).version()


def test_a_hanging_engine_is_given_up(root: Path) -> None:
    with pytest.raises(EngineUnavailable, match="in time") as caught:
        Engine(Raw(root / "raw.sock", b"HTTP/1.1 200 OK\r\n", hang=True).path, timeout_s=0.2).version()
    assert caught.value.reason == "timeout"


def test_an_answer_that_ends_with_the_connection_is_read(root: Path) -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: x\r\nConnection: close\r\n\r\n"
    data = head + b'{"ApiVersion":"1.41"}'
    assert Engine(Raw(root / "raw.sock", data).path).api_version() == "1.41"


def test_a_cancelled_pull_ends(engine: FakeEngine) -> None:
    with pytest.raises(EngineCancelled):
        Engine(engine.path).pull(
            "a:1", None, deadline_s=5, on_event=lambda event: None, cancelled=lambda: True
        )


@pytest.mark.parametrize(
    ("reference", "parts", "registry", "name"),
    [
        ("torch", ("torch", "", ""), "docker.io", "docker.io/library/torch"),
        ("torch:2.7", ("torch", ":", "2.7"), "docker.io", "docker.io/library/torch"),
        ("docker.io/a/b:1", ("docker.io/a/b", ":", "1"), "docker.io", "docker.io/a/b"),
        ("r.example.net:5000/a/b", ("r.example.net:5000/a/b", "", ""), "r.example.net:5000", None),
        ("r:5000/a:1@sha256:ab", ("r:5000/a", "@", "sha256:ab"), "r:5000", "r:5000/a"),
        ("localhost/a:1", ("localhost/a", ":", "1"), "localhost", "localhost/a"),
    ],
)
def test_image_references(
    reference: str, parts: tuple[str, str, str], registry: str, name: str | None
) -> None:
    assert split_version(reference) == parts
    assert registry_of(reference) == registry
    assert canonical_name(reference) == (name or parts[0])


@given(st.text())
def test_quoting_agrees_with_the_standard_library(text: str) -> None:
    from urllib.parse import quote as standard

    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert quote(text) == standard(text, safe="")


def test_output_of_a_terminal_has_no_frames() -> None:
    assert demultiplex(b"plain text that is long enough") == b"plain text that is long enough"
    assert demultiplex(b"") == b""
