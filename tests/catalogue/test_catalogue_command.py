"""``fleet catalogue show`` and ``check``: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.cli.main import main


def test_a_table_of_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, word in (
        ("gpu", "Tesla"),
        ("driver", "580.178.04"),
        ("cuda", "12.8.1"),
        ("os", "ubuntu-24.04"),
    ):
        assert main(["catalogue", "show", kind]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "verified" in lines[0]
        assert len(lines) > 15
        assert kind == "gpu" or any(line.startswith(word) or word in line for line in lines)


def test_one_gpu_in_full_marks_what_was_not_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalogue", "show", "gpu", "Tesla T4"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "PCI 10de:1eb8" in lines
    assert "memory 16 GB" in lines
    assert "driver 410 on (not verified)" in lines


def test_a_driver_version_that_lacks_fixes_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    main(["catalogue", "show", "driver", "580.126.09"])
    assert "580.126.09 (lacks security fixes)" in capsys.readouterr().out
    main(["catalogue", "show", "driver", "570.123.07"])
    assert "a developer beta: newer than its number says" in capsys.readouterr().out


def test_json_carries_values_origin_and_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalogue", "show", "gpu", "p40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["compute_capability"] == "6.1"
    assert found["derived"] == {"last_branch": 580}
    assert found["verified"] is True
    assert "peaks.int8_tensor" in found["unverified_fields"]
    assert found["provenance"][0]["file"] == "gpus.yaml"
    assert main(["catalogue", "show", "driver", "--json"]) == 0
    assert {one["id"] for one in json.loads(capsys.readouterr().out)} >= {"535", "580", "620"}


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("gpu", "A100", "did you mean a100-sxm4-40gb"),
        ("driver", "585.10.01", "did you mean"),
        ("driver", "newest", "not a driver version"),
        ("cuda", "12.7", "did you mean"),
        ("os", "ubuntu-24.10", "did you mean"),
    ],
)
def test_an_unknown_name_is_exit_2_with_near_ones(
    kind: str, name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["catalogue", "show", kind, name]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert hint in said.err


def test_check_counts_what_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalogue", "check"]) == 0
    assert capsys.readouterr().out.endswith(" entries, all well\n")


def test_a_site_is_named_by_option_or_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = "gpus:\n  - {id: t4, limits: {fp32: 7}, source: our own floor, verified: true}\n"
    (tmp_path / "gpus.yaml").write_text(good, encoding="utf-8")
    assert main(["catalogue", "show", "gpu", "t4", "--catalogue", str(tmp_path)]) == 0
    assert "limit fp32" in capsys.readouterr().out
    monkeypatch.setenv("FLEET_CATALOGUE", str(tmp_path))
    assert main(["catalogue", "check"]) == 0
    assert f"({tmp_path} laid over)" in capsys.readouterr().out


def test_a_site_that_is_wrong_is_exit_2_with_file_line_and_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = "gpus:\n  - {id: t4, limits: {fp32: 70}, source: our own floor, verified: true}\n"
    (tmp_path / "gpus.yaml").write_text(bad, encoding="utf-8")
    assert main(["catalogue", "check", "--catalogue", str(tmp_path)]) == 2
    assert (
        f"{tmp_path}/gpus.yaml:2:5: gpus t4: limits.fp32 70 is 864% of the peak 8.1"
        in capsys.readouterr().err
    )
