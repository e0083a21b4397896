"""What ``fleet status`` says of a host: the same rows as a table and as a document."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fleet.core.schema import validate
from fleet.report.gpu_status import HostRow, counts, document, host_row, table
from fleet.report.style import text_of

ADDRESS = "0000:1b:00.0"


def device(**values: Any) -> dict[str, Any]:
    """A GPU of the probe, as far as the status reads it."""
    return {
        "address": ADDRESS, "index": 0, "status": "ok", "message": None, "name": "NVIDIA H100 80GB HBM3",
        "gpu_utilization_percent": 97, "memory_used_mib": 72704, "memory_total_mib": 81559,
        "power_draw_w": 688.2, "power_limit_w": 700.0, "power_limit_enforced_w": 700.0, "temperature_c": 61,
        "mig": {"mode": "disabled"}, "processes": [], "implausible": [], **values,
    }  # fmt: skip


def process(**values: Any) -> dict[str, Any]:
    return {
        "pid": 4242, "kind": "compute", "memory_used_mib": 70000, "command": "python3", "user": "anna", "uid": 1000,
        "container_id": None, "container_name": None, "unit": None, **values,
    }  # fmt: skip


def facts(*devices: dict[str, Any], status: str = "ok", **values: Any) -> dict[str, Any]:
    probe = {
        "status": status,
        "message": None,
        "driver_version": "580.159.04",
        "devices": list(devices),
        "missing": [],
    }
    return {
        "simulated": False, "collected_at": "2026-11-30T14:00:00Z", "gpus": [{"address": ADDRESS}],
        "driver": {"loaded": {"version": "580.159.04"}}, "gpu_probe": probe,
        "kernel_log": None, "kernel_log_reason": "permission", **values,
    }  # fmt: skip


def shown(*hosts: HostRow, width: int = 140) -> list[str]:
    return [text_of(line) for line in table(hosts, width)]


def test_one_line_says_who_is_on_a_gpu_and_how_busy_it_is() -> None:
    container = process(container_id="4f" * 32, container_name="jupyter-anna")
    lines = shown(host_row("gpu01", facts(device(processes=[container]))))
    assert lines[0] == "1 host · 1 GPU · 1 in use"
    assert lines[2].split() == ["host", "GPU", "model", "util", "memory", "power", "temp", "driver", "who"]
    assert lines[3].split("  ")[0] == "gpu01"
    for word in (
        "H100 80GB HBM3",
        "97%",
        "71/80 GiB",
        "688/700 W",
        "61°C",
        "580.159.04",
        "anna · jupyter-anna (container)",
    ):
        assert word in lines[3], word


def test_a_container_without_a_readable_name_is_shown_by_the_start_of_its_id() -> None:
    lines = shown(host_row("gpu01", facts(device(processes=[process(container_id="4f" * 32)]))))
    assert "anna · 4f4f4f4f4f4f (container)" in lines[3]


def test_a_process_outside_containers_is_shown_with_its_pid() -> None:
    lines = shown(host_row("gpu01", facts(device(processes=[process()]))))
    assert lines[3].endswith("anna · python3 (pid 4242)")


def test_an_idle_gpu_has_nobody() -> None:
    lines = shown(host_row("gpu01", facts(device(gpu_utilization_percent=0))))
    assert lines[3].endswith("–")


def test_a_busy_gpu_without_a_visible_process_is_not_called_free() -> None:
    lines = shown(host_row("gpu01", facts(device(gpu_utilization_percent=55))))
    assert "busy, by nobody that can be seen" in lines[3]


def test_what_the_driver_does_not_give_is_a_dash_and_null_never_zero() -> None:
    bare = device(gpu_utilization_percent=None, power_draw_w=None, temperature_c=None, memory_used_mib=None)
    row = host_row("gpu01", facts(bare))
    assert row.gpus[0].utilization_percent is None
    assert "–/80 GiB" in shown(row)[3]
    assert " 0%" not in shown(row)[3]


def test_an_impossible_reading_is_not_shown_as_one() -> None:
    cannot_be = {"power_draw_w": 588.0, "temperature_c": 255, "gpu_utilization_percent": 101}
    gpu = host_row("gpu01", facts(device(power_limit_w=35.0, implausible=list(cannot_be), **cannot_be))).gpus[
        0
    ]
    assert (gpu.power_draw_w, gpu.temperature_c, gpu.utilization_percent) == (None, None, None)
    assert gpu.memory_total_mib == 81559


def test_a_lost_gpu_is_named_by_address_with_the_time_and_the_xid() -> None:
    gone = facts(device())
    gone["gpu_probe"]["missing"] = [{"address": "0000:43:00.0", "slot": "7", "name": "NVIDIA H100 80GB HBM3"}]
    xid = {"code": 79, "address": "0000:43:00.0", "last_at": "2026-11-30T14:02:11Z"}
    gone.update(kernel_log={"xids": [xid]})
    row = host_row("gpu01", gone)
    text = " ".join(" ".join(line.split()) for line in shown(row, width=110))
    assert (
        "0000:43:00.0: on the PCI bus in slot 7, not served by the driver since 2026-11-30 14:02 (Xid 79)"
        in text
    )
    assert counts([row])["not_well"] == 1
    assert row.gpus[1].state == "missing"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("lost", "lost since 2026-11-30 14:02 (Xid 79): it does not answer"),
        ("reset_required", "needs a reset since 2026-11-30 14:02 (Xid 79): nvidia-smi --gpu-reset"),
        ("timeout", "the driver does not answer for it since 2026-11-30 14:02 (Xid 79)"),
        ("error", "NVML gives no handle since 2026-11-30 14:02 (Xid 79)"),
    ],
)
def test_a_gpu_that_the_driver_lists_and_that_is_not_well_says_since_when_and_says_it_once(
    state: str, words: str
) -> None:
    bad = device(status=state, message="NVML gives no handle", name=None, gpu_utilization_percent=None)
    said = facts(bad, status="gpu_error", gpus=[{"address": ADDRESS, "name": "NVIDIA H100 80GB HBM3"}])
    said["gpu_probe"]["message"] = f"{ADDRESS}: NVML gives no handle"
    without = host_row("gpu01", said)
    assert "Xid" not in "".join(shown(without))
    said["kernel_log"] = {"xids": [{"code": 79, "address": ADDRESS, "last_at": "2026-11-30T14:02:11Z"}]}
    row = host_row("gpu01", said)
    assert (row.state, row.message, row.gpus[0].model) == ("gpu_error", None, "H100 80GB HBM3")
    (line,) = shown(row, width=200)[3:]
    assert f"{ADDRESS}: {words}" in line


def test_what_no_row_of_a_gpu_tells_is_told_of_the_host() -> None:
    said = facts(device(status="lost", message="GPU is lost"), device(index=1), status="gpu_error")
    said["gpu_probe"]["message"] = f"{ADDRESS}: GPU is lost; GPU 2: NVML gives no handle of it"
    row = host_row("gpu01", said)
    assert row.message == "GPU 2: NVML gives no handle of it"
    assert shown(row)[-1].endswith("GPU 2: NVML gives no handle of it")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("driver_not_loaded", "no NVIDIA driver is loaded"),
        ("driver_library_mismatch", "different versions"),
        ("timeout", "does not answer"),
    ],
)
def test_a_probe_without_gpus_says_why(status: str, words: str) -> None:
    row = host_row("gpu01", facts(status=status))
    assert row.state == status
    assert words in "\n".join(shown(row))


def test_a_host_without_gpus_and_one_that_is_unreachable_have_a_line_each() -> None:
    bare = host_row("cpu01", facts(gpus=[], gpu_probe=None, gpu_probe_reason="not_supported"))
    away = HostRow("gpu09", "unreachable", "no answer from 172.28.0.19:22 in 15 s", "look at its power")
    lines = shown(bare, away)
    assert lines[0] == "2 hosts · 0 GPUs · 0 in use · 1 unreachable"
    assert "no NVIDIA GPU" in lines[3]
    assert "no answer from 172.28.0.19:22 in 15 s" in lines[4]


def test_a_host_that_was_asked_without_root_against_its_settings_says_so() -> None:
    row = replace(host_row("gpu01", facts(device())), note="asked without root: sudo needs a password")
    lines = shown(row)
    assert lines[3].startswith("gpu01")
    assert lines[4].split() == ["asked", "without", "root:", "sudo", "needs", "a", "password"]
    assert validate(json.loads(json.dumps(document([row]))), "status") == []


def test_simulated_hardware_is_marked() -> None:
    row = host_row("gpu01", facts(device(), simulated=True))
    assert "gpu01 (simulated)" in shown(row)[3]
    assert document([row])["hosts"][0]["simulated"] is True


def test_a_host_that_says_odd_things_cannot_draw_on_the_screen() -> None:
    lines = shown(host_row("gpu01", facts(device(processes=[process(command="\033[2Jpython\n")]))))
    assert "\033" not in "".join(lines)


def test_the_document_follows_its_schema() -> None:
    rows = [
        host_row("gpu01", facts(device(processes=[process()]))),
        host_row("cpu01", facts(gpus=[], gpu_probe=None, gpu_probe_reason="not_supported")),
        HostRow("gpu09", "unreachable", "no answer", None),
    ]  # fmt: skip
    found = json.loads(json.dumps(document(rows)))
    assert validate(found, "status") == []
    assert found["counts"] == {"hosts": 3, "unreachable": 1, "gpus": 1, "in_use": 1, "not_well": 0}


def test_no_line_is_wider_than_asked_but_by_what_must_be_said() -> None:
    many = [process(user=f"user{number}", pid=number) for number in range(30)]
    lines = shown(host_row("gpu01", facts(device(processes=many))), width=120)
    assert max(map(len, lines)) <= 120
