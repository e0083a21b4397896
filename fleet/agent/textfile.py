"""The report's few numbers for a dashboard, as a node_exporter textfile: ``fleet.prom``.

:func:`metrics` is pure: a report in, the text format out. A value that could not be read gives no sample,
for absent is not zero. Where the hardware is simulated every sample but ``fleet_simulated`` itself carries
the label ``simulated="true"``. docs/agent.md lists the names.
"""

from __future__ import annotations

from fleet.agent.paths import write_durably

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Optional, Tuple, Union

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
    for name, text, value, labels in (*_agent(report), *_host(report["facts"])):
        lines += _lines((name, text, value, dict(labels, **mark)))
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
