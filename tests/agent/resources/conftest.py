from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.resources.fakes import FakeHost


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    """A host that is an empty folder, and knows one secret."""
    return FakeHost(tmp_path, secrets={"token": "hunter2hunter2"})
