"""Devices of ``facts.gpu_probe`` as healthy GPUs give them, for every test that needs one.

Five models: ``h100`` (SXM, behind NVSwitch), ``h200`` (SXM, in a virtual machine without NVSwitch), ``rtx4090`` (no
ECC counters, no NVLink, no fabric: most of it is not supported), ``t4`` (page retirement is not remapping) and
``a100_mig`` (MIG on, so no utilisation). Values are those of such cards at rest. What a card does not have is null with
an entry in ``absent``, as the probe writes it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tests.paths import set_path

Json = dict[str, Any]

#: What a data centre card of today answers to everything; a model's own values are laid over it.
_EVERYTHING: Json = {
    "status": "ok", "message": None, "index": 0, "minor": 0,
    "uuid": "GPU-00000000-0000-4000-8000-000000000000", "serial": "1650000000000",
    "name": "NVIDIA H100 80GB HBM3", "brand": "nvidia", "architecture": "hopper", "compute_capability": "9.0",
    "device_id": "2330", "subsystem_vendor_id": "10de", "subsystem_id": "16c1",
    "board_id": 6912, "board_part_number": "692-2G520-0200-000", "gpu_part_number": "2330-885-A1",
    "vbios_version": "96.00.89.00.01", "inforom_image_version": "G520.0200.00.05", "inforom_oem_version": "2.1",
    "inforom_ecc_version": "7.16", "inforom_power_version": None,
    "gsp_firmware_version": "580.159.03", "gsp_firmware_enabled": True, "module_id": 1,
    "memory_total_mib": 81559, "memory_used_mib": 0, "memory_free_mib": 81007, "memory_reserved_mib": 551,
    "bar1_total_mib": 131072, "bar1_used_mib": 1,
    "graphics_clock_mhz": 345, "sm_clock_mhz": 345, "memory_clock_mhz": 2619, "video_clock_mhz": 765,
    "max_graphics_clock_mhz": 1980, "max_sm_clock_mhz": 1980, "max_memory_clock_mhz": 2619,
    "max_video_clock_mhz": 1545, "performance_state": 0, "clocks_event_reasons": ["gpu_idle"],
    "power_draw_w": 71.4, "power_limit_w": 700.0, "power_limit_default_w": 700.0, "power_limit_min_w": 200.0,
    "power_limit_max_w": 700.0, "power_limit_enforced_w": 700.0, "energy_mj": 4_500_000_000,
    "temperature_c": 31, "memory_temperature_c": 38, "temperature_margin_c": 54, "temperature_slowdown_c": None,
    "temperature_shutdown_c": None, "temperature_max_operating_c": None, "fan_speed_percent": None,
    "gpu_utilization_percent": 0, "memory_utilization_percent": 0,
    "ecc_mode": "enabled", "ecc_mode_pending": "enabled",
    "ecc": {
        "volatile_corrected": 0, "volatile_uncorrected": 0, "aggregate_corrected": 0, "aggregate_uncorrected": 0,
        "volatile_sram_uncorrected": 0, "aggregate_sram_uncorrected": 0, "volatile_dram_uncorrected": 0,
        "aggregate_dram_uncorrected": 0, "sram_threshold_exceeded": False,
    },
    "retired_pages": {"single_bit": None, "double_bit": None, "pending": None},
    "remapped_rows": {
        "corrected": 0, "uncorrected": 0, "pending": False, "failure": False,
        "histogram": {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
    },
    "pcie": {
        "generation": 5, "width": 16, "generation_max_gpu": 5, "generation_max": 5, "generation_max_host": 5,
        "width_max": 16, "replays": 0, "sampled_under_load": False,
    },
    "nvlinks": None,
    "fabric": {
        "state": "completed", "status": 0, "cluster_uuid": "00000000-0000-0000-0000-000000000000", "clique_id": 0,
        "health": {
            "degraded_bandwidth": False, "route_recovery": False, "route_unhealthy": False,
            "access_timeout_recovery": False, "incorrect_configuration": None,
        },
    },
    "mig": {"mode": "disabled", "mode_pending": "disabled", "max_devices": 7, "devices": []},
    "numa_node": 0, "cpu_affinity": "0-95", "persistence_mode": True, "compute_mode": "default",
    "virtualization_mode": "none", "recovery_action": "none", "processes": [],
    "implausible": [],
}  # fmt: skip

_NO_ECC: Json = {
    "ecc_mode": None, "ecc_mode_pending": None,
    "ecc": {**dict.fromkeys(_EVERYTHING["ecc"])},
    "remapped_rows": {**dict.fromkeys(_EVERYTHING["remapped_rows"])},
}  # fmt: skip
_NO_FABRIC: Json = {
    "fabric": {
        "state": "not_supported",
        "status": None,
        "cluster_uuid": None,
        "clique_id": None,
        "health": None,
    }
}
_NO_MIG: Json = {"mig": {"mode": None, "mode_pending": None, "max_devices": None, "devices": []}}


def _links(count: int, version: int, speed_mb_s: int, remote: str, address: str | None) -> list[Json]:
    errors = dict.fromkeys(("crc_flit_errors", "crc_data_errors", "replay_errors", "recovery_errors"), 0)
    return [
        {
            "link": link, "active": True, "version": version, "speed_mb_s": speed_mb_s, "remote_type": remote,
            "remote_address": address, **errors,
        }
        for link in range(count)
    ]  # fmt: skip


_MODELS: dict[str, Json] = {
    "h100": {"nvlinks": _links(18, 4, 26562, "nvswitch", "0000:07:00.0")},
    "h200": {
        "name": "NVIDIA H200", "device_id": "2335", "subsystem_id": "18bf", "gpu_part_number": "2335-895-A1",
        "memory_total_mib": 143771, "memory_free_mib": 143156, "memory_reserved_mib": 616, "bar1_total_mib": 262144,
        "memory_clock_mhz": 3201, "max_memory_clock_mhz": 3201, "nvlinks": _links(18, 4, 26562, "nvswitch", None),
        "remapped_rows.histogram.max": 3072, "virtualization_mode": "passthrough", "fabric.health": None,
        "pcie.generation_max_host": None,
    },
    "rtx4090": {
        **_NO_ECC, **_NO_FABRIC, **_NO_MIG,
        "name": "NVIDIA GeForce RTX 4090", "brand": "geforce", "architecture": "ada", "compute_capability": "8.9",
        "device_id": "2684", "subsystem_vendor_id": "1462", "subsystem_id": "5110", "serial": None,
        "board_part_number": None, "inforom_image_version": "G002.0000.00.03", "inforom_ecc_version": None,
        "inforom_oem_version": "2.0", "module_id": None, "memory_total_mib": 24564, "memory_free_mib": 24081,
        "memory_reserved_mib": 481, "bar1_total_mib": 32768, "graphics_clock_mhz": 210, "sm_clock_mhz": 210,
        "memory_clock_mhz": 405, "max_graphics_clock_mhz": 3105, "max_sm_clock_mhz": 3105,
        "max_memory_clock_mhz": 10501, "max_video_clock_mhz": 2415, "performance_state": 8, "power_draw_w": 14.9,
        "power_limit_w": 450.0, "power_limit_default_w": 450.0, "power_limit_min_w": 150.0,
        "power_limit_max_w": 600.0, "power_limit_enforced_w": 450.0, "energy_mj": None,
        "memory_temperature_c": None, "fan_speed_percent": 0, "temperature_margin_c": None,
        "pcie": {
            "generation": 1, "width": 16, "generation_max_gpu": 4, "generation_max": 4, "generation_max_host": 4,
            "width_max": 16, "replays": 0, "sampled_under_load": False,
        },
        "recovery_action": None,
    },
    "t4": {
        **_NO_FABRIC, **_NO_MIG,
        "name": "Tesla T4", "brand": "tesla", "architecture": "turing", "compute_capability": "7.5",
        "device_id": "1eb8", "subsystem_id": "12a2", "board_part_number": "900-2G183-0000-001",
        "inforom_image_version": "G183.0200.00.02", "inforom_ecc_version": "5.0", "module_id": None,
        "memory_total_mib": 15360, "memory_free_mib": 14910, "memory_reserved_mib": 448, "bar1_total_mib": 256,
        "graphics_clock_mhz": 300, "sm_clock_mhz": 300, "memory_clock_mhz": 405, "max_graphics_clock_mhz": 1590,
        "max_sm_clock_mhz": 1590, "max_memory_clock_mhz": 5001, "max_video_clock_mhz": 1470,
        "performance_state": 8, "power_draw_w": 9.6, "power_limit_w": 70.0, "power_limit_default_w": 70.0,
        "power_limit_min_w": 60.0, "power_limit_max_w": 70.0, "power_limit_enforced_w": 70.0,
        "memory_temperature_c": None, "temperature_margin_c": None, "temperature_slowdown_c": 93,
        "temperature_shutdown_c": 96, "temperature_max_operating_c": 85, "temperature_c": 33,
        "ecc": {**dict.fromkeys(_EVERYTHING["ecc"], 0), "sram_threshold_exceeded": None},
        "retired_pages": {"single_bit": 0, "double_bit": 0, "pending": False},
        "remapped_rows": {**dict.fromkeys(_EVERYTHING["remapped_rows"])},
        "pcie": {
            "generation": 1, "width": 16, "generation_max_gpu": 3, "generation_max": 3, "generation_max_host": 4,
            "width_max": 16, "replays": 0, "sampled_under_load": False,
        },
        "recovery_action": None,
    },
    "a100_mig": {
        **_NO_FABRIC,
        "name": "NVIDIA A100-SXM4-80GB", "architecture": "ampere", "compute_capability": "8.0",
        "device_id": "20b2", "subsystem_id": "1463", "gpu_part_number": "20B2-895-A1",
        "memory_total_mib": 81920, "memory_used_mib": 87, "memory_free_mib": 81050, "memory_reserved_mib": 783,
        "graphics_clock_mhz": 210, "sm_clock_mhz": 210, "memory_clock_mhz": 1593, "max_graphics_clock_mhz": 1410,
        "max_sm_clock_mhz": 1410, "max_memory_clock_mhz": 1593, "max_video_clock_mhz": 1290,
        "power_draw_w": 68.1, "power_limit_w": 400.0, "power_limit_default_w": 400.0, "power_limit_min_w": 100.0,
        "power_limit_max_w": 400.0, "power_limit_enforced_w": 400.0, "temperature_slowdown_c": 92,
        "temperature_shutdown_c": 95, "temperature_max_operating_c": 85,
        "gpu_utilization_percent": None, "memory_utilization_percent": None, "clocks_event_reasons": [],
        "remapped_rows.histogram.max": 640,
        "pcie": {
            "generation": 4, "width": 16, "generation_max_gpu": 4, "generation_max": 4, "generation_max_host": 4,
            "width_max": 16, "replays": 0, "sampled_under_load": False,
        },
        "mig": {
            "mode": "enabled", "mode_pending": "enabled", "max_devices": 7,
            "devices": [
                {
                    "uuid": f"MIG-00000000-0000-5000-8000-00000000000{place}", "profile": "3g.40gb",
                    "gpu_instance": place, "compute_instance": 0, "memory_total_mib": 40192,
                }
                for place in (1, 2)
            ],
        },
    },
}  # fmt: skip

#: By model: how many there are in the host, and the addresses they are at.
HOSTS: dict[str, tuple[str, ...]] = {
    "h100": tuple(f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")),
    "h200": ("0000:00:06.0", "0000:00:07.0"),
    "rtx4090": ("0000:01:00.0",),
    "t4": ("0000:3b:00.0", "0000:af:00.0"),
    "a100_mig": ("0000:07:00.0",),
}
#: With MIG on, the driver answers neither these nor NVLink.
_MIG_HIDES = ("gpu_utilization_percent", "memory_utilization_percent", "nvlinks")
#: Null is what these say where nothing is wrong; no reason goes with it.
_NULL_IS_AN_ANSWER = ("message",)


def healthy_device(model: str = "h100", place: int = 0, changes: Mapping[str, Any] | None = None) -> Json:
    """The ``place``-th Device of a healthy host of a model, with ``changes`` by dotted path laid over it.

    A value that is null, also by a change, has an entry in ``absent``: not_supported, or mig.
    """
    device = copy.deepcopy(_EVERYTHING)
    address = HOSTS[model][place % len(HOSTS[model])]
    uuid = f"GPU-00000000-0000-4000-8000-{place:012d}"
    own = {
        "address": address, "printed_address": f"0000{address.upper()}", "index": place, "minor": place,
        "uuid": uuid, "board_id": int(address[5:7], 16) * 256,
    }  # fmt: skip
    for path, value in ({**own, **_MODELS[model], **(changes or {})}).items():
        set_path(device, path, copy.deepcopy(value))
    absent = {
        path: {
            "reason": "mig" if model == "a100_mig" and path in _MIG_HIDES else "not_supported",
            "nvml_error": 3,
            "text": None,
        }
        for path in null_paths(device)
    }
    return {**device, "absent": {**absent, **(changes or {}).get("absent", {})}}


def null_paths(value: Json, prefix: str = "") -> list[str]:
    """The dotted paths of a Device's null leaves. Below ``nvlinks`` a link's number stands for its place."""
    found: list[str] = []
    for name, each in value.items():
        if name in _NULL_IS_AN_ANSWER:
            continue
        if each is None:
            found.append(prefix + name)
        elif isinstance(each, dict):
            found += null_paths(each, f"{prefix}{name}.")
        elif name in ("nvlinks", "devices"):
            for place, entry in enumerate(each):
                found += null_paths(entry, f"{prefix}{name}.{entry.get('link', place)}.")
    return found


def absent(reason: str, nvml_error: int | None = None, text: str | None = None) -> Json:
    """An entry of ``absent``."""
    return {"reason": reason, "nvml_error": nvml_error, "text": text}


def healthy_probe(model: str = "h100", changes: Mapping[str, Any] | None = None) -> Json:
    """``facts.gpu_probe`` of a healthy host of a model; a number in a path is a place: ``devices.0.pcie.width``."""
    addresses = HOSTS[model]
    linked = model in ("h100", "h200")
    topology = [
        {
            "a": a, "b": b, "path": "NV" if linked else "PHB", "nvlinks": 18 if linked else None,
            "peer_to_peer": "ok" if linked else None,
        }
        for place, a in enumerate(addresses)
        for b in addresses[place + 1 :]
    ]  # fmt: skip
    probe: Json = {
        "status": "ok", "message": None, "nvml_error": None, "source": "nvml", "duration_s": 0.21,
        "binding": "13.615.71", "driver_version": "580.159.03", "nvml_version": "13.580.159.03",
        "cuda_version": "13.0", "devices": [healthy_device(model, place) for place in range(len(addresses))],
        "missing": [], "topology": topology,
    }  # fmt: skip
    for path, value in (changes or {}).items():
        set_path(probe, path, copy.deepcopy(value))
    return probe
