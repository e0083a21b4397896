"""The report's few numbers for a dashboard, as a node_exporter textfile: ``fleet.prom``.

:func:`metrics` is pure: a report in, the text format out. A value that could not be read gives no sample,
for absent is not zero. Where the hardware is simulated every sample but ``fleet_simulated`` itself carries
the label ``simulated="true"``. docs/agent.md lists the names.
"""

from __future__ import annotations

from fleet.agent.paths import write_durably

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Optional, Sequence, Tuple, Union

    from fleet.agent.protocol import Json

    Number = Union[int, float]
    Metric = Tuple[str, str, Optional[Number], Json]  # name, help, value (None: no sample), labels

NAME = "fleet.prom"


def path(folder: str) -> str:
    """The textfile in ``folder``."""
    return folder.rstrip("/") + "/" + NAME


def metrics(report: Json) -> str:
    """The text format of a report's metrics; all are gauges."""
    mark = {"simulated": "true"} if report["simulated"] else {}
    simulated: Metric = (
        "fleet_simulated",
        "Whether the hardware of this host is simulated.",
        int(report["simulated"]),
        {},
    )
    lines = _lines(simulated)
    told = None  # name and help of a metric stand before its first sample only
    for name, text, value, labels in (*_agent(report), *_host(report["facts"])):
        found = _lines((name, text, value, dict(labels, **mark)))
        lines += found[-1:] if name == told else found
        told = name if found else told
    return "".join(line + "\n" for line in lines)


def write(folder: str, text: str) -> None:
    """Replace the textfile in ``folder``, readable by everybody; no reader sees half of one. Raises OSError."""
    # node_exporter reads *.prom only, and so not what is being written.
    write_durably(path(folder), text.encode("utf-8", "replace"), 0o644)


def _agent(report: Json) -> Iterable[Metric]:
    """What the agent says of itself."""
    written = _unix(report["written_at"])
    about = {"version": report["fleet_version"], "bundle": report["bundle"]}
    yield "fleet_agent_info", "The agent that wrote this.", 1, about
    yield "fleet_agent_last_run_timestamp_seconds", "When the agent last ran.", written, {}
    yield "fleet_agent_last_run_duration_seconds", "How long it then read.", report["duration_s"], {}
    unread = len(report["facts"]["errors"])
    yield "fleet_agent_unread_fact_groups", "Groups of facts that could not be read.", unread, {}


def _host(facts: Json) -> Iterable[Metric]:
    """What the facts say of the host."""
    reboot = _at(facts, "reboot_required", "required")
    yield "fleet_reboot_required", "Whether the distribution says that a reboot is due.", _flag(reboot), {}
    gpus, switches = _at(facts, "gpus"), _at(facts, "nvswitches")
    yield "fleet_gpus", "NVIDIA GPUs on the PCI bus.", _length(gpus), {}
    yield "fleet_nvswitches", "NVSwitches on the PCI bus.", _length(switches), {}
    if _at(facts, "driver") is not None:
        yield from _driver(facts["driver"], bool(gpus))
    if _at(facts, "gpu_probe") is not None:
        yield from _gpus(facts["gpu_probe"])
    if _at(facts, "container_check") is not None:
        yield from _container_check(facts["container_check"])


def _driver(driver: Json, has_gpus: bool) -> Iterable[Metric]:
    """What the facts say of the driver."""
    loaded, library = _at(driver, "loaded", "version"), _at(driver, "library_version")
    about = {"loaded": loaded, "library": library, "flavour": _at(driver, "loaded", "flavour")}
    there = 1 if loaded or library else None
    yield "fleet_driver_info", "The NVIDIA driver: module loaded, library on the disk.", there, about
    yield "fleet_driver_loaded", "Whether an NVIDIA kernel module is loaded.", int(loaded is not None), {}
    differ = int(loaded != library) if loaded and library else None
    text = "Whether the loaded module and the library on the disk are of different versions."
    yield "fleet_driver_library_mismatch", text, differ, {}
    text = "Whether the kernel that boots next has an NVIDIA module."
    yield "fleet_driver_next_kernel_ready", text, _next_kernel(driver) if has_gpus else None, {}


def _next_kernel(driver: Json) -> Optional[int]:
    for kernel in _at(driver, "kernels") or ():
        if kernel.get("next"):
            return int(any(module.get("name") == "nvidia" for module in kernel.get("modules") or ()))
    return None


