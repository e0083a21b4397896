"""What every GPU does at this moment: rows for a table, and the same as a document (``fleet.status/1``).

Pure: facts in (``gpu_probe`` and what stands beside it), rows out. :class:`GpuRow` is both the JSON and what the
table is made of, so they cannot differ. Next: :mod:`fleet.cli.status`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fleet.agent.gpu_failures import WORDS
from fleet.report.columns import Cell, Column
from fleet.report.columns import table as in_columns
from fleet.report.style import BAD, DIM, GOOD, STRONG, WARN, Line, Span, line
from fleet.report.words import plural, printable

SCHEMA = "fleet.status/1"
_NOTHING = "–"
_HEADINGS = ("host", "GPU", "model", "util", "memory", "power", "temp", "driver", "who")
_RIGHT = frozenset({"GPU", "util", "memory", "power", "temp"})
_CONTAINER_ID = 12

#: What a probe as a whole means, where it gave no GPUs.
_WORDS = {**WORDS, "driver_library_mismatch": WORDS["driver_library_mismatch"] + ": reload or reboot"}
#: What is wrong with one GPU; ``{since}`` is when the kernel log had it, and by which Xid.
_STATES = {
    "lost": "lost{since}: it does not answer; a reboot or a look at the hardware is due",
    "reset_required": "needs a reset{since}: nvidia-smi --gpu-reset, or a reboot",
    "timeout": "the driver does not answer for it{since}",
}


@dataclass(frozen=True)
class Tenant:
    """Somebody on a GPU. ``container``: its name, else the first twelve digits of its id."""

    user: str | None
    container: str | None
    command: str | None
    pid: int
    memory_used_mib: int | None


@dataclass(frozen=True)
class GpuRow:
    """One GPU. Absent values are None; ``state`` is ok, lost, missing, reset_required, timeout or error, and
    ``message`` says more where it is not ok."""

    address: str
    index: int | None = None
    model: str | None = None
    utilization_percent: int | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    power_draw_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    mig: bool = False
    state: str = "ok"
    message: str | None = None
    tenants: tuple[Tenant, ...] = ()


@dataclass(frozen=True)
class HostRow:
    """One host. ``message``: why it has no GPUs to show, or what is wrong with all of them. ``note``: how it was
    asked, where that is not as it should have been."""

    host: str
    state: str
    message: str | None = None
    remedy: str | None = None
    note: str | None = None
    driver: str | None = None
    simulated: bool = False
    collected_at: str | None = None
    gpus: tuple[GpuRow, ...] = ()


def host_row(host: str, facts: Mapping[str, Any]) -> HostRow:
    """What the facts of one host say. ``state``: ok, no_gpus, or the status of its probe."""
    probe = facts.get("gpu_probe")
    loaded = ((facts.get("driver") or {}).get("loaded") or {}).get("version")
    row = HostRow(
        host,
        "ok",
        driver=(probe or {}).get("driver_version") or loaded,
        simulated=bool(facts.get("simulated")),
        collected_at=facts.get("collected_at"),
    )
    if facts.get("gpus") == []:
        return replace(row, state="no_gpus", message="no NVIDIA GPU on its PCI bus")
    if not isinstance(probe, Mapping):
        why = str(facts.get("gpu_probe_reason") or "no answer").replace("_", " ")
        return replace(row, state="error", message=f"its GPUs could not be asked: {why}")
    state = str(probe.get("status"))
    gpus = [_gpu_row(device, facts) for device in probe.get("devices") or ()]
    gpus += [_missing_row(gone, facts) for gone in probe.get("missing") or ()]
    return replace(
        row, state=state, message=_of_host(probe), gpus=tuple(sorted(gpus, key=lambda gpu: gpu.address))
    )


def _of_host(probe: Mapping[str, Any]) -> str | None:
    """What is wrong with the probe as a whole, without what the GPUs' own rows say."""
    state, message = str(probe.get("status")), str(probe.get("message") or "")
    if state == "ok":
        return None
    bad = [device for device in probe.get("devices") or () if device["status"] != "ok"]
    told = "; ".join(f"{device['address']}: {device.get('message')}" for device in bad)
    if state == "gpu_error" and told and message.startswith(told):
        return message.removeprefix(told).removeprefix("; ") or None
    return _WORDS.get(state) or message or state.replace("_", " ")


