"""Clocks: slowed down by the hardware, or below their maximum for no reason the driver gives.

Heat is in :mod:`.thermal`, power in :mod:`.power`. A power cap that works is no fault, and that a GPU is idle is none.
What a benchmark saw while it loaded the GPU is judged as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import Device, answering, believed, measured, reasons
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = ("clocks_event_reasons",)
_SOURCE = "NVML clocks event reasons"
#: Below this share of the maximum, clocks are called low.
FULL = 0.95
#: What makes a GPU busy: utilisation, or where that is not known, the share of its power limit that it draws.
BUSY_PERCENT, BUSY_POWER = 50, 0.3
_BUSY: dict[str, object] = {"clocks_event_reasons": [], "gpu_utilization_percent": 98, "sm_clock_mhz": 1507}


@rule(
    "health.clocks.slowdown",
    known_bad=Sample({"gpu_probe.devices.5.clocks_event_reasons": ["hw_slowdown"]}, model="h100"),
)
def slowdown(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The hardware does not slow a GPU down. Where it says why, heat or power, that is its own finding."""
    for device, address in answering(facts):
        found = reasons(facts, device)
        if "hw_slowdown" in found and not found & {"hw_thermal_slowdown", "hw_power_brake_slowdown"}:
            yield self.finding(
                "the hardware slows this GPU down, and does not say why",
                observed=sorted(found),
                limit="no hw_slowdown",
                source=_SOURCE,
                remedy="look at temperature, fans and power cables; compare no benchmark of this GPU meanwhile",
                gpu=address,
            )


@rule(
    "health.clocks.locked",
    known_bad=Sample({f"gpu_probe.devices.5.{name}": value for name, value in _BUSY.items()}, model="h100"),
    severity=Severity.INFO,
)
def locked(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """A busy GPU runs at its maximum clock, or the driver says what holds it back."""
    for device, address in answering(facts):
        clock, most = _busy_clock(facts, device), device.get("max_sm_clock_mhz")
        known = device.get("clocks_event_reasons") is not None
        if clock is None or not most or not known or reasons(facts, device) or clock >= FULL * most:
            continue
        yield self.finding(
            f"SM clock {clock:.0f} of {most} MHz under load and no reason given: locked clocks likely",
            observed=clock,
            limit=most,
            source=_SOURCE,
            remedy="where nobody meant it: nvidia-smi --reset-gpu-clocks",
            gpu=address,
        )


def _busy_clock(facts: Facts, device: Device) -> float | None:
    """The SM clock under load: a benchmark's median, else the one now where the GPU is at work."""
    median = measured(facts, device).get("sm_clock_mhz_median")
    if median is not None:
        return float(median)
    busy, draw, limit = (
        believed(device).get(name) for name in ("gpu_utilization_percent", "power_draw_w", "power_limit_w")
    )
    if "gpu_idle" in (device.get("clocks_event_reasons") or ()):
        return None
    works = busy >= BUSY_PERCENT if busy is not None else bool(draw and limit and draw >= BUSY_POWER * limit)
    return device.get("sm_clock_mhz") if works else None