# Name, help, path of a Device (fleet.agent.gpu_probe.device), factor to the unit of the name.
_OF_A_GPU = (
    ("temperature_celsius", "Its temperature.", "temperature_c", 1),
    ("memory_temperature_celsius", "Its memory's temperature.", "memory_temperature_c", 1),
    ("power_draw_watts", "What it draws.", "power_draw_w", 1),
    ("power_limit_watts", "What it may draw.", "power_limit_w", 1),
    ("utilization_percent", "Share of the time in which a kernel ran.", "gpu_utilization_percent", 1),
    ("memory_used_bytes", "Its memory in use.", "memory_used_mib", 1 << 20),
    ("memory_total_bytes", "Its memory.", "memory_total_mib", 1 << 20),
    ("sm_clock_hertz", "Clock of its multiprocessors.", "sm_clock_mhz", 1000000),
    (
        "ecc_uncorrected_volatile",
        "Uncorrectable errors of its memory since the driver was loaded.",
        "ecc.volatile_uncorrected",
        1,
    ),
    (
        "ecc_uncorrected_aggregate",
        "Uncorrectable errors of its memory ever.",
        "ecc.aggregate_uncorrected",
        1,
    ),
    (
        "remap_pending",
        "Whether a row of its memory waits for a reset to be remapped.",
        "remapped_rows.pending",
        1,
    ),
    (
        "remap_failure",
        "Whether a row of its memory could not be remapped.",
        "remapped_rows.failure",
        1,
    ),
    ("pcie_generation", "Generation of its PCIe link now.", "pcie.generation", 1),
    ("pcie_width", "Lanes of its PCIe link now.", "pcie.width", 1),
)


def _gpus(probe: Json) -> Iterable[Metric]:
    """What the GPUs say of themselves. Metrics of one name stand together, as the format wants it."""
    devices = probe["devices"]
    seen = sum(device["status"] == "ok" for device in devices) if probe["source"] is not None else None
    yield "fleet_gpus_seen", "NVIDIA GPUs that the driver lists and that answer.", seen, {}
    labels = [{key: device[key] for key in ("address", "uuid", "name")} for device in devices]
    for name, text, values in _by_name(devices):
        for about, value in zip(labels, values):  # noqa: B905 - strict came with Python 3.10
            yield "fleet_gpu_" + name, text, value, about


def _by_name(devices: Sequence[Json]) -> Iterable[Tuple[str, str, Sequence[Optional[Number]]]]:
    yield "ok", "Whether it answers.", [int(device["status"] == "ok") for device in devices]
    for name, text, path, factor in _OF_A_GPU:
        values = [
            None if path in device["implausible"] else _at(device, *path.split(".")) for device in devices
        ]
        yield name, text, [None if value is None else value * factor for value in values]
    links = [device["nvlinks"] for device in devices]
    active = [None if each is None else sum(link["active"] is True for link in each) for each in links]
    yield "nvlinks_active", "Its NVLinks that are up.", active
    text = "Sum of the error counters of its NVLinks."
    yield "nvlink_errors", text, [None if each is None else _link_errors(each) for each in links]
    actions = [device["recovery_action"] for device in devices]
    needed = [None if action is None else int(action != "none") for action in actions]
    yield "recovery_action_needed", "Whether its driver asks for a reset, drain or reboot.", needed


def _link_errors(links: Sequence[Json]) -> Optional[int]:
    """The sum of all counters that could be read; None where none could."""
    keys = ("crc_flit_errors", "crc_data_errors", "replay_errors", "recovery_errors")
    found = [link[key] for link in links for key in keys if link[key] is not None]
    return sum(found) if found else None


def _container_check(record: Json) -> Iterable[Metric]:
    """What the last container check found, and with which image."""
    about = {"reference": record["reference"], "digest": record["digest"]}
    yield "fleet_container_check_info", "The image of the last container check.", 1, about
    text = "Whether containers of the image saw the GPUs of this host when that was last checked."
    yield "fleet_container_check_passed", text, int(record["passed"]), {}
    text = "When that was last checked."
    yield "fleet_container_check_timestamp_seconds", text, _unix(record["checked_at"]), {}


def _unix(text: str) -> int:
    """Seconds since 1970 of a moment in UTC."""
    from calendar import timegm
    from time import strptime

    return timegm(strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def _at(value: Any, *names: str) -> Any:
    """What is under these names, or None where there is nothing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _flag(value: Optional[bool]) -> Optional[int]:
    return None if value is None else int(value)


def _length(value: Any) -> Optional[int]:
    return len(value) if isinstance(value, list) else None


def _lines(metric: Metric) -> list[str]:
    name, text, value, labels = metric
    if value is None:
        return []
    pairs = ['%s="%s"' % (key, _escaped(str(word))) for key, word in labels.items() if word is not None]
    shown = "{%s}" % ",".join(pairs) if pairs else ""
    return ["# HELP %s %s" % (name, text), "# TYPE %s gauge" % name, "%s%s %s" % (name, shown, value)]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
