"""The metrics of a report: names and labels, what is left out, and a file no other user can turn against root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleet.agent import textfile
from fleet.agent.gpu_probe.device import empty_device, set_value

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
    told = gpu("0000:1b:00.0", temperature_c=41, power_draw_w=69.5, memory_total_mib=81559, nvlinks=[])
    facts.update(probe(told, gpu("0000:43:00.0", ecc__volatile_uncorrected=1)))
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


def gpu(address: str, **values: Any) -> dict[str, Any]:
    """A GPU that tells only these values."""
    device = empty_device(address, "not_supported")
    for path, value in values.items():
        set_value(device, path.replace("__", "."), value)
    return device


def probe(*devices: dict[str, Any]) -> dict[str, Any]:
    return {"gpus": GPUS, "gpu_probe": {"source": "nvml", "devices": list(devices)}}


def test_what_a_gpu_tells_has_samples_in_plain_units_and_what_it_does_not_tell_has_none() -> None:
    link = {
        "active": True,
        "crc_flit_errors": 2,
        "crc_data_errors": None,
        "replay_errors": 1,
        "recovery_errors": 0,
    }
    told = gpu(
        "0000:1b:00.0",
        uuid="GPU-1",
        name="NVIDIA H100 80GB HBM3",
        temperature_c=41,
        memory_used_mib=2,
        sm_clock_mhz=1980,
        ecc__aggregate_uncorrected=0,
        remapped_rows__pending=True,
        nvlinks=[link, {**link, "active": False}],
        recovery_action="gpu_reset",
    )
    lost = gpu("0000:43:00.0")
    lost["status"] = "lost"
    found = [line for line in samples(report(probe(told, lost))) if "fleet_gpu_" in line or "seen" in line]
    about = '{address="0000:1b:00.0",uuid="GPU-1",name="NVIDIA H100 80GB HBM3"}'
    assert found == [
        "fleet_gpus_seen 1",
        f"fleet_gpu_ok{about} 1",
        'fleet_gpu_ok{address="0000:43:00.0"} 0',
        f"fleet_gpu_temperature_celsius{about} 41",
        f"fleet_gpu_memory_used_bytes{about} 2097152",
        f"fleet_gpu_sm_clock_hertz{about} 1980000000",
        f"fleet_gpu_ecc_uncorrected_aggregate{about} 0",
        f"fleet_gpu_remap_pending{about} 1",
        f"fleet_gpu_nvlinks_active{about} 1",
        f"fleet_gpu_nvlink_errors{about} 6",
        f"fleet_gpu_recovery_action_needed{about} 1",
    ]


def test_a_metric_of_two_gpus_is_explained_once() -> None:
    text = textfile.metrics(report(probe(gpu("0000:1b:00.0"), gpu("0000:43:00.0"))))
    assert text.count("# TYPE fleet_gpu_ok gauge") == 1
    assert text.count("fleet_gpu_ok{") == 2


def test_a_draw_that_cannot_be_has_no_sample() -> None:
    device = gpu("0000:1b:00.0", power_draw_w=588.0, power_limit_w=35.0)
    device["implausible"] = ["power_draw_w"]
    found = [line for line in samples(report(probe(device))) if "power" in line]
    assert found == ['fleet_gpu_power_limit_watts{address="0000:1b:00.0"} 35.0']


def test_how_many_gpus_answer_is_unknown_where_nobody_could_be_asked() -> None:
    facts = {"gpu_probe": {"source": None, "devices": []}}
    assert [line for line in samples(report(facts)) if "seen" in line] == []
