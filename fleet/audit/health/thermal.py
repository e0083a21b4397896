"""Heat: a GPU that slows down for it, and one that stands at the temperature where it would.

Thresholds are the card's own: older ones give degrees, newer ones the margin that is left.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import answering, believed, reasons
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = ("temperature_c", "fan_speed_percent")
_REMEDY = "look at fans, filters and the inlet's temperature; compare no benchmark of this GPU meanwhile"


@rule(
    "health.thermal.slowdown",
    known_bad=Sample({"gpu_probe.devices.5.clocks_event_reasons": ["hw_thermal_slowdown"]}, model="h100"),
)
def slowdown(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No GPU is slowed down by heat."""
    for device, address in answering(facts):
        found = reasons(facts, device) & {"hw_thermal_slowdown", "sw_thermal_slowdown"}
        if found:
            hard = "hw_thermal_slowdown" in found
            degrees = f" at {device['temperature_c']} °C" if device.get("temperature_c") is not None else ""
            yield self.finding(
                f"{'the hardware' if hard else 'the driver'} slows this GPU down for heat{degrees}",
                observed=sorted(found),
                limit="no thermal slowdown",
                source="NVML clocks event reasons",
                remedy=_REMEDY,
                severity=None if hard else Severity.WARNING,
                gpu=address,
            )


@rule(
    "health.thermal.temperature",
    known_bad=Sample({"gpu_probe.devices.1.temperature_c": 93}, model="t4"),
)
def temperature(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every GPU is below the temperature that its maker has it work at."""
    for told, address in answering(facts):
        device = believed(told)
        now, margin = device.get("temperature_c"), device.get("temperature_margin_c")
        slow, most = device.get("temperature_slowdown_c"), device.get("temperature_max_operating_c")
        at_slowdown = (slow is not None and now is not None and now >= slow) or (
            margin is not None and margin <= 0
        )
        too_warm = most is not None and now is not None and now >= most
        if at_slowdown or too_warm:
            margin_words = f", margin {margin} °C" if margin is not None and slow is None else ""
            yield self.finding(
                f"{now} °C{margin_words}: "
                + ("it slows down here" if at_slowdown else "above what it is made for"),
                observed=now,
                limit=slow if at_slowdown and slow is not None else most if too_warm else "a margin above 0",
                source="NVML, the card's own temperature thresholds",
                remedy=_REMEDY,
                severity=None if at_slowdown else Severity.WARNING,
                gpu=address,
            )
