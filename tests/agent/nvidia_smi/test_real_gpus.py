"""Outputs of real GPUs, read whole: each file's facts as somebody read them in it. Skipped without the files."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fleet.agent.nvidia_smi import csv, listing, nvlink, states, table, text, xml
from tests.agent.nvidia_smi.captured import SAMPLES, names, needs_samples, read, section
from tests.agent.nvidia_smi.whole import assert_document, assert_whole

pytestmark = needs_samples

NA = "not_supported"
# file -> (status, GPUs, driver, CUDA, first address, {path: value of the first GPU}, {path: reason})
XML: dict[str, tuple[str, int, str, str, str, dict[str, Any], dict[str, str]]] = {
    "smi-qx_MOCK_gb200_fabric_degraded.xml": (
        "ok", 2, "580.65.06", "13.0", "0000:0a:00.0",
        {"name": "NVIDIA GB200", "memory_total_mib": 196608, "power_draw_w": 145.0, "power_limit_w": 1000.0,
         "pcie.generation": 6, "fabric.health.route_unhealthy": False, "board_id": 0xA00},
        {"remapped_rows.histogram": NA, "recovery_action": NA},
    ),
    "smi-qx_MOCK_gb200_gpu1_lost.xml": (
        "gpu_error", 2, "580.65.06", "13.0", "0000:0a:00.0",
        {"status": "ok", "ecc.volatile_dram_uncorrected": 5, "ecc.aggregate_dram_uncorrected": 8,
         "remapped_rows.failure": True, "remapped_rows.uncorrected": 1, "temperature_c": 63},
        {"ecc.volatile_sram_uncorrected": NA, "pcie.generation_max_host": "error"},
    ),
    "smi-qx_a100-sxm4_v12.xml": (
        "error", 1, "535.54.03", "12.2", "0000:01:00.0",
        {"name": "NVIDIA A100-SXM4-80GB", "memory_total_mib": 81920, "power_draw_w": 67.03, "power_limit_w": 500.0,
         "mig.mode": "enabled", "temperature_slowdown_c": 89, "minor": 1, "module_id": 4, "status": "ok"},
        {"gpu_utilization_percent": "mig", "remapped_rows.pending": "mig", "recovery_action": "not_collected"},
    ),
    "smi-qx_a100.xml": (
        "ok", 1, "570.148.08", "12.8", "0000:06:00.0",
        {"name": "NVIDIA A100-SXM4-40GB", "memory_total_mib": 40960, "power_draw_w": 49.68, "power_limit_w": 400.0,
         "remapped_rows.histogram": {"max": 640, "high": 0, "partial": 0, "low": 0, "none": 0},
         "ecc.aggregate_uncorrected": 0, "ecc_mode": "enabled", "mig.mode": "disabled", "recovery_action": "none"},
        {"temperature_margin_c": NA, "fabric.state": NA, "fan_speed_percent": NA},
    ),
    "smi-qx_a10g.xml": (
        "ok", 1, "515.105.01", "11.7", "0000:00:1e.0",
        {"name": "NVIDIA A10G", "memory_total_mib": 23028, "power_draw_w": 25.58, "power_limit_w": 300.0,
         "power_limit_enforced_w": 300.0, "pcie.generation": 1, "pcie.generation_max": 4, "pcie.width": 8,
         "remapped_rows.uncorrected": 0, "fan_speed_percent": 0, "clocks_event_reasons": ["gpu_idle"]},
        {"mig.mode": NA, "device_id": "error", "pcie.generation_max_gpu": "not_collected"},
    ),
    "smi-qx_b200.xml": (
        "ok", 8, "580.105.08", "13.0", "0000:8f:00.0",
        {"name": "NVIDIA B200", "memory_total_mib": 183359, "power_draw_w": 195.79, "power_limit_w": 1000.0,
         "device_id": "2901", "subsystem_id": "1999", "temperature_margin_c": 49, "fabric.state": "completed",
         "fabric.status": 0, "architecture": "blackwell", "fabric.health.access_timeout_recovery": False},
        {"temperature_slowdown_c": "not_collected", "fabric.health.degraded_bandwidth": NA},
    ),
    "smi-qx_gb200.xml": (
        "ok", 4, "580.173.02", "13.0", "0000:29:00.0",
        {"name": "NVIDIA GB200", "memory_total_mib": 189471, "power_draw_w": 165.93, "power_limit_w": 1200.0,
         "fabric.health.degraded_bandwidth": False, "fabric.health.incorrect_configuration": None,
         "device_id": "2941", "pcie.generation_max_gpu": 6},
        {"fan_speed_percent": NA},
    ),
    "smi-qx_gb300.xml": (
        "ok", 4, "580.173.02", "13.0", "0008:06:00.0",
        {"name": "NVIDIA GB300", "memory_total_mib": 284208, "power_draw_w": 180.29, "power_limit_w": 1400.0,
         "pcie.generation": 6, "temperature_c": 38, "printed_address": "00000008:06:00.0"},
        {"retired_pages.single_bit": NA},
    ),
    "smi-qx_gtx-1660-ti.xml": (
        "ok", 1, "418.43", "10.1", "0000:43:00.0",
        {"name": "Graphics Device", "memory_total_mib": 5912, "power_draw_w": 8.93, "power_limit_w": 130.0,
         "device_id": "2184", "subsystem_vendor_id": "1458", "pcie.generation": 1, "pcie.generation_max": 3,
         "temperature_max_operating_c": 91, "memory_utilization_percent": 1},
        {"serial": NA, "ecc_mode": NA, "mig.mode": "not_collected", "remapped_rows.pending": "not_collected",
         "architecture": "not_collected"},
    ),
    "smi-qx_h100.xml": (
        "ok", 8, "580.105.08", "13.0", "0000:53:00.0",
        {"name": "NVIDIA H100 80GB HBM3", "memory_total_mib": 81559, "power_draw_w": 68.92, "pcie.replays": 150,
         "device_id": "2330", "temperature_c": 29, "temperature_margin_c": 58,
         "remapped_rows.histogram": {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0}},
        {"compute_capability": "not_collected", "energy_mj": "not_collected", "nvlinks": "not_collected"},
    ),
    "smi-qx_h200x2_580.159.04.xml": (
        "ok", 2, "580.159.04", "13.0", "0000:00:06.0",
        {"name": "NVIDIA H200", "memory_total_mib": 143771, "memory_free_mib": 143156, "memory_reserved_mib": 616,
         "power_draw_w": 80.38, "device_id": "2335", "subsystem_id": "18bf", "module_id": 6, "index": 0,
         "virtualization_mode": "passthrough", "inforom_image_version": "G520.0282.02.02", "processes": []},
        {"gpu_part_number": "", "inforom_power_version": NA, "pcie.generation_max_host": NA},
    ),
    "smi-qx_l40s.xml": (
        "ok", 1, "595.91.07", "13.2", "0000:30:00.0",
        {"name": "NVIDIA L40S", "memory_total_mib": 46068, "power_draw_w": 66.16, "pcie.width": 8,
         "pcie.width_max": 16, "architecture": "ada", "temperature_margin_c": 59},
        {"mig.mode": NA, "mig.mode_pending": NA},
    ),
    "smi-qx_quadro-p2000_v12.xml": (
        "ok", 1, "525.125.06", "12.0", "0000:17:00.0",
        {"name": "Quadro P2000", "brand": "quadro", "architecture": "pascal", "memory_total_mib": 5120,
         "power_draw_w": 4.61, "fan_speed_percent": 46, "temperature_slowdown_c": 101},
        {"ecc.volatile_corrected": NA, "ecc.volatile_dram_uncorrected": NA, "remapped_rows.failure": NA},
    ),
    "smi-qx_rtx-3080_v13.xml": (
        "ok", 1, "595.58.03", "13.2", "0000:0c:00.0",
        {"name": "NVIDIA GeForce RTX 3080", "brand": "geforce", "memory_total_mib": 10240, "power_draw_w": 142.33,
         "clocks_event_reasons": [], "pcie.generation": 4, "fan_speed_percent": 0},
        {"ecc_mode": NA, "remapped_rows.histogram": NA, "gsp_firmware_version": ""},
    ),
    "smi-qx_rtx-3090_v12.xml": (
        "ok", 1, "525.147.05", "12.0", "0000:00:10.0",
        {"name": "NVIDIA GeForce RTX 3090", "memory_total_mib": 24576, "power_draw_w": 27.23,
         "power_limit_w": 200.0, "power_limit_default_w": 350.0, "power_limit_max_w": 375.0, "pcie.generation": 1},
        {"ecc.aggregate_uncorrected": NA},
    ),
    "smi-qx_rtx-4000-sff-ada_v13.xml": (
        "ok", 1, "595.84", "13.2", "0000:06:00.0",
        {"brand": "nvidia_rtx", "memory_total_mib": 20475, "power_draw_w": 8.44, "power_limit_min_w": 30.0,
         "ecc_mode": "disabled", "fan_speed_percent": 30, "remapped_rows.pending": False},
        {"ecc.volatile_uncorrected": NA},
    ),
    "smi-qx_t4.xml": (
        "ok", 1, "595.91.07", "13.2", "0000:00:1e.0",
        {"name": "Tesla T4", "memory_total_mib": 15360, "power_draw_w": 33.51, "pcie.width": 8,
         "device_id": "1eb8", "ecc.aggregate_corrected": 1, "retired_pages.single_bit": 0,
         "retired_pages.pending": False, "temperature_slowdown_c": 93},
        {"remapped_rows.corrected": NA},
    ),
    "smi-qx_tesla-t4.xml": (
        "ok", 1, "515.105.01", "11.7", "0000:00:1e.0",
        {"name": "Tesla T4", "memory_used_mib": 1032, "power_draw_w": 26.78, "clocks_event_reasons": [],
         "persistence_mode": False, "retired_pages.double_bit": 0},
        {"recovery_action": "not_collected", "fan_speed_percent": NA},
    ),
}  # fmt: skip


def value(device: dict[str, Any], path: str) -> Any:
    found: Any = device
    for word in path.split("."):
        found = found[word]
    return found


def test_every_xml_file_is_known_here() -> None:
    assert set(names("smi-qx_*.xml")) == set(XML)


@pytest.mark.parametrize("name", XML)
def test_xml(name: str) -> None:
    status, count, driver, cuda, address, facts, absent = XML[name]
    document = xml.parse(read(name))
    assert_document(document)
    assert (document["status"], len(document["devices"])) == (status, count)
    assert (document["driver_version"], document["cuda_version"]) == (driver, cuda)
    device = document["devices"][0]
    assert device["address"] == address
    assert {path: value(device, path) for path in facts} == facts
    for path, reason in absent.items():
        assert reason in ("", device["absent"].get(path, {}).get("reason")), path


def test_the_lost_gpu_of_a_pair() -> None:
    lost = xml.parse(read("smi-qx_MOCK_gb200_gpu1_lost.xml"))["devices"][1]
    assert (lost["address"], lost["status"], lost["name"]) == ("0000:0b:00.0", "lost", "NVIDIA GB200")
    hidden = [path for path, entry in lost["absent"].items() if entry["text"] == "GPU is lost"]
    assert {"memory_total_mib", "memory_reserved_mib", "gpu_utilization_percent", "temperature_c", "power_draw_w",
            "sm_clock_mhz", "video_clock_mhz", "fabric.state", "fabric.health", "remapped_rows.pending",
            "ecc.volatile_dram_uncorrected", "ecc.volatile_corrected"} <= set(hidden)  # fmt: skip
    assert all(lost["absent"][path]["reason"] == "gpu_lost" for path in hidden)
    assert (lost["power_limit_w"], lost["bar1_total_mib"]) == (1000.0, 524288)


def test_the_route_of_one_gpu_of_a_pair_is_unhealthy() -> None:
    devices = xml.parse(read("smi-qx_MOCK_gb200_fabric_degraded.xml"))["devices"]
    assert [device["fabric"]["health"]["route_unhealthy"] for device in devices] == [False, True]


def test_four_slices_of_an_a100() -> None:
    slices = xml.parse(read("smi-qx_a100-sxm4_v12.xml"))["devices"][0]["mig"]["devices"]
    assert [one["gpu_instance"] for one in slices] == [3, 4, 5, 6]
    assert {one["memory_total_mib"] for one in slices} == {19968}


def test_processes_of_a_workstation_and_of_servers() -> None:
    def kinds(name: str) -> list[str]:
        return sorted(one["kind"] for one in xml.parse(read(name))["devices"][0]["processes"])

    assert len(kinds("smi-qx_rtx-4000-sff-ada_v13.xml")) == 4
    assert (len(kinds("smi-qx_a10g.xml")), len(kinds("smi-qx_tesla-t4.xml"))) == (1, 2)


def test_text_and_xml_of_one_host_agree_but_for_what_moved_between_the_calls() -> None:
    of_xml = xml.parse(read("smi-qx_h200x2_580.159.04.xml"))
    of_text = text.parse(read("smi-q_h200x2_580.159.04.txt"))
    assert_document(of_text)
    moving = {"power_draw_w", "temperature_c", "memory_temperature_c", "temperature_margin_c"}
    assert (of_text["status"], len(of_text["devices"])) == ("ok", 2)
    for one, other in zip(of_xml["devices"], of_text["devices"], strict=True):
        assert [key for key in one if one[key] != other[key] and key not in moving] == []
    assert of_text["devices"][0]["power_draw_w"] == 79.4


@pytest.mark.parametrize(
    ("name", "count", "facts"),
    [
        ("sb-sysinfo_v100_accelerator.json", 2,
         {"name": "Tesla V100-PCIE-32GB", "device_id": "1db6", "memory_total_mib": 32510, "power_draw_w": 35.85,
          "ecc.volatile_corrected": 0, "ecc.aggregate_uncorrected": 0, "ecc.aggregate_dram_uncorrected": 0,
          "ecc.volatile_sram_uncorrected": None, "retired_pages.double_bit": 0, "retired_pages.pending": False,
          "clocks_event_reasons": [], "remapped_rows.pending": None}),
        ("sb-sysinfo_a100_nd96asr_v4_accelerator.json", 8,
         {"name": "A100-SXM4-40GB", "address": "0001:00:00.0", "device_id": "20b0", "memory_total_mib": 40536,
          "ecc.volatile_uncorrected": 0, "remapped_rows.failure": False, "power_limit_w": 400.0,
          "clocks_event_reasons": ["gpu_idle"]}),
    ],
)  # fmt: skip
def test_xml_that_another_tool_kept_as_json(name: str, count: int, facts: dict[str, Any]) -> None:
    info = json.loads(read(name))["Accelerator"]["nvidia_info"]
    document = xml.parse(f"<nvidia_smi_log>{_elements(info)}</nvidia_smi_log>")
    assert_document(document)
    assert (document["status"], len(document["devices"])) == ("ok", count)
    device = document["devices"][0]
    assert {path: value(device, path) for path in facts} == facts


def _elements(found: dict[str, Any]) -> str:
    printed = ""
    for name, below in found.items():
        for one in below if isinstance(below, list) else [below]:
            if name.startswith("@"):
                continue
            attribute = f' id="{one["@id"]}"' if isinstance(one, dict) and "@id" in one else ""
            body = _elements(one) if isinstance(one, dict) else str(one or "")
            printed += f"<{name}{attribute}>{body}</{name}>"
    return printed


# file -> (driver, CUDA, name, address, device, subsystem, total, {path: value under load}, processes, slices)
CAPTURES: dict[str, tuple[str, str, str, str, str, str, int, dict[str, Any], int, int]] = {
    "capture_nvidia-geforce-rtx-2080-super__610.57.04.txt": (
        "610.57.04", "13.3", "NVIDIA GeForce RTX 2080 SUPER", "0000:0c:00.0", "1e81", "4005", 8192,
        {"memory_used_mib": 815, "power_draw_w": 97.75, "power_limit_w": 250.0, "power_limit_max_w": 350.0,
         "temperature_c": 38, "pcie.generation": 3, "ecc_mode": None, "fan_speed_percent": 38,
         "gpu_utilization_percent": 8, "subsystem_vendor_id": "1458", "temperature_shutdown_c": 100}, 4, 0),
    "capture_nvidia-geforce-rtx-4080-super__595.71.05.txt": (
        "595.71.05", "13.2", "NVIDIA GeForce RTX 4080 SUPER", "0000:01:00.0", "2702", "5110", 16376,
        {"memory_used_mib": 1474, "power_draw_w": 86.41, "temperature_c": 45, "pcie.generation": 4,
         "serial": None, "ecc.volatile_corrected": None, "fan_speed_percent": 0}, 7, 0),
    "capture_nvidia-h100-80gb-hbm3__590.48.01.txt": (
        "590.48.01", "13.1", "NVIDIA H100 80GB HBM3", "0000:00:09.0", "2330", "16c1", 81559,
        {"memory_used_mib": 19818, "power_draw_w": 588.39, "temperature_c": 59, "pcie.generation": 5,
         "ecc_mode": "enabled", "gpu_utilization_percent": 100, "clocks_event_reasons": []}, 3, 0),
    "capture_nvidia-h100-mig__590.48.01.txt": (
        "590.48.01", "13.1", "NVIDIA H100 80GB HBM3", "0000:00:09.0", "2330", "16c1", 81559,
        {"memory_used_mib": 11125, "power_draw_w": 444.72, "mig.mode": "enabled", "gpu_utilization_percent": None,
         "pcie.replays": 9}, 3, 4),
    "capture_nvidia-h200-mig__590.48.01.txt": (
        "590.48.01", "13.1", "NVIDIA H200", "0000:83:00.0", "2335", "18be", 143771,
        {"memory_used_mib": 16959, "power_draw_w": 292.14, "mig.mode": "enabled", "remapped_rows.pending": None}, 3, 5),
    "capture_nvidia-h200__590.48.01.txt": (
        "590.48.01", "13.1", "NVIDIA H200", "0000:83:00.0", "2335", "18be", 143771,
        {"memory_used_mib": 32362, "power_draw_w": 625.24, "temperature_c": 52, "remapped_rows.pending": False,
         "remapped_rows.histogram": {"max": 3072, "high": 0, "partial": 0, "low": 0, "none": 0}}, 3, 0),
    "capture_nvidia-l40s__595.80.txt": (
        "595.80", "13.2", "NVIDIA L40S", "0000:01:00.0", "26b9", "1851", 46068,
        {"memory_used_mib": 1235, "power_draw_w": 110.01, "temperature_c": 54, "pcie.generation": 4}, 2, 0),
}  # fmt: skip


def test_every_capture_of_many_commands_is_known_here() -> None:
    assert set(names("capture_*")) == set(CAPTURES)


@pytest.mark.parametrize("name", CAPTURES)
def test_text_under_load(name: str) -> None:
    driver, cuda, product, address, device_id, subsystem, total, facts, processes, slices = CAPTURES[name]
    document = text.parse(section(name, "load", "query (-q)"))
    assert_document(document)
    assert (document["status"], document["driver_version"], document["cuda_version"]) == ("ok", driver, cuda)
    device = document["devices"][0]
    assert (device["name"], device["address"], device["memory_total_mib"]) == (product, address, total)
    assert (device["device_id"], device["subsystem_id"]) == (device_id, subsystem)
    assert {path: value(device, path) for path in facts} == facts
    assert len(device["processes"]) == processes
    assert len(device["mig"]["devices"]) == slices


@pytest.mark.parametrize("name", CAPTURES)
@pytest.mark.parametrize("phase", ["idle", "load"])
def test_csv_and_table_say_what_the_text_says(name: str, phase: str) -> None:
    of_text = text.parse(section(name, phase, "query (-q)"))
    of_csv = csv.parse_query(None, section(name, phase, "query-gpu (csv"))
    of_table = table.parse(section(name, phase, "default table"))
    for document in (of_text, of_csv, of_table):
        assert_document(document)
        assert (document["status"], document["driver_version"]) == ("ok", of_text["driver_version"])
    assert of_table["cuda_version"] == of_text["cuda_version"]
    device, row, cells = (document["devices"][0] for document in (of_text, of_csv, of_table))
    still = [
        *[
            "address",
            "uuid",
            "serial",
            "device_id",
            "subsystem_id",
            "subsystem_vendor_id",
            "index",
            "vbios_version",
            "memory_total_mib",
        ],
        *[
            "memory_used_mib",
            "memory_reserved_mib",
            "performance_state",
            "power_limit_w",
            "power_limit_enforced_w",
        ],
        *[
            "power_limit_default_w",
            "power_limit_min_w",
            "power_limit_max_w",
            "max_sm_clock_mhz",
            "ecc_mode",
            "module_id",
        ],
        *[
            "ecc_mode_pending",
            "retired_pages",
            "fabric",
            "persistence_mode",
            "compute_mode",
            "recovery_action",
        ],
        *["clocks_event_reasons", "name", "gsp_firmware_enabled", "inforom_image_version"],
    ]
    assert [key for key in still if device[key] != row[key]] == []
    # With MIG on, CSV still shows the histogram.
    mig = {"histogram": None} if device["mig"]["mode"] == "enabled" else {}
    assert {**row["remapped_rows"], **mig} == device["remapped_rows"]
    assert {**row["pcie"], "replays": None} == {**device["pcie"], "replays": None}
    assert (row["mig"]["mode"], row["ecc"]["volatile_corrected"]) == (
        device["mig"]["mode"],
        device["ecc"]["volatile_corrected"],
    )
    assert row["compute_capability"] in ("7.5", "8.9", "9.0")
    assert (cells["address"], cells["memory_used_mib"]) == (device["address"], device["memory_used_mib"])
    assert (cells["fan_speed_percent"], cells["mig"]["mode"]) == (
        device["fan_speed_percent"],
        device["mig"]["mode"],
    )


@pytest.mark.parametrize("name", CAPTURES)
def test_processes_by_gpu(name: str) -> None:
    found = csv.parse_compute_apps(None, section(name, "load", "query-compute-apps"))
    device = text.parse(section(name, "load", "query (-q)"))["devices"][0]
    assert_whole(found[0])
    of_text = {one["pid"]: one["memory_used_mib"] for one in device["processes"] if one["kind"] == "compute"}
    assert {one["pid"]: one["memory_used_mib"] for one in found[0]["processes"]} == of_text


@pytest.mark.parametrize(
    ("name", "profiles", "links"),
    [
        ("capture_nvidia-geforce-rtx-2080-super__610.57.04.txt", [], []),
        ("capture_nvidia-geforce-rtx-4080-super__595.71.05.txt", [], NA),
        ("capture_nvidia-h100-80gb-hbm3__590.48.01.txt", [], [26562] * 18),
        ("capture_nvidia-h100-mig__590.48.01.txt", ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], "mig"),
        (
            "capture_nvidia-h200-mig__590.48.01.txt",
            ["1c.3g.71gb", "2c.3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"],
            "mig",
        ),
        ("capture_nvidia-h200__590.48.01.txt", [], [26562] * 18),
        ("capture_nvidia-l40s__595.80.txt", [], NA),
    ],
)
def test_slices_and_links(name: str, profiles: list[str], links: Any) -> None:
    device = text.parse(section(name, "load", "query (-q)"))["devices"][0]
    listing.apply([device], listing.parse(section(name, "capabilities", "list (-L)")))
    nvlink.apply([device], nvlink.parse(section(name, "capabilities", "nvlink -s")))
    assert_whole(device)
    assert [one["profile"] for one in device["mig"]["devices"]] == profiles
    if device["nvlinks"] is None:
        assert device["absent"]["nvlinks"]["reason"] == links
    else:
        assert [one["speed_mb_s"] for one in device["nvlinks"]] == links


def test_the_small_files() -> None:
    header = "index,name,temperature.gpu,clocks.sm,clocks.mem,utilization.gpu,utilization.memory,pstate,power.limit"
    document = csv.parse_query(header.split(","), read("extra/smi-query_unknown-error_row.csv"))
    assert_document(document)
    assert [one["status"] for one in document["devices"]] == ["error", "ok", "ok"]
    document = table.parse(read("extra/smi-table_ERR_row.txt"))
    assert_document(document)
    assert [(one["index"], one["status"]) for one in document["devices"]] == [(4, "ok"), (5, "error")]
    mismatch = states.classify(read("extra/smi_stdout_library-mismatch_rc18.txt"), "", 18)
    assert (mismatch["status"], mismatch["library_version"]) == ("driver_library_mismatch", "580.173")
    pages = text.parse(read("extra/page-retirement_8gpu_full.txt"))
    assert_document(pages)
    found = [tuple(one["retired_pages"].values()) for one in pages["devices"]]
    assert (len(found), found[0], found[1]) == (8, (60, 5, False), (2, 61, True))


def test_link_states() -> None:
    found = nvlink.parse(read("extra/nvlink-status_a100.txt"))
    assert len(found) == len(re.findall("^GPU", read("extra/nvlink-status_a100.txt"), re.M)) == 8
    assert [link["speed_mb_s"] for link in found[0]["links"]] == [25000] * 12
    assert nvlink.parse(read("extra/nvlink-status_a10.txt")) == []
    inactive = nvlink.parse(read("extra/nvlink-status_a100_all_inactive.txt"))[0]
    assert (inactive["links"], inactive["reason"]) == ([], None)
    assert len(nvlink.parse(read("extra/nvlink-status_a100_good.txt"))[0]["links"]) == 12
    assert SAMPLES.is_dir()