def _gpu_row(device: Mapping[str, Any], facts: Mapping[str, Any]) -> GpuRow:
    state, address = str(device["status"]), str(device["address"])
    message = None
    if state != "ok":
        since = _last_xid(address, facts)
        known = _STATES.get(state)
        message = (
            known.format(since=since) if known else f"{device.get('message') or 'it gave an error'}{since}"
        )
    believed = {path: value for path, value in device.items() if path not in device.get("implausible", ())}
    return GpuRow(
        index=device.get("index"),
        address=address,
        model=_model(device.get("name") or _name_on_the_bus(address, facts)),
        utilization_percent=believed.get("gpu_utilization_percent"),
        memory_used_mib=believed.get("memory_used_mib"),
        memory_total_mib=believed.get("memory_total_mib"),
        power_draw_w=believed.get("power_draw_w"),
        power_limit_w=believed.get("power_limit_enforced_w") or believed.get("power_limit_w"),
        temperature_c=believed.get("temperature_c"),
        mig=(device.get("mig") or {}).get("mode") == "enabled",
        state=state,
        message=message,
        tenants=tuple(_tenant(process) for process in device.get("processes") or ()),
    )


def _name_on_the_bus(address: str, facts: Mapping[str, Any]) -> Any:
    """A GPU that does not answer tells no name; the driver's files may."""
    return next((gpu.get("name") for gpu in facts.get("gpus") or () if gpu["address"] == address), None)


def _missing_row(gone: Mapping[str, Any], facts: Mapping[str, Any]) -> GpuRow:
    """A GPU that is on the PCI bus and that the driver does not serve: where it is, and what the log says."""
    address = str(gone["address"])
    slot = f" in slot {gone['slot']}" if gone.get("slot") else ""
    message = f"on the PCI bus{slot}, not served by the driver{_last_xid(address, facts)}"
    return GpuRow(address, model=_model(gone.get("name")), state="missing", message=message)


def _last_xid(address: str, facts: Mapping[str, Any]) -> str:
    """`` since 2026-11-30 14:02 (Xid 79)``, where the kernel log can be read and says so."""
    log = facts.get("kernel_log")
    found = [one for one in (log or {}).get("xids") or () if one.get("address") == address]
    if not found:
        return ""
    last = max(found, key=lambda one: str(one.get("last_at") or ""))
    moment = str(last.get("last_at") or "").replace("T", " ")[:16]
    return f" since {moment} (Xid {last['code']})" if moment else f" (Xid {last['code']})"


def _tenant(process: Mapping[str, Any]) -> Tenant:
    container = process.get("container_name") or (process.get("container_id") or "")[:_CONTAINER_ID] or None
    return Tenant(
        user=process.get("user"),
        container=container,
        command=process.get("command"),
        pid=int(process["pid"]),
        memory_used_mib=process.get("memory_used_mib"),
    )


def _model(name: Any) -> str | None:
    return printable(str(name)).removeprefix("NVIDIA ").removeprefix("GeForce ") if name else None


def document(hosts: Sequence[HostRow]) -> dict[str, Any]:
    """The status as ``--json`` gives it (schemas/status.schema.json)."""
    return {"schema": SCHEMA, "counts": counts(hosts), "hosts": [asdict(host) for host in hosts]}


def counts(hosts: Iterable[HostRow]) -> dict[str, int]:
    """How many hosts and GPUs, and how many of them in which condition."""
    hosts = list(hosts)
    gpus = [gpu for host in hosts for gpu in host.gpus]
    return {
        "hosts": len(hosts),
        "unreachable": sum(host.state == "unreachable" for host in hosts),
        "gpus": len(gpus),
        "in_use": sum(bool(gpu.tenants) for gpu in gpus),
        "not_well": sum(gpu.state != "ok" for gpu in gpus),
    }


