"""Are all GPUs there, and do all answer? Counted by PCI, by NVML and by the inventory; one that is gone is named.

States of the driver that leave no GPU visible at all are in :mod:`.driver`; a container that lost its GPUs is in
:mod:`.container`.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import Device, bound, devices, on_bus
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = ("recovery_action",)
_INVENTORY = "gpu_count in the inventory"
#: Only then does an empty list mean that NVML has no GPU: of a driver that is not loaded nobody knows.
_COUNTED = ("ok", "no_devices")
_NVML = "NVML answers for every GPU that the driver holds"
_RESEAT = "power the host off and on; where it is lost again, reseat or replace it"
_RESET = (
    "drain the host, then nvidia-smi --gpu-reset -i {address} (with NVSwitch: all GPUs at once), or reboot"
)


@rule(
    "health.presence.unknown",
    known_bad=Sample({"gpu_probe": None, "gpu_probe_reason": "error"}, model="h100"),
)
def unknown(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The GPUs of the host are known: the bus could be read, and where it has some NVML was asked."""
    if fact(facts, "gpus") is None:
        if fact(facts, "gpus_reason") is not None:
            yield self.unknown(
                facts, "gpus", remedy="run fleet where it may become root, or as root on the host"
            )
    elif (
        bound(facts)
        and fact(facts, "gpu_probe") is None
        and fact(facts, "gpu_probe_reason") != "not_supported"
    ):
        yield self.unknown(facts, "gpu_probe", consequence="; so nothing is known of the health of its GPUs")


