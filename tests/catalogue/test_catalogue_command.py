"""``fleet catalogue show`` and ``check``: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.catalogue.kinds import KINDS
from fleet.cli.catalogue import WORDS
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
        ("torch", "2.7.0+cu124", "did you mean 2.7.0-cu118"),
        (
            "image",
            "pytorch/pytorch:2.7.0-cuda11.8-cudnn8-devel",
            "did you mean pytorch/pytorch:2.7.0-cuda11.8-cudnn9-d",
        ),
        ("image", "Lab/Train", "is not the name of an image"),
        ("cudnn", "8.7", "which has 8.0 to 8.5"),
        ("docker", "18.09", "which has 29, 28"),
        ("runc", "2.0", "which has 1.5"),
        ("runc", "newest", "is not a version"),
        ("containerd", "3.1", "which has 2.3"),
        ("toolkit", "1.17.6", "did you mean 1.17.7"),
        ("advisory", "CVE-2025-31134", "did you mean CVE-2025-31133"),
    ],
)
def test_an_unknown_name_is_exit_2_with_near_ones(
    kind: str, name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["catalogue", "show", kind, name]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert hint in said.err


@pytest.mark.parametrize(
    ("kind", "name", "lines"),
    [
        (
            "torch", "2.7.0+cu128",
            [
                "driver 570.26 on",
                "at the least 525.60.13: precompiled code only, no PTX",
                "architectures 7.5 8.0 8.6 9.0 10.0 12.0 and PTX of 12.0",
                "NCCL 2.26.2 (not verified)",
            ],
        ),
        ("torch", "2.13.0+cu130", ["driver 580.65.06 on", "on ARM 8.0 9.0 10.0 11.0 12.0"]),
        (
            "image", "docker.io/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel",
            [
                "image pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel, an official tag",
                "forward brings cuda-compat",
                "requires NVIDIA_REQUIRE_CUDA is not known",
            ],
        ),
        (
            "image", "pytorch/pytorch:2.15.0-cuda13.2-cudnn9",
            [
                "image pytorch/pytorch:2.15.0-cuda13.2-cudnn9-runtime, an official tag (not verified)",
                "architectures 7.5 8.0 8.6 9.0 10.0 12.0 and PTX of 12.0 (not verified)",
            ],
        ),
        ("cudnn", "9.17.1.4", ["cuDNN 9.11 to the newest", "GPUs compute capability 7.5 on (not verified)"]),
        ("docker", "24.0.9", ["every fix from none", "lacks CVE-2026-34040 (fixed in 25.0.16, 29.3.1)"]),
        ("docker", "25.0", ["branch 25.0, long term", "every fix from 25.0.17 (not verified)"]),
        ("containerd", "1.7", ["every fix from 1.7.33 (not verified)"]),
        ("runc", "1.3.2", ["every fix from 1.3.6", "lacks CVE-2025-31133 (fixed in 1.2.8, 1.3.3, 1.4.0)"]),
        ("toolkit", "1.17.7", ["toolkit 1.17.7 of 2025-05-16", "lacks CVE-2026-24260 (fixed in 1.19.1)"]),
        ("advisory", "cve-2026-41579", ["is there where it is not Docker that runs the containers", "CVSS 3.3"]),
    ],
)  # fmt: skip
def test_one_entry_of_the_audit_in_full(
    kind: str, name: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["catalogue", "show", kind, name]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line not in shown] == []
    assert main(["catalogue", "show", kind, name, "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert entry["provenance"]
    assert main(["catalogue", "show", kind]) == 0
    table = capsys.readouterr().out.splitlines()
    assert any(line.split()[0] == entry["id"] for line in table[1:])


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


def test_an_xid_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalogue", "show", "xid", "79"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "severity critical" in lines
    assert any(line.startswith("do drain and power-cycle the host") for line in lines)
    assert main(["catalogue", "show", "xid", "Xid 31"]) == 0
    assert "usually the job's own" in capsys.readouterr().out
    assert main(["catalogue", "show", "xid", "63"]) == 0
    assert "before Ampere" in capsys.readouterr().out
    assert main(["catalogue", "show", "xid", "154"]) == 0
    assert "gpu_reset" in capsys.readouterr().out
    assert main(["catalogue", "show", "xid", "145"]) == 0
    assert "RLW_REMAP 0x40" in capsys.readouterr().out


def test_an_sxid_by_a_code_of_its_range(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalogue", "show", "sxid", "23005", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["id"], shown["fatal"], shown["immediate"]) == ("23001-23017", True, "RESET_FABRIC")
    assert shown["derived"] | {"immediate_text": ""} == {"first": 23001, "last": 23017, "immediate_text": ""}


def test_tables_of_codes_leave_out_what_is_not_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalogue", "show", "xid"]) == 0
    codes = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert "79" in codes
    assert "1" not in codes
    assert main(["catalogue", "show", "sxid"]) == 0
    assert "20034" in capsys.readouterr().out


@pytest.mark.parametrize("what", [["xid", "9999"], ["xid", "fallen"], ["sxid", "1"], ["sxid", "all"]])
def test_a_code_that_is_not_there(what: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalogue", "show", *what]) == 2
    assert "in the catalogue" in capsys.readouterr().err


def test_the_list_of_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalogue", "list"]) == 0
    kinds = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["kind", *WORDS]
    assert main(["catalogue", "list", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {"kind": "xid", "entries": 176, "file": "xids.yaml", "section": "xids"} in shown
    assert list(KINDS) == WORDS
