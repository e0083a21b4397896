"""A command on the inventory of a lab that is down answers with the command that brings it up."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fleet.cli.main import main
from fleet.core.errors import RefusedError
from fleet.lab.presence import refuse_if_down

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def lab_that_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped inventory in a place that has no state directory."""
    monkeypatch.delenv("FLEET_LAB_STATE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copytree(REPOSITORY / "inventories", tmp_path / "inventories", symlinks=True)
    return tmp_path / "inventories" / "lab.yaml"


@pytest.mark.parametrize("words", [["provision", "INVENTORY"], ["exec", "INVENTORY", "all", "--", "true"]])
def test_the_answer_is_exit_2_and_fleet_lab_up(
    lab_that_is_down: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.replace("INVENTORY", str(lab_that_is_down)) for word in words]) == 2
    said = capsys.readouterr()
    assert f"run fleet lab up {lab_that_is_down}" in said.out + said.err


def test_other_bad_input_is_told_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", str(tmp_path / "nowhere.yaml"), "all", "--", "true"]) == 2
    said = capsys.readouterr()
    assert "lab up" not in said.out + said.err


def test_a_lab_that_is_up_under_another_name_is_not_called_down(tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yaml"
    inventory.write_text(
        "all:\n"
        '  vars: {lab_state: "{{ inventory_dir }}/.lab/second", lab_subnet: 172.28.77.0/24}\n'
        "  hosts: {h1: {ansible_host: 172.28.77.11, lab_release: bookworm}}\n"
    )
    with pytest.raises(RefusedError, match="is down"):
        refuse_if_down(str(inventory))
    (tmp_path / ".lab" / "second").mkdir(parents=True)
    (tmp_path / ".lab" / "second" / "lab.json").write_text("{}")
    refuse_if_down(str(inventory))
