"""Power: braked by the supply, limited below what the card ships with, or measured as what cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import answering, reasons
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = ("power_draw_w",)
_MOST_DRAW = "no card draws more than one and a half times its limit"
_IMPLAUSIBLE: dict[str, object] = {
    "power_draw_w": 588.0,
    "power_limit_w": 35.0,
    "implausible": ["power_draw_w"],
}


@rule(
    "health.power.brake",
    known_bad=Sample({"gpu_probe.devices.5.clocks_event_reasons": ["hw_power_brake_slowdown"]}, model="h100"),
)
def brake(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The power supply does not brake a GPU."""
    for device, address in answering(facts):
        if "hw_power_brake_slowdown" in reasons(facts, device):
            yield self.finding(
                "the power supply brakes this GPU",
                observed="hw_power_brake_slowdown",
                limit="no power brake",
                source="NVML clocks event reasons",
                remedy="look at power supplies, cables and the chassis's power cap (BMC)",
                gpu=address,
            )


@rule(
    "health.power.limit",
    known_bad=Sample({"gpu_probe.devices.5.power_limit_enforced_w": 400.0}, model="h100"),
    severity=Severity.INFO,
)
def limit(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The power limit is the one that the card ships with."""
    for device, address in answering(facts):
        enforced = device.get("power_limit_enforced_w") or device.get("power_limit_w")
        default = device.get("power_limit_default_w")
        if enforced is not None and default is not None and enforced < default:
            yield self.finding(
                f"power limit {enforced:g} W, the card ships with {default:g} W",
                observed=enforced,
                limit=default,
                source="NVML, default power limit",
                remedy=f"where nobody meant it: nvidia-smi -i {address} -pl {default:g}",
                gpu=address,
            )


@rule(
    "health.power.implausible",
    known_bad=Sample(
        {f"gpu_probe.devices.0.{name}": value for name, value in _IMPLAUSIBLE.items()}, model="rtx4090"
    ),
    severity=Severity.INFO,
)
def implausible(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """What the card measures of itself can be true."""
    for device, address in answering(facts):
        for path in device.get("implausible") or ():
            is_draw = path == "power_draw_w"
            most = device.get("power_limit_w") if is_draw else None
            of = f" of a limit of {most:g} W" if most is not None else ""
            yield self.finding(
                f"{path} {fact(device, path):g}{of} cannot be; it is kept as reported and enters no average",
                observed=fact(device, path),
                limit=most,
                source=_MOST_DRAW if is_draw else "a reading that no card can have",
                remedy="another driver version may read the sensor right",
                gpu=address,
            )
