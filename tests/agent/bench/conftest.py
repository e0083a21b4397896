"""A host in a folder, with the fake engine where a test wants it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.agent.host import Host
from tests.agent.engine.conftest import Recorder
from tests.agent.engine.fake import FakeEngine


@pytest.fixture
def root() -> Iterator[Path]:
    """A short path: the name of a unix socket has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="fb"))
    (path / "var/run").mkdir(parents=True)
    (path / "proc/sys/kernel/random").mkdir(parents=True)
    (path / "proc/sys/kernel/random/boot_id").write_text("11111111-2222-4333-8444-555555555555\n")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def engine(root: Path) -> Iterator[FakeEngine]:
    made = FakeEngine(str(root / "var/run/docker.sock"))
    yield made
    made.gone.set()
    made.stop()


@pytest.fixture
def host(root: Path) -> Host:
    return Host(str(root), state_dir=str(root / "state"), runtime_dir=str(root / "runtime"))


@pytest.fixture
def report() -> Recorder:
    return Recorder()
