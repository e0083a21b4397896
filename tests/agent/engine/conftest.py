"""A host whose engine is the fake one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.agent.host import Host

from .fake import FakeEngine


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def output(self, text: str, stream: str = "stdout") -> None:
        return

    def progress(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def root() -> Iterator[Path]:
    """A short path: the name of a unix socket has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="fe"))
    (path / "var/run").mkdir(parents=True)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def engine(root: Path) -> Iterator[FakeEngine]:
    made = FakeEngine(str(root / "var/run/docker.sock"))
    yield made
    made.stop()


@pytest.fixture
def host(root: Path) -> Host:
    return Host(str(root), state_dir=str(root / "state"), runtime_dir=str(root / "runtime"))


@pytest.fixture
def report() -> Recorder:
    return Recorder()