@rule(
    "health.presence.count",
    known_bad=Sample(wanted={"gpus": {"count": 9}}, model="h100"),
)
def count(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """As many GPUs are on the PCI bus as the inventory says, and NVML has all of them. Reads ``gpus.count``."""
    expected = (wanted.get("gpus") or {}).get("count")
    if fact(facts, "gpus") is None:
        return
    there = len(bound(facts))
    answered: int | None = len(devices(facts))
    named = len(fact(facts, "gpu_probe.missing") or [])
    counted = fact(facts, "gpu_probe.status") == "ok" and there > len(devices(facts)) + named
    if (expected is None or expected == there) and not counted:
        return
    if fact(facts, "gpu_probe.status") not in _COUNTED and not answered:
        answered = None
    nvml = "unknown" if answered is None else str(answered)
    said = f", the inventory says {expected}" if expected is not None else ""
    yield self.finding(
        f"the PCI bus has {there} GPUs, NVML {nvml}{said}",
        observed={"pci": there, "nvml": answered, "inventory": expected},
        limit=expected if expected is not None else there,
        source=_INVENTORY if expected is not None else _NVML,
        remedy="power the host off and on, then reseat what is missing; if the host has fewer, correct gpu_count",
    )


@rule(
    "health.presence.missing",
    known_bad=Sample(
        {"gpu_probe.missing": [{"address": "0000:1b:00.0", "slot": "4", "name": "NVIDIA H100 80GB HBM3"}]},
        model="h100",
    ),
)
def missing(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every GPU on the PCI bus is among those that NVML lists."""
    for gpu in fact(facts, "gpu_probe.missing") or []:
        slot = f"slot {gpu['slot']}" if gpu.get("slot") else "slot not known"
        name = f" ({gpu['name']})" if gpu.get("name") else ""
        yield self.finding(
            f"the GPU{name} in {slot} is on the PCI bus and NVML does not list it",
            observed="missing",
            limit="listed",
            source=_NVML,
            remedy=f"look for NVRM lines: dmesg | grep {gpu['address'][5:]}; {_RESEAT}",
            gpu=str(gpu["address"]),
        )


def _of_status(self: Rule, facts: Facts, status: str, what: str, remedy: str) -> Iterator[Finding]:
    for device in devices(facts):
        if device.get("status") == status:
            address = str(device["address"])
            yield self.finding(
                f"{what}{_slot(facts, device)}{_said(device.get('message'), what)}",
                observed=status,
                limit="ok",
                source=_NVML,
                remedy=remedy.format(address=address),
                gpu=address,
            )


def _said(message: object, what: str) -> str:
    """What NVML said, where that is more than the finding says by itself."""
    words = " ".join(str(message or "").split())
    return f": {words}" if words and words.lower().rstrip(".") not in what.lower() else ""


def _slot(facts: Facts, device: Device) -> str:
    slot = on_bus(facts, device).get("slot")
    return f" (slot {slot})" if slot else ""


@rule("health.presence.lost", known_bad=Sample({"gpu_probe.devices.2.status": "lost"}, model="h100"))
def lost(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No GPU is lost: fallen off the bus, though the bus still names it."""
    yield from _of_status(self, facts, "lost", "the GPU is lost", _RESEAT)


@rule(
    "health.presence.reset_required",
    known_bad=Sample({"gpu_probe.devices.2.status": "reset_required"}, model="h100"),
)
def reset_required(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No GPU waits for a reset before it can be used again."""
    yield from _of_status(
        self, facts, "reset_required", "the GPU must be reset before it can be used", _RESET
    )


@rule("health.presence.silent", known_bad=Sample({"gpu_probe.devices.2.status": "timeout"}, model="h100"))
def silent(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every GPU answers NVML within its deadline."""
    remedy = (
        "look for a hung process (ps -eo pid,stat,comm | grep ' D') and for Xids in dmesg; drain and reboot"
    )
    yield from _of_status(self, facts, "timeout", "NVML does not answer for this GPU", remedy)


@rule("health.presence.unreadable", known_bad=Sample({"gpu_probe.devices.2.status": "error"}, model="h100"))
def unreadable(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every GPU can be read."""
    remedy = f"look again: nvidia-smi -q -i {{address}}; where it stays so, {_RESET}"
    yield from _of_status(self, facts, "error", "this GPU cannot be read", remedy)


@rule("health.presence.no_devices", known_bad=Sample({"gpu_probe.status": "no_devices"}, model="h100"))
def no_devices(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The driver has devices where the PCI bus has GPUs."""
    yield from _of_probe(
        self,
        facts,
        "no_devices",
        f"the driver has no devices, and the PCI bus has {len(bound(facts))} GPUs",
        "look for NVRM lines in dmesg: a driver too new or too old for the GPU, the wrong flavour of the kernel"
        " modules, or a GPU that did not come up; fleet provision INVENTORY --check tells the first three",
    )


@rule("health.presence.gpu_error", known_bad=Sample({"gpu_probe.status": "gpu_error"}, model="h100"))
def gpu_error(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No GPU keeps NVML from answering for the others."""
    if any(device.get("status") != "ok" for device in devices(facts)):
        return  # said of that very GPU
    yield from _of_probe(self, facts, "gpu_error", "a GPU keeps NVML from answering", _RESEAT)


@rule("health.presence.timeout", known_bad=Sample({"gpu_probe.status": "timeout"}, model="h100"))
def timeout(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """NVML answers within its deadline."""
    if any(device.get("status") == "timeout" for device in devices(facts)):
        return  # said of that very GPU
    remedy = "look for processes in state D and for Xids in dmesg; drain the host and reboot it"
    yield from _of_probe(self, facts, "timeout", "NVML does not answer", remedy)


@rule("health.presence.error", known_bad=Sample({"gpu_probe.status": "error"}, model="h100"))
def error(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """NVML could be asked."""
    yield from _of_probe(
        self, facts, "error", "the GPUs could not be asked for", "run nvidia-smi -q on the host"
    )


def _of_probe(self: Rule, facts: Facts, status: str, what: str, remedy: str) -> Iterator[Finding]:
    if fact(facts, "gpu_probe.status") == status:
        yield self.finding(
            f"{what}{_said(fact(facts, 'gpu_probe.message'), what)}",
            observed=status,
            limit="ok",
            source=_NVML,
            remedy=remedy,
        )


_RECOVERY = {
    "gpu_reset": _RESET,
    "drain_and_reset": _RESET,
    "bus_reset": "drain the host and reboot it: the bus must be reset",
    "node_reboot": "drain the host and reboot it",
    "system_reboot": "drain the host and reboot it",
    "drain_p2p": "drain jobs that use peer to peer from this GPU, then reset it",
    "recover_imex_domain": "restart nvidia-imex on the nodes of its domain",
}


@rule(
    "health.presence.recovery_action",
    known_bad=Sample({"gpu_probe.devices.2.recovery_action": "gpu_reset"}, model="h100"),
)
def recovery_action(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The driver asks for no recovery of any GPU."""
    for device in devices(facts):
        action = device.get("recovery_action")
        if action in (None, "none") or device.get("status") == "reset_required":
            continue
        address = str(device["address"])
        yield self.finding(
            f"the driver asks for recovery: {str(action).replace('_', ' ')}",
            observed=action,
            limit="none",
            source="NVML, GPU recovery action",
            remedy=_RECOVERY.get(str(action), "drain the host and reboot it").format(address=address),
            gpu=address,
        )


@rule(
    "health.presence.vbios",
    known_bad=Sample({"gpu_probe.devices.1.vbios_version": "96.00.61.00.01"}, model="h100"),
    severity=Severity.WARNING,
)
def vbios(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """GPUs of one product in a host have the same VBIOS."""
    products: dict[tuple[object, ...], dict[str, list[str]]] = {}
    for device in devices(facts):
        version = fact(device, "vbios_version")
        product = tuple(fact(device, key) for key in ("device_id", "subsystem_vendor_id", "subsystem_id"))
        if version is not None and product[0] is not None:
            products.setdefault(product, {}).setdefault(version, []).append(str(device["address"]))
    for versions in products.values():
        if len(versions) < 2:
            continue
        most = max(sorted(versions), key=lambda version: len(versions[version]))
        others = {version: gpus for version, gpus in sorted(versions.items()) if version != most}
        said = "; ".join(f"{version} on {', '.join(gpus)}" for version, gpus in others.items())
        yield self.finding(
            f"GPUs of one product have different VBIOS: {most} on {len(versions[most])}, {said}",
            observed={version: len(gpus) for version, gpus in sorted(versions.items())},
            limit="one version",
            source="azurehpc-health-checks and imbue's cluster-health compare them too",
            remedy="ask the vendor for the VBIOS of this product; mixed ones may differ in clocks and power",
        )
