#!/usr/bin/env python3
"""Holds a probe document (facts.gpu_probe) against NVML itself, function by function, by plain ctypes.

For every GPU and every field the function behind it is called again: the probe must be null exactly where that
returned an error, with that error's number in ``absent``; else it must have the same value, moving ones within a
tolerance. Imports nothing of fleet and no binding; structures are written here from nvml.h. Standard library only.

    fleet agent probe > facts.json; nvml_fields.py facts.json [--library FILE] [--json FILE]

FILE may hold facts, an agent's report or the probe document alone. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_longlong, c_ubyte, c_uint, c_ulonglong
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20
MISSING, WRONG_VERSION, TOO_SMALL = 13, 25, 7
NO_VALUE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
LINKS = 36

Answer = tuple[int, Any]  # NVML's return code, and the value where that is 0 (None: it says nothing)
Ask = Callable[["Nvml", Any], Answer]


class Nvml:
    """The library; a function it lacks returns 13, as NVML's own bindings have it."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.nvmlErrorString.restype = ctypes.c_char_p

    def __call__(self, function: str, *arguments: Any) -> int:
        try:
            found = getattr(self._library, function)
        except AttributeError:
            return MISSING
        return int(found(*arguments))

    def words(self, code: int) -> str:
        return str(self._library.nvmlErrorString(code).decode())


# -- ways to ask ------------------------------------------------------------------------------------


def number(function: str, *arguments: int, kind: Any = c_uint, convert: Any = None) -> Ask:
    """A function whose last argument is a pointer to a number."""

    def ask(nvml: Nvml, handle: Any) -> Answer:
        out = kind()
        code = nvml(function, handle, *arguments, byref(out))
        if code != 0 or out.value in NO_VALUE:
            return code, None
        return code, convert(out.value) if convert is not None else out.value

    return ask


def numbers(function: str, count: int, place: int, convert: Any = None) -> Ask:
    """One of several numbers that a function returns by pointers."""

    def ask(nvml: Nvml, handle: Any) -> Answer:
        out = [c_uint() for _ in range(count)]
        code = nvml(function, handle, *map(byref, out))
        if code != 0 or out[place].value in NO_VALUE:
            return code, None
        return code, convert(out[place].value) if convert is not None else out[place].value

    return ask


def text(function: str, *arguments: int, size: int = 96) -> Ask:
    """A function that fills a buffer of a size it is told."""

    def ask(nvml: Nvml, handle: Any) -> Answer:
        buffer = ctypes.create_string_buffer(size)
        return nvml(function, handle, *arguments, buffer, c_uint(size)), said(buffer.value)

    return ask


def said(raw: bytes) -> str | None:
    value = raw.decode("utf-8", "replace").strip()
    return None if value in ("", "N/A", "[N/A]") else value


def structure(function: str, layout: Any, read: Callable[[Any], Any], **start: Any) -> Ask:
    """A function that fills a structure; ``start`` are the fields that it wants set."""

    def ask(nvml: Nvml, handle: Any) -> Answer:
        out = layout(**start)
        code = nvml(function, handle, byref(out))
        return code, read(out) if code == 0 else None

    return ask


def field(identity: int, scope: int = 0) -> Ask:
    """One field value; its own return code, where the call itself was well."""

    def ask(nvml: Nvml, handle: Any) -> Answer:
        out = FieldValue(field=identity, scope=scope)
        code = nvml("nvmlDeviceGetFieldValues", handle, c_int(1), byref(out))
        if code == 0:
            code = out.result
        members = ("double", "u32", "u64", "u64", "i64", "i32", "u16")
        return code, getattr(out.value, members[out.type]) if code == 0 and out.type < 7 else None

    return ask


def first(*asks: Ask) -> Ask:
    """The first that the library knows, of newer and older functions."""

    def ask(nvml: Nvml, handle: Any) -> Answer:
        for each in asks[:-1]:
            code, value = each(nvml, handle)
            if code not in (MISSING, WRONG_VERSION):
                return code, value
        return asks[-1](nvml, handle)

    return ask


def counted(function: str, cause: int, *, times: bool) -> Ask:
    """How many retired pages there are."""

    def ask(nvml: Nvml, handle: Any) -> Answer:
        count = c_uint(0)
        none = (None, None) if times else (None,)
        code = nvml(function, handle, c_int(cause), byref(count), *none)
        return (0 if code == TOO_SMALL else code), count.value

    return ask


