"""Fixtures: a real sshd, a connector that knows it, and a check that nothing leaks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.core.connection import ConnectionSettings, Deadlines, Endpoint
from fleet.core.secret import Scrubber
from fleet.transport import Bundle, Connector
from tests.transport.sshd import Sshd

STUB = Path(__file__).with_name("stub_session.py")
QUICK = Deadlines(connect=10, banner=10, authentication=10, channel=10, hello=20, silence=30)


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    """A bundle whose session is the stub."""
    files = {"fleet/__init__.py": b"", "fleet/agent/__init__.py": b""}
    return Bundle.of({**files, "fleet/agent/session.py": STUB.read_bytes()})


@pytest.fixture
def start_sshd(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """Starts servers; they end with the test."""
    servers: list[Sshd] = []

    def start(name: str = "sshd", **options: Any) -> Sshd:
        servers.append(Sshd(tmp_path / name, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.remove()


@pytest.fixture
def sshd(start_sshd: Callable[..., Sshd]) -> Sshd:
    """One plain server."""
    return start_sshd()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder without keys."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    return folder


@pytest.fixture
def make_connector(no_leaks: None, home: Path, bundle: Bundle) -> Iterator[Callable[..., Connector]]:
    """Makes connectors that see only the test's home and no SSH agent; closed with the test."""
    made: list[Connector] = []

    def make(**options: Any) -> Connector:
        options = {"bundle": bundle, "home": home, "environ": {}, **options}
        made.append(Connector(options.pop("scrubber", Scrubber()), **options))
        return made[-1]

    yield make
    for connector in made:
        connector.close()


@pytest.fixture
def connector(make_connector: Callable[..., Connector]) -> Connector:
    """A strict connector."""
    return make_connector()


@pytest.fixture
def settings_for(home: Path) -> Callable[..., ConnectionSettings]:
    """Settings for a server whose key is put on file, unless ``trust`` is false."""

    def make(server: Sshd, *, trust: bool = True, **changes: Any) -> ConnectionSettings:
        if trust:
            with (home / ".ssh" / "known_hosts").open("a") as file:
                file.write(server.known_hosts())
        endpoint = endpoint_of(server, **changes.pop("endpoint", {}))
        return ConnectionSettings(**{"name": "gpu01", "endpoint": endpoint, "deadlines": QUICK, **changes})

    return make


def endpoint_of(server: Sshd, **changes: Any) -> Endpoint:
    """How the tests log in to ``server``."""
    return replace(Endpoint("127.0.0.1", server.port, server.user, key_files=(server.key,)), **changes)


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Threads and file descriptors are as before, once the connectors made after this are closed."""
    threads, descriptors = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    yield

    def settled() -> bool:
        return set(threading.enumerate()) <= threads and len(os.listdir("/proc/self/fd")) <= descriptors

    until(settled, "threads or descriptors are left over")


def until(condition: Callable[[], object], otherwise: str, seconds: float = 20) -> None:
    """Wait for ``condition`` by looking; fails with ``otherwise`` after ``seconds``."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(otherwise)