def table(hosts: Sequence[HostRow], width: int) -> list[Line]:
    """The outcome in a line, then one line per GPU; ``who`` takes what the other columns leave of ``width``."""
    rows = [row for host in hosts for row in _host_rows(host)]
    shown = [name for name in _HEADINGS if name == "who" or any(row.get(name) for row in rows)]
    columns = [Column(name, right=name in _RIGHT) for name in shown]
    cells = [[row.get(name) or Cell("") for name in shown] for row in rows]
    return [line(Span(_headline(hosts), STRONG)), line(""), *in_columns(columns, cells, width)]


def _host_rows(host: HostRow) -> list[dict[str, Cell]]:
    """Its GPUs' cells by heading, then what is to be said of the host itself; its name stands in the first."""
    rows = [_gpu_cells(gpu) for gpu in host.gpus]
    if host.message is not None:
        remedy = f"  remedy: {host.remedy}" if host.remedy and not rows else ""
        role = DIM if host.state == "no_gpus" else BAD
        rows.append({"who": Cell(printable(host.message + remedy), role, whole=True)})
    if host.note is not None:
        rows.append({"who": Cell(printable(host.note), WARN, whole=True)})
    if rows:
        rows[0]["host"] = Cell(printable(host.host) + (" (simulated)" if host.simulated else ""))
        rows[0]["driver"] = Cell(host.driver or "")
    return rows


def _gpu_cells(gpu: GpuRow) -> dict[str, Cell]:
    named = {"GPU": Cell(_number(gpu.index)), "model": Cell(gpu.model or "")}
    if gpu.state != "ok":
        return {**named, "who": Cell(printable(f"{gpu.address}: {gpu.message}"), BAD, whole=True)}
    words = {
        "util": _NOTHING if gpu.utilization_percent is None else f"{gpu.utilization_percent}%",
        "memory": _pair(gpu.memory_used_mib, gpu.memory_total_mib, 1024.0, "GiB"),
        "power": _pair(gpu.power_draw_w, gpu.power_limit_w, 1.0, "W"),
        "temp": _NOTHING if gpu.temperature_c is None else f"{gpu.temperature_c}°C",
    }
    role = GOOD if gpu.tenants else WARN if _busy_with_nobody(gpu) else ""
    return {**named, **{name: Cell(text) for name, text in words.items()}, "who": Cell(_who(gpu), role)}


def _busy_with_nobody(gpu: GpuRow) -> bool:
    """It computes, and no process is to be seen: somebody in another PID namespace, or a virtual machine."""
    return not gpu.tenants and (gpu.utilization_percent or 0) > 0


def _who(gpu: GpuRow) -> str:
    mark = "MIG  " if gpu.mig else ""
    if gpu.tenants:
        found = Counter(_tenant_words(tenant) for tenant in gpu.tenants)
        return mark + ", ".join(f"{words} ×{n}" if n > 1 else words for words, n in found.items())
    return mark + ("busy, by nobody that can be seen" if _busy_with_nobody(gpu) else _NOTHING)


def _tenant_words(tenant: Tenant) -> str:
    user = tenant.user or "?"
    if tenant.container:
        return printable(f"{user} · {tenant.container} (container)")
    return printable(f"{user} · {tenant.command or '?'} (pid {tenant.pid})")


def _number(value: int | None) -> str:
    return _NOTHING if value is None else str(value)


def _pair(value: float | None, whole: float | None, unit: float, name: str) -> str:
    if value is None and whole is None:
        return _NOTHING
    first, second = (_NOTHING if number is None else f"{number / unit:.0f}" for number in (value, whole))
    return f"{first}/{second} {name}"


def _headline(hosts: Sequence[HostRow]) -> str:
    total = counts(hosts)
    words = [plural(total["hosts"], "host"), plural(total["gpus"], "GPU"), f"{total['in_use']} in use"]
    words += [f"{total['not_well']} not well"] if total["not_well"] else []
    words += [f"{total['unreachable']} unreachable"] if total["unreachable"] else []
    return " · ".join(words)
