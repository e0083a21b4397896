"""``fleet health`` as people call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.cli.main import main

NOTHING = "all:\n  hosts:\n    here: {ansible_connection: local}\n"


def test_this_very_machine_is_asked_read_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real agent, of this checkout: where there are no GPUs there is nothing to find."""
    file = tmp_path / "site.yaml"
    file.write_text(NOTHING, encoding="utf-8")
    code = main(["health", str(file), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == document["exit_code"]
    assert document["source"] == "live"
    assert set(document["hosts"]) == {"here"}
    assert document["hosts"]["here"]["error"] is None


@pytest.mark.parametrize("words", [[], ["one.yaml", "two.yaml"]])
def test_it_wants_one_inventory(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", *words]) == 2
    assert "give one INVENTORY, or --from-capture FILE" in capsys.readouterr().err


def test_hosts_without_a_report_are_not_healthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    file = tmp_path / "site.yaml"
    file.write_text(NOTHING, encoding="utf-8")
    assert main(["health", str(file), "--from", "last"]) == 4
    assert capsys.readouterr().out.splitlines()[0] == "here is not healthy: 1 no report · 0 GPUs · exit 4"
