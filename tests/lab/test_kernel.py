"""The lab asks for inotify instances before its hosts die for want of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.core.errors import RefusedError
from fleet.lab.kernel import ensure_inotify


def test_a_low_limit_is_raised_and_said(tmp_path: Path) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n")
    said: list[str] = []
    ensure_inotify(20, said.append, limit)
    assert int(limit.read_text()) >= 20 * 8
    assert "128" in said[0]


def test_a_sufficient_limit_is_left_alone(tmp_path: Path) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("8192\n")
    ensure_inotify(20, lambda line: pytest.fail(line), limit)
    assert limit.read_text() == "8192\n"


def test_a_limit_that_cannot_be_raised_is_refused_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n")

    def sealed(path: Path, text: str) -> int:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "write_text", sealed)
    with pytest.raises(RefusedError, match="sysctl"):
        ensure_inotify(20, lambda line: None, limit)
