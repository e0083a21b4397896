"""The probe's document over the lab's simulated library: what is well, what is broken, what the host adds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.facts import gpu_probe
from fleet.agent.gpu_probe import document, parent
from fleet.core.schema import validate
from fleet.lab.simulation.hardware import hardware
from tests.agent.facts.conftest import FolderHost
from tests.agent.gpu_probe.conftest import DEADLINES, LIBRARY, GpuHost
from tests.agent.gpu_probe.test_device import nulls
from tests.lab.simulation.conftest import DRIVER


def probe(host: GpuHost) -> dict[str, Any]:
    """The document, which is held to the schema, and whose nulls must all be explained."""
    found = document.probe(host, host.gpus, DEADLINES)
    facts = {
        "schema": "fleet.facts/1",
        "collected_at": "2026-11-30T11:00:00Z",
        "simulated": True,
        "errors": [],
        "gpu_probe": found,
    }
    assert validate(facts, "facts") == []
    for device in found["devices"]:
        unexplained = nulls(device) ^ set(device["absent"])
        assert {path for path in unexplained if not path.startswith("processes.")} == set()
    return found


def test_two_healthy_gpus(gpu_host: GpuHost) -> None:
    found = probe(gpu_host)
    assert (found["status"], found["message"], found["source"]) == ("ok", None, "nvml")
    assert (found["driver_version"], found["nvml_version"], found["cuda_version"]) == (
        DRIVER,
        f"13.{DRIVER}",
        "13.0",
    )
    assert found["binding"]
    one, other = found["devices"]
    assert (one["address"], other["address"]) == ("0000:01:00.0", "0000:02:00.0")
    assert (one["name"], one["architecture"], one["compute_capability"]) == (
        "NVIDIA H100 80GB HBM3",
        "hopper",
        "9.0",
    )
    assert (one["device_id"], one["subsystem_vendor_id"], one["subsystem_id"]) == ("2330", "10de", "16c1")
    assert (one["memory_total_mib"], one["memory_reserved_mib"], one["memory_used_mib"]) == (81559, 480, 0)
    assert (one["power_draw_w"], one["power_limit_w"], one["power_limit_min_w"]) == (69.0, 700.0, 200.0)
    assert (one["ecc_mode"], one["ecc"]["aggregate_uncorrected"], one["recovery_action"]) == (
        "enabled",
        0,
        "none",
    )
    assert one["remapped_rows"] == {
        "corrected": 0,
        "uncorrected": 0,
        "pending": False,
        "failure": False,
        "histogram": {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
    }
    assert (len(one["nvlinks"]), one["nvlinks"][17]["active"], one["nvlinks"][17]["version"]) == (18, True, 4)
    assert one["nvlinks"][3]["speed_mb_s"] == 26562
    assert (one["numa_node"], one["processes"], one["implausible"]) == (1, [], [])
    assert found["missing"] == []


def test_what_a_gpu_lacks_is_null_with_nvmls_number(gpu_host: GpuHost) -> None:
    device = probe(gpu_host)["devices"][0]
    assert device["fan_speed_percent"] is None
    assert device["absent"]["fan_speed_percent"] == {
        "reason": "not_supported",
        "nvml_error": 3,
        "text": None,
    }
    assert device["absent"]["retired_pages.single_bit"]["nvml_error"] == 3
    assert device["absent"]["gpu_part_number"]["reason"] == "not_collected"


@pytest.mark.parametrize(("state", "status", "code"), [("lost", "lost", 15), ("unknown_error", "error", 999)])
def test_a_broken_gpu_keeps_its_place_and_the_others_answer(
    gpu_host: GpuHost, state: str, status: str, code: int
) -> None:
    gpu_host.machine.fault(f"gpu.0.state={state}")
    found = probe(gpu_host)
    assert found["status"] == "gpu_error"
    broken, well = found["devices"]
    assert (broken["address"], broken["status"], broken["index"]) == ("0000:01:00.0", status, 0)
    assert broken["absent"]["uuid"]["nvml_error"] == code
    assert broken["absent"]["uuid"]["reason"] == ("gpu_lost" if code == 15 else "error")
    assert (well["status"], well["temperature_c"]) == ("ok", 29)
    assert found["missing"] == []
    assert "0000:01:00.0" in found["message"]


@pytest.mark.parametrize(
    ("index", "seen", "address"),
    [
        (1, {0: "0000:1b:00.0", 2: "0000:5d:00.0"}, "0000:43:00.0"),
        (0, {1: "0000:43:00.0"}, "0000:1b:00.0"),
        (3, {2: "0000:5d:00.0"}, "10000:01:00.0"),
        (1, {0: "0000:1b:00.0", 2: "0000:43:00.0"}, None),
    ],
)
def test_a_gpu_without_a_handle_is_placed_by_the_order_of_the_bus(
    index: int, seen: dict[int, str], address: str | None
) -> None:
    on_pci = ["0000:1b:00.0", "0000:43:00.0", "0000:5d:00.0", "10000:01:00.0"]
    assert document.place_of(index, seen, on_pci) == address


def test_a_gpu_that_only_the_bus_knows_is_missing_and_named_by_its_slot(gpu_host: GpuHost) -> None:
    gpu_host.plug("0000:5d:00.0", slot="7-1")
    gpu_host.plug("0000:5e:00.0", driver=None)
    gpu_host.plug("0000:5f:00.0", driver="vfio-pci")
    found = probe(gpu_host)
    assert found["missing"] == [
        {"address": "0000:5d:00.0", "slot": "7-1", "name": "NVIDIA H100 80GB HBM3"},
        {"address": "0000:5e:00.0", "slot": None, "name": "NVIDIA H100 80GB HBM3"},
    ]
    assert len(found["devices"]) == 2


def test_a_module_and_a_library_that_differ_are_both_named(gpu_host: GpuHost) -> None:
    gpu_host.module("570.211.01")
    gpu_host.machine.load("570.211.01")
    found = probe(gpu_host)
    assert (found["status"], found["nvml_error"]) == ("driver_library_mismatch", 18)
    assert "570.211.01" in found["message"]
    assert DRIVER in found["message"]
    assert found["missing"] == []  # nobody gave a list that one could be missing from


def test_nothing_is_asked_where_no_driver_is_loaded(
    gpu_host: GpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("NVML would load the module")

    monkeypatch.setattr(parent, "Child", refuse)
    gpu_host.remove("/proc/driver/nvidia/version")
    found = probe(gpu_host)
    assert (found["status"], found["devices"], found["source"]) == ("driver_not_loaded", [], None)


def test_a_host_without_gpus_has_no_probe(tmp_path: Any) -> None:
    host = FolderHost(str(tmp_path))
    assert gpu_probe.collect(host) == {"gpu_probe": None, "gpu_probe_reason": "not_supported"}


def test_without_its_library_the_probe_says_so(gpu_host: GpuHost) -> None:
    gpu_host.remove(LIBRARY)
    found = probe(gpu_host)
    assert (found["status"], found["nvml_error"], found["driver_version"]) == ("library_missing", 12, DRIVER)


def test_nvidia_smi_is_asked_where_nvml_cannot_be_used(
    gpu_host: GpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu_host.write(LIBRARY[: -len("1")] + DRIVER, b"not a library")
    answer = document._empty("ok", None)
    answer.update(source="nvidia-smi", driver_version=DRIVER)
    monkeypatch.setattr("fleet.agent.nvidia_smi.fallback.probe", lambda host, deadline_s: answer)
    found = probe(gpu_host)
    assert (found["status"], found["source"]) == ("ok", "nvidia-smi")
    assert "libnvidia-ml.so.1 cannot be opened" in found["message"]
    assert len(found["missing"]) == 2


def test_with_mig_on_there_is_no_utilization_and_there_are_instances(gpu_host: GpuHost) -> None:
    document_ = hardware("h100-sxm", 2)
    gpu_host.machine.install(document_)
    gpu_host.machine.fault(
        "gpu.0.mig=1", "gpu.0.mig_devices=1", "gpu.0.mig.0.uuid=MIG-1", "gpu.0.mig.0.profile=3g.40gb",
        "gpu.0.mig.0.gpu_instance=2", "gpu.0.mig.0.compute_instance=0", "gpu.0.mig.0.memory_mib=40448",
    )  # fmt: skip
    device = probe(gpu_host)["devices"][0]
    assert device["mig"]["mode"] == "enabled"
    assert device["mig"]["devices"] == [
        {
            "uuid": "MIG-1",
            "profile": "3g.40gb",
            "gpu_instance": 2,
            "compute_instance": 0,
            "memory_total_mib": 40448,
        }
    ]
    assert device["gpu_utilization_percent"] is None
    assert device["absent"]["gpu_utilization_percent"]["reason"] == "mig"
    assert device["absent"]["memory_utilization_percent"]["reason"] == "mig"


def test_a_draw_far_above_the_limit_is_kept_and_called_implausible(gpu_host: GpuHost) -> None:
    gpu_host.machine.fault(
        "gpu.0.power_draw_mw=588000", "gpu.0.power_limit_mw=35000", "gpu.0.power_max_mw=35000"
    )
    one, other = probe(gpu_host)["devices"]
    assert (one["power_draw_w"], one["implausible"]) == (588.0, ["power_draw_w"])
    assert other["implausible"] == []


def test_faults_of_memory_fabric_and_link_show(gpu_host: GpuHost) -> None:
    gpu_host.machine.fault(
        "gpu.1.remap_pending=1", "gpu.1.recovery_action=1", "gpu.1.ecc_aggregate_uncorrected=3",
        "gpu.1.pcie_width=8", "gpu.1.fabric_status=999",
    )  # fmt: skip
    device = probe(gpu_host)["devices"][1]
    assert device["remapped_rows"]["pending"] is True
    assert device["recovery_action"] == "gpu_reset"
    assert device["ecc"]["aggregate_uncorrected"] == 3
    assert (device["pcie"]["width"], device["pcie"]["width_max"]) == (8, 16)
    assert device["fabric"]["status"] == 999


def test_a_recovery_action_that_fleet_has_no_word_for_is_an_error_and_not_none(gpu_host: GpuHost) -> None:
    gpu_host.machine.fault("gpu.0.recovery_action=42")
    device = probe(gpu_host)["devices"][0]
    assert device["recovery_action"] is None
    assert device["absent"]["recovery_action"]["reason"] == "error"
    assert "42" in device["absent"]["recovery_action"]["text"]


@pytest.mark.parametrize(
    ("mark", "status"), [("/.dockerenv", "container_lost_gpu"), ("/etc/hostname", "error")]
)
def test_device_files_that_may_not_be_opened_any_more(
    gpu_host: GpuHost, fake_library: str, monkeypatch: pytest.MonkeyPatch, mark: str, status: str
) -> None:
    monkeypatch.setenv("FAKE_NVML", "nvmlInitWithFlags.-=999")
    monkeypatch.setattr(document, "_devices_refused", lambda host: True)
    gpu_host.library(Path(fake_library))
    gpu_host.write(mark, "")
    found = probe(gpu_host)
    assert (found["status"], found["nvml_error"]) == (status, 999)
    assert "device files" in found["message"]


def test_garbage_in_a_text_is_that_values_alone(
    gpu_host: GpuHost, fake_library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML_GPUS", "1")
    monkeypatch.setenv("FAKE_NVML_SERIAL", "\udcff\udcfe12")
    gpu_host.library(Path(fake_library))
    (device,) = probe(gpu_host)["devices"]
    assert (device["serial"], device["status"]) == ("\ufffd\ufffd12", "ok")


def test_gpus_that_were_not_asked_in_time_are_not_missing(
    gpu_host: GpuHost, fake_library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML", "nvmlDeviceGetSerial.0=hang nvmlDeviceGetSerial.1=hang")
    monkeypatch.setenv("FAKE_NVML_GPUS", "2")
    gpu_host.library(Path(fake_library))
    found = document.probe(gpu_host, gpu_host.gpus, parent.Deadlines(start=60.0, call=60.0, whole=3.0))
    assert [device["status"] for device in found["devices"]] == ["timeout", "timeout"]
    assert (found["status"], found["missing"]) == ("timeout", [])


def test_a_list_without_any_gpu_is_no_devices(
    gpu_host: GpuHost, fake_library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML_GPUS", "0")
    gpu_host.library(Path(fake_library))
    found = probe(gpu_host)
    assert (found["status"], len(found["missing"])) == ("no_devices", 2)


def test_processes_get_their_program_user_and_container(gpu_host: GpuHost) -> None:
    pid, container = os.getpid(), "ab" * 32
    gpu_host.machine.fault(f"gpu.0.processes={pid}:512", "gpu.0.utilization_gpu=90")
    place = f"/proc/{pid}"
    gpu_host.write(f"{place}/comm", "python3\n")
    gpu_host.write(f"{place}/cmdline", "python3\0train.py\0--token=secret\0")
    gpu_host.write(f"{place}/cgroup", f"0::/system.slice/docker-{container}.scope\n")
    gpu_host.write("/etc/passwd", f"alice:x:{os.getuid()}:0::/home/alice:/bin/sh\n")
    one, other = probe(gpu_host)["devices"]
    assert one["processes"] == [
        {
            "pid": pid,
            "kind": "compute",
            "memory_used_mib": 512,
            "command": "python3",
            "user": "alice",
            "uid": os.getuid(),
            "container_id": container,
            "container_name": None,
            "unit": None,
        }
    ]
    assert "secret" not in str(one)
    assert one["pcie"]["sampled_under_load"] is True
    assert other["pcie"]["sampled_under_load"] is False


def test_a_process_that_has_ended_keeps_its_number(gpu_host: GpuHost) -> None:
    gpu_host.machine.fault(f"gpu.0.processes={os.getpid()}:1")
    (process,) = probe(gpu_host)["devices"][0]["processes"]
    assert (process["pid"], process["command"], process["uid"]) == (os.getpid(), None, None)


def test_the_hosts_side_of_the_link_is_the_port_above(gpu_host: GpuHost) -> None:
    port = "/sys/devices/pci0000:00/0000:00:01.0"
    gpu_host.write(f"{port}/max_link_speed", "16.0 GT/s PCIe\n")
    gpu_host.write(f"{port}/0000:01:00.0/vendor", "0x10de\n")
    gpu_host.link(
        "/sys/bus/pci/devices/0000:01:00.0", "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    )
    one, other = probe(gpu_host)["devices"]
    assert (one["pcie"]["generation_max_host"], one["pcie"]["generation_max_gpu"]) == (4, 5)
    assert other["pcie"]["generation_max_host"] is None
    assert other["absent"]["pcie.generation_max_host"]["reason"] == "not_supported"
