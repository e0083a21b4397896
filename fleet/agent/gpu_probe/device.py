"""The document of one GPU, whoever filled it (NVML, nvidia-smi's XML, text or CSV): keys, words, absent values.

Every key is always there. A value that is not known is null and has an entry in ``absent`` under its dotted
path (``ecc.volatile_corrected``, ``nvlinks.3.version``, ``mig.devices.0.profile``); a part that is null as a
whole has one for itself. Start with :func:`empty_device`, then use :func:`set_value` and :func:`set_absent`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Iterator, List, Optional, Tuple

    from fleet.agent.protocol import Json


# -- words ------------------------------------------------------------------------------------------

PROBE_STATUSES = (
    "ok",
    "driver_not_loaded",
    "driver_library_mismatch",
    "library_missing",
    "tool_missing",
    "no_devices",
    "gpu_error",
    "container_lost_gpu",
    "timeout",
    "error",
)
DEVICE_STATUSES = ("ok", "lost", "reset_required", "timeout", "error")
ABSENT_REASONS = ("not_supported", "permission", "gpu_lost", "mig", "error", "not_collected")
# By bit, of nvmlDeviceGetCurrentClocksEventReasons; what nvidia-smi calls clocks_event_reasons.
CLOCKS_EVENT_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
# By number, of nvmlDeviceGpuRecoveryAction_t.
RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
# By number, of the health mask's field; 0 is "not supported".
INCORRECT_CONFIGURATIONS = (
    None,
    "none",
    "incorrect_system_guid",
    "incorrect_chassis_serial",
    "no_partition",
    "insufficient_nvlinks",
    "incompatible_gpu_firmware",
    "invalid_location",
    "gpu_state_invalid",
)
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
VIRTUALIZATION_MODES = ("none", "passthrough", "vgpu", "host_vgpu", "host_vsga")
# By number, of nvmlNvlinkVersion_t: 1.0, 2.0, 2.2, 3.0, 3.1, 4.0 …
NVLINK_VERSIONS = (None, 1, 2, 2, 3, 3, 4, 5, 6)
NVLINK_REMOTE_TYPES = {0: "gpu", 1: "ibm_npu", 2: "nvswitch", 255: "unknown"}
PROCESS_KINDS = ("compute", "graphics", "mps")
TOPOLOGY_PATHS = ("NV", "PIX", "PXB", "PHB", "NODE", "SYS")
BRANDS = (
    "unknown quadro tesla nvs grid geforce titan vapps vpc vcs vws cloud_gaming quadro_rtx nvidia_rtx nvidia"
    " geforce_rtx titan_rtx dla vgamedev npu".split()
)
ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    11: "dla",
    12: "dla2",
    13: "rubin",
    15: "npu3",
}

# -- keys -------------------------------------------------------------------------------------------

# All of a Device in order. A tuple is a part with these keys. What is no measurement has a start of its own
# in :func:`empty_device`.
KEYS: Tuple[Any, ...] = (
    *"address printed_address status message index minor uuid serial name brand architecture".split(),
    *"compute_capability device_id subsystem_vendor_id subsystem_id board_id board_part_number".split(),
    *"gpu_part_number vbios_version inforom_image_version inforom_oem_version inforom_ecc_version".split(),
    *"inforom_power_version gsp_firmware_version gsp_firmware_enabled module_id".split(),
    *"memory_total_mib memory_used_mib memory_free_mib memory_reserved_mib bar1_total_mib bar1_used_mib".split(),
    *"graphics_clock_mhz sm_clock_mhz memory_clock_mhz video_clock_mhz max_graphics_clock_mhz".split(),
    *"max_sm_clock_mhz max_memory_clock_mhz max_video_clock_mhz performance_state".split(),
    *"clocks_event_reasons power_draw_w power_limit_w power_limit_default_w power_limit_min_w".split(),
    *"power_limit_max_w power_limit_enforced_w energy_mj temperature_c memory_temperature_c".split(),
    *"temperature_margin_c temperature_slowdown_c temperature_shutdown_c temperature_max_operating_c".split(),
    *"fan_speed_percent gpu_utilization_percent memory_utilization_percent ecc_mode ecc_mode_pending".split(),
    (
        "ecc",
        "volatile_corrected volatile_uncorrected aggregate_corrected aggregate_uncorrected"
        " volatile_sram_uncorrected aggregate_sram_uncorrected volatile_dram_uncorrected"
        " aggregate_dram_uncorrected sram_threshold_exceeded".split(),
    ),
    ("retired_pages", ["single_bit", "double_bit", "pending"]),
    ("remapped_rows", ["corrected", "uncorrected", "pending", "failure", "histogram"]),
    (
        "pcie",
        "generation width generation_max_gpu generation_max generation_max_host width_max replays"
        " sampled_under_load".split(),
    ),
    "nvlinks",
    ("fabric", ["state", "status", "cluster_uuid", "clique_id", "health"]),
    ("mig", ["mode", "mode_pending", "max_devices", "devices"]),
    *"numa_node cpu_affinity persistence_mode compute_mode virtualization_mode recovery_action".split(),
    *"processes absent implausible".split(),
)
HISTOGRAM_KEYS = ("max", "high", "partial", "low", "none")
HEALTH_KEYS = (
    "degraded_bandwidth",
    "route_recovery",
    "route_unhealthy",
    "access_timeout_recovery",
    "incorrect_configuration",
)
NVLINK_KEYS = (
    "link active version speed_mb_s remote_type remote_address crc_flit_errors crc_data_errors replay_errors"
    " recovery_errors".split()
)
MIG_DEVICE_KEYS = "uuid profile gpu_instance compute_instance memory_total_mib".split()
PROCESS_KEYS = "pid kind memory_used_mib command user uid container_id container_name unit".split()

# What is said of a GPU and not measured: no entry in ``absent`` where it is null or empty.
_STARTS: Json = {
    "address": None,
    "status": "ok",
    "message": None,
    "pcie.sampled_under_load": False,
    "mig.devices": [],
    "absent": {},
    "implausible": [],
}


def paths() -> Iterator[str]:
    """The dotted path of every value of a Device that may be absent, in order."""
    for key in KEYS:
        if isinstance(key, tuple):
            for name in key[1]:
                if "%s.%s" % (key[0], name) not in _STARTS:
                    yield "%s.%s" % (key[0], name)
        elif key not in _STARTS:
            yield key


def empty_device(address: str, reason: str, code: Optional[int] = None) -> Json:
    """A Device with all keys, every value null for ``reason`` (:data:`ABSENT_REASONS`); ``code``: NVML's error."""
    device: Json = {}
    for key in KEYS:
        if isinstance(key, tuple):
            device[key[0]] = {name: _start("%s.%s" % (key[0], name)) for name in key[1]}
        else:
            device[key] = _start(key)
    device["address"] = address
    for path in paths():
        set_absent(device, path, reason, code)
    return device


