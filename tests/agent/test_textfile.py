"""The metrics of a report: names and labels, what is left out, and a file no other user can turn against root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleet.agent import textfile

DRIVER = {
    "loaded": {"version": "580.159.03", "flavour": "open", "architecture": "x86_64"},
    "library_version": "580.159.04",
    "kernels": [
        {"release": "6.1.0-40-amd64", "running": True, "next": False, "modules": [{"name": "nvidia"}]},
        {"release": "6.1.0-41-amd64", "running": False, "next": True, "modules": []},
    ],
}
CHECK = {
    "passed": False,
    "reason": "fabric_not_ready: 802",
    "reference": "registry.example:5000/pytorch-cuda:2.7",
    "digest": "sha256:" + "a" * 64,
    "checked_at": "2026-11-30T11:00:00Z",
}
GPUS = [{"address": "0000:1b:00.0"}, {"address": "0000:43:00.0"}]


def report(facts: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "written_at": "2026-11-30T12:00:00Z",
        "duration_s": 0.02,
        "simulated": False,
        "fleet_version": "0.1.0",
        "bundle": None,
        "facts": {"errors": [], "reboot_required": {"required": False, "packages": []}, **(facts or {})},
        **changes,
    }


def samples(document: dict[str, Any]) -> list[str]:
    return [line for line in textfile.metrics(document).splitlines() if not line.startswith("#")]


def test_a_host_with_a_stale_driver_shows_it() -> None:
    found = samples(report({"gpus": GPUS, "nvswitches": [], "driver": DRIVER}))
    assert found == [
        "fleet_simulated 0",
        'fleet_agent_info{version="0.1.0"} 1',
        "fleet_agent_last_run_timestamp_seconds 1796040000",
        "fleet_agent_last_run_duration_seconds 0.02",
        "fleet_agent_unread_fact_groups 0",
        "fleet_reboot_required 0",
        "fleet_gpus 2",
        "fleet_nvswitches 0",
        'fleet_driver_info{loaded="580.159.03",library="580.159.04",flavour="open"} 1',
        "fleet_driver_loaded 1",
        "fleet_driver_library_mismatch 1",
        "fleet_driver_next_kernel_ready 0",
    ]


def test_what_was_not_read_has_no_sample() -> None:
    facts = {"gpus": None, "gpus_reason": "error", "driver": None, "reboot_required": None}
    found = samples(report({**facts, "errors": [{"group": "driver", "message": "x"}]}))
    assert [line.split("{")[0].split()[0] for line in found] == [
        "fleet_simulated",
        "fleet_agent_info",
        "fleet_agent_last_run_timestamp_seconds",
        "fleet_agent_last_run_duration_seconds",
        "fleet_agent_unread_fact_groups",
    ]
    assert found[-1] == "fleet_agent_unread_fact_groups 1"


def test_a_host_without_a_driver_has_no_version_and_no_mismatch() -> None:
    driver = {"loaded": None, "library_version": None, "kernels": []}
    found = samples(report({"gpus": [], "driver": driver}))
    assert [line for line in found if "driver" in line] == ["fleet_driver_loaded 0"]


def test_the_last_container_check_is_among_them() -> None:
    found = [line for line in samples(report({"container_check": CHECK})) if "container" in line]
    assert found == [
        'fleet_container_check_info{{reference="{reference}",digest="{digest}"}} 1'.format(**CHECK),
        "fleet_container_check_passed 0",
        "fleet_container_check_timestamp_seconds 1796036400",
    ]


def test_every_sample_of_simulated_hardware_says_so() -> None:
    found = samples(report({"gpus": GPUS, "driver": DRIVER, "container_check": CHECK}, simulated=True))
    assert found[0] == "fleet_simulated 1"
    assert len(found) > 8
    assert all('simulated="true"' in line for line in found[1:])


def test_labels_are_escaped() -> None:
    driver = {**DRIVER, "library_version": 'a"b\\c\nd'}
    (line,) = [each for each in samples(report({"driver": driver})) if "driver_info" in each]
    assert 'library="a\\"b\\\\c\\nd"' in line


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian's prometheus) here")
@pytest.mark.parametrize("simulated", [False, True])
def test_promtool_finds_nothing_to_improve(simulated: bool) -> None:
    facts = {"gpus": GPUS, "nvswitches": [], "driver": DRIVER, "container_check": CHECK}
    text = textfile.metrics(report(facts, simulated=simulated, bundle="a" * 64))
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_is_replaced_whole_and_readable_by_everybody(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        textfile.write(str(tmp_path), "old 1\n")
        textfile.write(str(tmp_path), "new 1\n")
    finally:
        os.umask(before)
    assert os.listdir(tmp_path) == ["fleet.prom"]
    assert (tmp_path / "fleet.prom").read_text() == "new 1\n"
    assert (tmp_path / "fleet.prom").stat().st_mode & 0o777 == 0o644


def test_links_that_another_user_left_there_are_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "shadow"
    precious.write_text("root:x\n")
    folder = tmp_path / "metrics"
    folder.mkdir()
    for name in ("fleet.prom", f"fleet.prom.new-{os.getpid()}"):
        (folder / name).symlink_to(precious)
    textfile.write(str(folder), "new 1\n")
    assert precious.read_text() == "root:x\n"
    assert os.listdir(folder) == ["fleet.prom"]
    assert not (folder / "fleet.prom").is_symlink()