# -- structures of nvml.h ---------------------------------------------------------------------------


def layout(name: str, **fields: Any) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


class Value(ctypes.Union):
    _fields_ = (
        ("double", ctypes.c_double),
        ("u32", c_uint),
        ("u64", c_ulonglong),
        ("i64", c_longlong),
        ("i32", c_int),
        ("u16", ctypes.c_ushort),
    )


Pci = layout(
    "Pci", legacy=ctypes.c_char * 16, domain=c_uint, bus=c_uint, device=c_uint, id=c_uint, subsystem=c_uint,
    bus_id=ctypes.c_char * 32,
)  # fmt: skip
Memory = layout("Memory", total=c_ulonglong, free=c_ulonglong, used=c_ulonglong)
Memory2 = layout(
    "Memory2", version=c_uint, total=c_ulonglong, reserved=c_ulonglong, free=c_ulonglong, used=c_ulonglong
)
FieldValue = layout(
    "FieldValue", field=c_uint, scope=c_uint, timestamp=c_longlong, latency=c_longlong, type=c_uint,
    result=c_uint, value=Value,
)  # fmt: skip
Temperature = layout("Temperature", version=c_uint, sensor=c_uint, celsius=c_int)
Margin = layout("Margin", version=c_uint, celsius=c_int)
Sram = layout(
    "Sram", version=c_uint, counts=c_ulonglong * 11, exceeded=c_uint
)  # aggregate and volatile counts, then those by place
Fabric1 = layout("Fabric1", cluster=c_ubyte * 16, status=c_uint, clique=c_uint, state=c_uint)
_FABRIC = {
    "version": c_uint,
    "cluster": c_ubyte * 16,
    "status": c_uint,
    "clique": c_uint,
    "state": c_uint,
    "health": c_uint,
}
Fabric2 = layout("Fabric2", **_FABRIC)
Fabric3 = layout("Fabric3", **_FABRIC, summary=c_ubyte)
Five = layout("Five", numbers=c_uint * 5)
Process = layout("Process", pid=c_uint, memory=c_ulonglong, gpu_instance=c_uint, compute_instance=c_uint)


def versioned(kind: Any, version: int) -> int:
    return ctypes.sizeof(kind) | version << 24


# -- what the numbers mean --------------------------------------------------------------------------

# By bit or by number.
REASONS = (
    "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
    "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
)  # fmt: skip
ACTIONS = (
    "none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset",
    "system_reboot",
)  # fmt: skip
STATES = ("not_supported", "not_started", "in_progress", "completed")
CONFIGURATIONS = (
    None, "none", "incorrect_system_guid", "incorrect_chassis_serial", "no_partition", "insufficient_nvlinks",
    "incompatible_gpu_firmware", "invalid_location", "gpu_state_invalid",
)  # fmt: skip
COMPUTE = ("default", "exclusive_thread", "prohibited", "exclusive_process")
VIRTUAL = ("none", "passthrough", "vgpu", "host_vgpu", "host_vsga")
ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper",
    10: "blackwell", 11: "dla", 12: "dla2", 13: "rubin", 15: "npu3",
}  # fmt: skip
BRANDS = (
    None, "quadro", "tesla", "nvs", "grid", "geforce", "titan", "vapps", "vpc", "vcs", "vws", "cloud_gaming",
    "quadro_rtx", "nvidia_rtx", "nvidia", "geforce_rtx", "titan_rtx", "dla", "vgamedev", "npu",
)  # fmt: skip
PEERS = (
    "ok", "chipset_not_supported", "gpu_not_supported", "topology_not_supported", "disabled_by_registry",
    "not_supported", "unknown",
)  # fmt: skip
LEVELS = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
REMOTES = {0: "gpu", 1: "ibm_npu", 2: "nvswitch"}
LINK_VERSIONS = (None, 1, 2, 2, 3, 3, 4, 5, 6)  # 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0


def reasons(mask: int) -> list[str]:
    named = [name for bit, name in enumerate(REASONS) if mask >> bit & 1]
    return named + [f"bit_{1 << bit:#x}" for bit in range(len(REASONS), 64) if mask >> bit & 1]


def mode(value: int) -> str:
    return "enabled" if value else "disabled"