def _start(path: str) -> Any:
    value = _STARTS.get(path)
    return value.copy() if isinstance(value, (list, dict)) else value


def set_absent(
    device: Json, path: str, reason: str, nvml_error: Optional[int] = None, text: Optional[str] = None
) -> None:
    """Make the value at a dotted path null, and say why.

    ``text`` is what was shown instead of a value where that is worth keeping (``Unknown Error``). Below
    ``nvlinks`` the second word is the link's number, below ``mig.devices`` the place in the list, below
    ``processes`` the pid; such an entry must exist.
    """
    place, key = _place(device, path)
    place[key] = None
    device["absent"][path] = {"reason": reason, "nvml_error": nvml_error, "text": text}


def set_value(device: Json, path: str, value: Any) -> None:
    """Set the value at a dotted path; None is refused with ValueError: :func:`set_absent` says why."""
    if value is None:
        raise ValueError("%s: an absent value needs a reason" % path)
    place, key = _place(device, path)
    place[key] = value
    device["absent"].pop(path, None)


def value_at(device: Json, path: str) -> Any:
    """The value at a dotted path, as :func:`set_absent` reads it."""
    place, key = _place(device, path)
    return place[key]


def _place(device: Json, path: str) -> Tuple[Any, str]:
    words = path.split(".")
    if words[0] in ("nvlinks", "processes") and len(words) == 3:
        entries: List[Json] = device[words[0]] or []
        name = "link" if words[0] == "nvlinks" else "pid"
        return next(entry for entry in entries if entry[name] == int(words[1])), words[2]
    place: Any = device
    for word in words[:-1]:
        place = place[int(word)] if isinstance(place, list) else place[word]
    return place, words[-1]
