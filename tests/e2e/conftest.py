"""A fleet command of its own for every end-to-end test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.harness import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Runs fleet in an empty folder."""
    return Fleet(tmp_path)