def cpus(nvml: Nvml, handle: Any) -> Answer:
    out = (c_ulonglong * 64)()
    code = nvml("nvmlDeviceGetCpuAffinity", handle, 64, byref(out))
    return code, [cpu for cpu in range(4096) if out[cpu // 64] >> cpu % 64 & 1] or None


def cpu_list(shown: Any) -> list[int] | None:
    """The CPUs of ``0-3,8``."""
    if shown is None:
        return None
    parts = [part.partition("-") for part in shown.split(",")]
    return [cpu for low, _, high in parts for cpu in range(int(low), int(high or low) + 1)]


def capability(nvml: Nvml, handle: Any) -> Answer:
    major, minor = c_int(), c_int()
    code = nvml("nvmlDeviceGetCudaComputeCapability", handle, byref(major), byref(minor))
    return code, f"{major.value}.{minor.value}"


def firmware(nvml: Nvml, handle: Any) -> Answer:
    buffer = ctypes.create_string_buffer(64)
    return nvml("nvmlDeviceGetGspFirmwareVersion", handle, buffer), said(buffer.value)


def fabric(read: Callable[[Any], Any], *, in_first: bool = True) -> Ask:
    """Of three versions of the structure; the first has no health."""

    def none(nvml: Nvml, handle: Any) -> Answer:
        return MISSING, None

    function = "nvmlDeviceGetGpuFabricInfo"
    return first(
        structure(function + "V", Fabric3, read, version=versioned(Fabric3, 3)),
        structure(function + "V", Fabric2, read, version=versioned(Fabric2, 2)),
        structure(function, Fabric1, read) if in_first else none,
    )


def cluster(out: Any) -> str | None:
    shown = bytes(out.cluster).hex()
    parts = (shown[:8], shown[8:12], shown[12:16], shown[16:20], shown[20:])
    return "-".join(parts) if out.state == 3 else None


def health(out: Any) -> dict[str, Any] | None:
    mask = out.health
    answer = (None, True, False, None)
    names = ("degraded_bandwidth", "route_recovery", "route_unhealthy", "access_timeout_recovery")
    found: dict[str, Any] = {name: answer[mask >> 2 * place & 3] for place, name in enumerate(names)}
    kind = mask >> 8 & 15
    found["incorrect_configuration"] = CONFIGURATIONS[kind] if kind < 9 else f"unknown_{kind}"
    return found if mask else None


def of_pci(read: Callable[[Any], Any]) -> Ask:
    return structure("nvmlDeviceGetPciInfo_v3", Pci, read)


def memory(read: Callable[[Any], int], older: bool = True) -> Ask:
    def none(nvml: Nvml, handle: Any) -> Answer:
        return MISSING, None

    old = structure("nvmlDeviceGetMemoryInfo", Memory, read) if older else none
    newest = structure("nvmlDeviceGetMemoryInfo_v2", Memory2, read, version=versioned(Memory2, 2))
    return first(newest, old)


def watts(value: int) -> float:
    return value / 1000


# Path, function, tolerance: None for equal, else a share of the value and an amount, of which the larger counts.
Row = tuple[str, Ask, tuple[float, float] | None]
CLOCK, POWER, HEAT, USE, MEMORY = (0.3, 300), (0.5, 80), (0.2, 12), (0.0, 100), (0.05, 512)


def rows() -> Iterator[Row]:
    yield "index", number("nvmlDeviceGetIndex"), None
    yield "minor", number("nvmlDeviceGetMinorNumber"), None
    yield "uuid", text("nvmlDeviceGetUUID"), None
    yield "serial", text("nvmlDeviceGetSerial"), None
    yield "name", text("nvmlDeviceGetName"), None
    yield "brand", number("nvmlDeviceGetBrand", convert=BRANDS.__getitem__), None
    yield "architecture", number("nvmlDeviceGetArchitecture", convert=ARCHITECTURES.__getitem__), None
    yield "compute_capability", capability, None
    yield "printed_address", of_pci(lambda out: said(out.bus_id)), None
    yield "device_id", of_pci(lambda out: f"{out.id >> 16:04x}"), None
    yield "subsystem_vendor_id", of_pci(lambda out: f"{out.subsystem & 0xFFFF:04x}"), None
    yield "subsystem_id", of_pci(lambda out: f"{out.subsystem >> 16:04x}"), None
    yield "board_id", number("nvmlDeviceGetBoardId"), None
    yield "board_part_number", text("nvmlDeviceGetBoardPartNumber", size=80), None
    yield "vbios_version", text("nvmlDeviceGetVbiosVersion", size=32), None
    yield "inforom_image_version", text("nvmlDeviceGetInforomImageVersion", size=16), None
    for place, name in enumerate(("oem", "ecc", "power")):
        yield f"inforom_{name}_version", text("nvmlDeviceGetInforomVersion", place, size=16), None
    yield "gsp_firmware_version", firmware, None
    yield "gsp_firmware_enabled", numbers("nvmlDeviceGetGspFirmwareMode", 2, 0, bool), None
    yield "module_id", number("nvmlDeviceGetModuleId"), None
    yield "memory_total_mib", memory(lambda out: out.total // MIB), None
    yield "memory_used_mib", memory(lambda out: out.used // MIB), MEMORY
    yield "memory_free_mib", memory(lambda out: out.free // MIB), MEMORY
    yield "memory_reserved_mib", memory(lambda out: out.reserved // MIB, older=False), MEMORY
    yield (
        "bar1_total_mib",
        structure("nvmlDeviceGetBAR1MemoryInfo", Memory, lambda out: out.total // MIB),
        None,
    )
    yield (
        "bar1_used_mib",
        structure("nvmlDeviceGetBAR1MemoryInfo", Memory, lambda out: out.used // MIB),
        MEMORY,
    )
    yield from clocks_and_power()
    yield from errors()
    yield from links_and_modes()


def clocks_and_power() -> Iterator[Row]:
    for place, name in enumerate(("graphics", "sm", "memory", "video")):
        yield f"{name}_clock_mhz", number("nvmlDeviceGetClockInfo", place), CLOCK
        yield f"max_{name}_clock_mhz", number("nvmlDeviceGetMaxClockInfo", place), None
    unknown = {32: None}
    yield (
        "performance_state",
        number("nvmlDeviceGetPerformanceState", convert=lambda n: unknown.get(n, n)),
        (0, 16),
    )
    mask = "nvmlDeviceGetCurrentClocks{}Reasons"
    yield (
        "clocks_event_reasons",
        first(
            *(number(mask.format(kind), kind=c_ulonglong, convert=reasons) for kind in ("Event", "Throttle"))
        ),
        (0, 0),
    )
    yield "power_draw_w", number("nvmlDeviceGetPowerUsage", convert=watts), POWER
    yield "power_limit_w", number("nvmlDeviceGetPowerManagementLimit", convert=watts), None
    yield "power_limit_default_w", number("nvmlDeviceGetPowerManagementDefaultLimit", convert=watts), None
    limits = "nvmlDeviceGetPowerManagementLimitConstraints"
    yield "power_limit_min_w", numbers(limits, 2, 0, watts), None
    yield "power_limit_max_w", numbers(limits, 2, 1, watts), None
    yield "power_limit_enforced_w", number("nvmlDeviceGetEnforcedPowerLimit", convert=watts), None
    energy = number("nvmlDeviceGetTotalEnergyConsumption", kind=c_ulonglong)
    yield "energy_mj", energy, (0.01, 1e9)
    newest = structure(
        "nvmlDeviceGetTemperatureV", Temperature, lambda out: out.celsius, version=versioned(Temperature, 1)
    )
    yield "temperature_c", first(newest, number("nvmlDeviceGetTemperature", 0)), HEAT
    yield "memory_temperature_c", field(82), HEAT
    margin = structure(
        "nvmlDeviceGetMarginTemperature", Margin, lambda out: out.celsius, version=versioned(Margin, 1)
    )
    yield "temperature_margin_c", margin, HEAT
    for name, place in (("slowdown", 1), ("shutdown", 0), ("max_operating", 3)):
        yield f"temperature_{name}_c", number("nvmlDeviceGetTemperatureThreshold", place), None
    yield "fan_speed_percent", number("nvmlDeviceGetFanSpeed"), USE
    two = layout("Two", gpu=c_uint, memory=c_uint)
    yield "gpu_utilization_percent", structure("nvmlDeviceGetUtilizationRates", two, lambda out: out.gpu), USE
    yield (
        "memory_utilization_percent",
        structure("nvmlDeviceGetUtilizationRates", two, lambda out: out.memory),
        USE,
    )


def errors() -> Iterator[Row]:
    yield "ecc_mode", numbers("nvmlDeviceGetEccMode", 2, 0, mode), None
    yield "ecc_mode_pending", numbers("nvmlDeviceGetEccMode", 2, 1, mode), None
    for counter, since in enumerate(("volatile", "aggregate")):
        for kind, name in enumerate(("corrected", "uncorrected")):
            count = number("nvmlDeviceGetTotalEccErrors", kind, counter, kind=c_ulonglong)
            yield f"ecc.{since}_{name}", count, None
        for place, name in ((7, "sram"), (2, "dram")):
            count = number("nvmlDeviceGetMemoryErrorCounter", 1, counter, place, kind=c_ulonglong)
            yield f"ecc.{since}_{name}_uncorrected", count, None
    sram = structure(
        "nvmlDeviceGetSramEccErrorStatus", Sram, lambda out: bool(out.exceeded), version=versioned(Sram, 1)
    )
    yield "ecc.sram_threshold_exceeded", sram, None
    for cause, name in enumerate(("single_bit", "double_bit")):
        pages = (
            counted("nvmlDeviceGetRetiredPages_v2", cause, times=True),
            counted("nvmlDeviceGetRetiredPages", cause, times=False),
        )
        yield f"retired_pages.{name}", first(*pages), None
    yield "retired_pages.pending", number("nvmlDeviceGetRetiredPagesPendingStatus", convert=bool), None
    for place, name in enumerate(("corrected", "uncorrected", "pending", "failure")):
        convert = bool if place > 1 else None
        yield f"remapped_rows.{name}", numbers("nvmlDeviceGetRemappedRows", 4, place, convert), None
    names = ("max", "high", "partial", "low", "none")
    histogram = structure(
        "nvmlDeviceGetRowRemapperHistogram", Five, lambda out: dict(zip(names, out.numbers, strict=True))
    )
    yield "remapped_rows.histogram", histogram, None

    def action(nvml: Nvml, handle: Any) -> Answer:
        code, value = field(230)(nvml, handle)
        return code, ACTIONS[value] if code == 0 else None

    yield "recovery_action", action, None


def links_and_modes() -> Iterator[Row]:
    yield "pcie.generation", number("nvmlDeviceGetCurrPcieLinkGeneration"), (0, 5)
    yield "pcie.width", number("nvmlDeviceGetCurrPcieLinkWidth"), None
    yield "pcie.generation_max_gpu", number("nvmlDeviceGetGpuMaxPcieLinkGeneration"), None
    yield "pcie.generation_max", number("nvmlDeviceGetMaxPcieLinkGeneration"), None
    yield "pcie.width_max", number("nvmlDeviceGetMaxPcieLinkWidth"), None
    yield "pcie.replays", number("nvmlDeviceGetPcieReplayCounter"), (0, 100)
    yield "fabric.state", fabric(lambda out: STATES[out.state & 0xFF]), None
    yield "fabric.status", fabric(lambda out: out.status), None
    yield "fabric.cluster_uuid", fabric(cluster), None
    yield "fabric.clique_id", fabric(lambda out: out.clique if out.state & 0xFF == 3 else None), None
    yield "fabric.health", fabric(health, in_first=False), None
    yield "mig.mode", numbers("nvmlDeviceGetMigMode", 2, 0, mode), None
    yield "mig.mode_pending", numbers("nvmlDeviceGetMigMode", 2, 1, mode), None
    yield "mig.max_devices", number("nvmlDeviceGetMaxMigDeviceCount"), None
    yield "cpu_affinity", cpus, None
    yield "persistence_mode", number("nvmlDeviceGetPersistenceMode", convert=bool), None
    yield "compute_mode", number("nvmlDeviceGetComputeMode", convert=COMPUTE.__getitem__), None
    yield "virtualization_mode", number("nvmlDeviceGetVirtualizationMode", convert=VIRTUAL.__getitem__), None


# NVML does not tell these: the host does, or nobody.
NOT_NVMLS = {
    "address", "status", "message", "gpu_part_number", "numa_node", "pcie.generation_max_host",
    "pcie.sampled_under_load", "absent", "implausible", "mig.devices", "nvlinks", "processes",
}  # fmt: skip


# -- comparison -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """One field of one GPU. ``difference`` is empty where the probe is right."""

    gpu: str
    path: str
    code: int
    value: Any
    probe: Any
    difference: str


def compare(
    device: dict[str, Any], path: str, answer: Answer, tolerance: tuple[float, float] | None
) -> Compared:
    code, value = answer
    probe: Any = at(device, path)
    value = None if code != 0 or (isinstance(value, int) and value in NO_VALUE) else value
    return Compared(
        device["address"], path, code, value, probe, difference(device, path, code, value, tolerance)
    )


def difference(
    device: dict[str, Any], path: str, code: int, value: Any, tolerance: tuple[float, float] | None
) -> str:
    probe, entry = at(device, path), device["absent"].get(path)
    if entry is not None and entry["reason"] == "mig" and device["mig"]["mode"] == "enabled":
        return "" if probe is None else "it has a value though MIG is on"
    if value is None:
        if probe is not None:
            return (
                f"it has a value, and NVML returned {code}" if code else "it has a value, and NVML said none"
            )
        told = entry["nvml_error"] if entry is not None else "no entry in absent"
        return "" if told == (code or None) else f"absent says {told}, and NVML returned {code}"
    if probe is None:
        return f"it is null ({entry}), and NVML returned a value"
    if path == "cpu_affinity":
        probe = cpu_list(probe)
    if tolerance is None:
        return "" if probe == value else "another value"
    if isinstance(value, list):
        return ""  # reasons come and go
    share, amount = tolerance
    return "" if abs(probe - value) <= max(amount, share * abs(value)) else "too far from NVML's value"


def at(device: dict[str, Any], path: str) -> Any:
    """The value at a dotted path."""
    value: Any = device
    for name in path.split("."):
        value = value[name]
    return value


def compare_links(nvml: Nvml, handle: Any, device: dict[str, Any]) -> Iterator[Compared]:
    """Links that NVML knows must be there, with each of their values; others must not."""
    probed = {link["link"]: link for link in device["nvlinks"] or ()}
    codes = {}
    for link in range(LINKS):
        active = c_uint()
        codes[link] = nvml("nvmlDeviceGetNvLinkState", handle, c_uint(link), byref(active))
        if codes[link] in (2, 3, MISSING):
            yield Compared(device["address"], f"nvlinks.{link}", codes[link], None, probed.get(link),
                           "the probe has a link that NVML has not" if link in probed else "")  # fmt: skip
            continue
        if link not in probed:
            yield Compared(
                device["address"], f"nvlinks.{link}", codes[link], active.value, None, "it is not there"
            )
            continue
        view = {"address": device["address"], "absent": device["absent"], "mig": device["mig"],
                "nvlinks": {str(link): probed[link]}}  # fmt: skip
        yield compare(view, f"nvlinks.{link}.active", (codes[link], bool(active.value)), None)
        for key, ask, tolerance in link_rows(link):
            yield compare(view, f"nvlinks.{link}.{key}", ask(nvml, handle), tolerance)
    if device["nvlinks"] is None:
        told = device["absent"]["nvlinks"]["nvml_error"]
        wrong = "" if told == codes[0] else f"absent says {told}, and NVML returned {codes[0]}"
        yield Compared(device["address"], "nvlinks", codes[0], None, None, wrong)


def link_rows(link: int) -> Iterator[Row]:
    def remote(nvml: Nvml, handle: Any) -> Answer:
        out = Pci()
        code = nvml("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, c_uint(link), byref(out))
        shown = said(out.bus_id)
        if code or shown is None or shown.upper().startswith("FFFFFFFF"):
            return code, None
        domain, rest = shown.lower().split(":", 1)
        return code, f"{int(domain, 16):04x}:{rest}"

    old = 84 + link if link < 6 else 132 + link - 6 if link < 12 else 90

    def speed(nvml: Nvml, handle: Any) -> Answer:
        newest, older = field(164, link)(nvml, handle), field(old)(nvml, handle)
        return older if newest[0] and not older[0] else newest

    function = "nvmlDeviceGetNvLink{}"
    yield "version", number(function.format("Version"), link, convert=lambda n: LINK_VERSIONS[n]), None
    yield (
        "remote_type",
        number(function.format("RemoteDeviceType"), link, convert=lambda n: REMOTES.get(n, "unknown")),
        None,
    )
    yield "remote_address", remote, None
    yield "speed_mb_s", speed, None
    for place, name in enumerate(("replay_errors", "recovery_errors", "crc_flit_errors", "crc_data_errors")):
        yield name, number(function.format("ErrorCounter"), link, place, kind=c_ulonglong), (0.1, 1000)


def compare_processes(nvml: Nvml, handle: Any, device: dict[str, Any]) -> Iterator[Compared]:
    """Whether there is a list; those in it come and go, so they are shown and not compared."""
    found, codes = set(), []
    for kind in ("Compute", "Graphics", "MPSCompute"):
        code, pids = 0, set()
        for version in ("_v3", "_v2"):
            count, out = c_uint(256), (Process * 256)()
            code = nvml(f"nvmlDeviceGet{kind}RunningProcesses{version}", handle, byref(count), byref(out))
            if code != MISSING:
                pids = {out[place].pid for place in range(count.value)} if code == 0 else set()
                break
        codes.append(code)
        found |= pids
    probe = None if device["processes"] is None else sorted(entry["pid"] for entry in device["processes"])
    wrong = "" if (probe is None) == all(codes) else f"null or not, NVML returned {codes}"
    yield Compared(device["address"], "processes", min(codes), sorted(found), probe, wrong)


def compare_mig_devices(nvml: Nvml, handle: Any, device: dict[str, Any]) -> Iterator[Compared]:
    """The instances that were made, in their order, with each of their values."""
    found = []
    for place in range(device["mig"]["max_devices"] or 0 if device["mig"]["mode"] == "enabled" else 0):
        part = ctypes.c_void_p()
        if nvml("nvmlDeviceGetMigDeviceHandleByIndex", handle, c_uint(place), byref(part)) == 0:
            found.append(part)
    wrong = "" if len(found) == len(device["mig"]["devices"]) else "another number of instances"
    yield Compared(device["address"], "mig.devices", 0, len(found), len(device["mig"]["devices"]), wrong)
    for place, part in enumerate(found if not wrong else ()):
        view = {**device, "mig": {**device["mig"], "devices": {str(place): device["mig"]["devices"][place]}}}
        for key, ask in (
            ("uuid", text("nvmlDeviceGetUUID")),
            ("profile", text("nvmlDeviceGetName")),
            ("gpu_instance", number("nvmlDeviceGetGpuInstanceId")),
            ("compute_instance", number("nvmlDeviceGetComputeInstanceId")),
            ("memory_total_mib", structure("nvmlDeviceGetMemoryInfo", Memory, lambda out: out.total // MIB)),
        ):
            code, value = ask(nvml, part)
            if key == "profile" and code == 0:  # the end of the name
                value = str(value).partition(" MIG ")[2] or None
            yield compare(view, f"mig.devices.{place}.{key}", (code, value), None)


def compare_topology(nvml: Nvml, handles: dict[str, Any], probe: dict[str, Any]) -> Iterator[Compared]:
    """Each pair's way and whether peers may read each other; over NVLink the way has another name."""
    for pair in probe["topology"]:
        if pair["a"] not in handles or pair["b"] not in handles:
            continue
        level, state, both = c_uint(), c_uint(), (handles[pair["a"]], handles[pair["b"]])
        code = nvml("nvmlDeviceGetTopologyCommonAncestor", *both, byref(level))
        expected = None if code else "NV" if pair["nvlinks"] else LEVELS.get(level.value)
        wrong = "" if pair["path"] == expected or (code and pair["nvlinks"]) else "another way"
        yield Compared(pair["a"], f"topology.{pair['b']}.path", code, expected, pair["path"], wrong)
        code = nvml("nvmlDeviceGetP2PStatus", *both, c_uint(0), byref(state))
        peer = None if code else PEERS[state.value]
        wrong = "" if pair["peer_to_peer"] == peer else "another state"
        yield Compared(
            pair["a"], f"topology.{pair['b']}.peer_to_peer", code, peer, pair["peer_to_peer"], wrong
        )


def compare_system(nvml: Nvml, probe: dict[str, Any]) -> Iterator[Compared]:
    """The versions that NVML says."""
    number_ = c_int()
    for key, function in (
        ("driver_version", "nvmlSystemGetDriverVersion"),
        ("nvml_version", "nvmlSystemGetNVMLVersion"),
    ):
        buffer = ctypes.create_string_buffer(96)
        code = nvml(function, buffer, c_uint(96))
        value = None if code else said(buffer.value)
        # The driver's version is known without NVML too.
        wrong = "" if probe[key] == value or (code and key == "driver_version") else "another version"
        yield Compared("-", key, code, value, probe[key], wrong)
    code = nvml("nvmlSystemGetCudaDriverVersion_v2", byref(number_))
    cuda = f"{number_.value // 1000}.{number_.value % 1000 // 10}" if code == 0 and number_.value else None
    wrong = "" if probe["cuda_version"] == cuda else "another version"
    yield Compared("-", "cuda_version", code, cuda, probe["cuda_version"], wrong)


def compare_gpu(nvml: Nvml, handle: Any, device: dict[str, Any]) -> Iterator[Compared]:
    compared = set()
    for path, ask, tolerance in rows():
        compared.add(path)
        yield compare(device, path, ask(nvml, handle), tolerance)
    yield from compare_links(nvml, handle, device)
    yield from compare_processes(nvml, handle, device)
    yield from compare_mig_devices(nvml, handle, device)
    for key, value in device.items():
        parts = [f"{key}.{name}" for name in value] if isinstance(value, dict) and key != "absent" else [key]
        for path in parts:
            if path not in compared | NOT_NVMLS:
                yield Compared(device["address"], path, 0, None, None, "nobody compares this field")


def compare_all(nvml: Nvml, probe: dict[str, Any]) -> Iterator[Compared]:
    by_address = {device["address"]: device for device in probe["devices"]}
    handles: dict[str, Any] = {}
    yield from compare_system(nvml, probe)
    count = c_uint()
    code = nvml("nvmlDeviceGetCount_v2", byref(count))
    wrong = "" if count.value == len(by_address) else "another number of GPUs"
    yield Compared("-", "devices", code, count.value, len(by_address), wrong)
    for index in range(count.value):
        handle, pci = ctypes.c_void_p(), Pci()
        code = nvml("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle)) or nvml(
            "nvmlDeviceGetPciInfo_v3", handle, byref(pci)
        )
        if code:
            device = next((each for each in by_address.values() if each["index"] == index), None)
            told = device["absent"]["uuid"]["nvml_error"] if device is not None else "nothing"
            wrong = "" if told == code else f"the probe says {told} of this GPU"
            yield Compared(f"#{index}", "handle", code, None, told, wrong)
            continue
        domain, rest = pci.bus_id.decode().lower().split(":", 1)
        address = f"{int(domain, 16):04x}:{rest}"
        if address not in by_address:
            yield Compared(address, "address", 0, address, None, "the probe does not have this GPU")
            continue
        handles[address] = handle
        yield from compare_gpu(nvml, handle, by_address[address])
    yield from compare_topology(nvml, handles, probe)


# -- the program ------------------------------------------------------------------------------------


def document(path: Path) -> dict[str, Any]:
    """The probe document in a file of facts, of an agent's report, or alone."""
    found: dict[str, Any] = json.loads(path.read_text())
    for key in ("facts", "gpu_probe"):
        found = found.get(key, found)
    if not isinstance(found, dict) or "devices" not in found:
        raise SystemExit(f"{path} holds no probe document")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("probe", type=Path, help="facts, an agent's report, or facts.gpu_probe, as JSON")
    parser.add_argument("--library", default="libnvidia-ml.so.1")
    parser.add_argument("--json", type=Path, help="write every comparison there")
    options = parser.parse_args()
    probe = document(options.probe)
    nvml = Nvml(options.library)
    code = nvml("nvmlInit_v2")
    if code:
        raise SystemExit(f"NVML does not open: {nvml.words(code)}")
    found = list(compare_all(nvml, probe))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    wrong = [each for each in found if each.difference]
    for each in wrong:
        nvml_said, told = f"NVML {each.code} {each.value!r}", f"probe {each.probe!r}"
        print("  ".join((each.gpu, each.path, nvml_said, told, each.difference)))  # noqa: T201
    null = sum(each.code != 0 for each in found)
    print(f"{len(found)} answers compared, {null} of them errors of NVML; {len(wrong)} differences")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
