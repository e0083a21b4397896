"""The link to the host: its width at any time, its generation only where it was read under load.

At rest a GPU may lower the generation of its link to save power, so what is read then says nothing; the width stays.
Each is held against what GPU and host can do together.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import Device, answering, measured
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = ("pcie.width", "pcie.width_max")
_UNDER_LOAD = {"gpu_probe.devices.3.pcie.generation": 3, "gpu_probe.devices.3.pcie.sampled_under_load": True}
_SOURCE = "PCIe: both ends train to the lower of their maxima; sysfs and NVML give them"
_RESEAT = (
    "drain, power off, reseat card and riser, clean the slot; another slot or card then tells which is bad"
)


@rule(
    "health.pcie.width",
    known_bad=Sample({"gpu_probe.devices.3.pcie.width": 8}, model="h100"),
    severity=Severity.WARNING,
)
def width(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The link has as many lanes as GPU and host can do together."""
    for device, address in answering(facts):
        widths = [fact(device, "pcie.width"), measured(facts, device).get("pcie_width")]
        seen = min((lanes for lanes in widths if lanes), default=None)
        most = fact(device, "pcie.width_max")
        if seen is not None and most is not None and seen < most:
            guest = _host_not_seen(device)
            yield self.finding(
                f"the PCIe link runs with {seen} lanes of {most}"
                + (", and what its slot has only the hypervisor's host knows" if guest else ""),
                observed=seen,
                limit=most,
                source=_SOURCE,
                remedy="compare with other machines of this type" if guest else _RESEAT,
                severity=Severity.INFO if guest else None,
                gpu=address,
            )


def _host_not_seen(device: Device) -> bool:
    """Whether the GPU was handed to this virtual machine, so that the bridge above it is none of its own.

    Clouds hand on a T4, A10G or L40S with 8 lanes of 16, and that is all its slot has.
    """
    passed = device.get("virtualization_mode") == "passthrough"
    return passed and fact(device, "pcie.generation_max_host") is None


@rule("health.pcie.generation", known_bad=Sample(_UNDER_LOAD, model="h100"), severity=Severity.WARNING)
def generation(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Under load the link runs in the generation that GPU and host can do together. At rest it is not judged."""
    for device, address in answering(facts):
        seen, most = _under_load(facts, device), _possible(device)
        if seen is not None and most is not None and seen < most:
            yield self.finding(
                f"under load the PCIe link runs in generation {seen} of {most}",
                observed=seen,
                limit=most,
                source=_SOURCE,
                remedy=f"look for AER lines in dmesg and for a limit in the firmware's setup; {_RESEAT}",
                gpu=address,
            )


def _under_load(facts: Facts, device: Device) -> int | None:
    seen = [measured(facts, device).get("pcie_generation")]
    if fact(device, "pcie.sampled_under_load"):
        seen.append(fact(device, "pcie.generation"))
    return min((one for one in seen if one), default=None)


def _possible(device: Device) -> int | None:
    names = ("generation_max", "generation_max_gpu", "generation_max_host")
    return min((most for name in names if (most := fact(device, f"pcie.{name}"))), default=None)
