"""Under which conditions a figure was measured: clocks, heat and power while the test ran.

A GPU that its hardware slowed down gives no figure to compare: the result is invalid. A cap on power is how GPUs
are meant to work, and is noted. Clocks below the highest with no reason given are most likely locked by somebody.
The samples are those of :class:`fleet.agent.gpu_probe.sampler.Sampler`.
"""

from __future__ import annotations

from fleet.agent.gpu_probe.plausible import DRAW_OVER_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, List, Optional

    from fleet.agent.protocol import Json


IDLE = "gpu_idle"
# Names of clocks event reasons that make a result invalid, and the record's reason for it; the first counts.
SLOWED = (
    ("hw_thermal_slowdown", "hw_thermal_slowdown", "the GPU is too hot: its hardware slowed it down"),
    ("hw_slowdown", "hw_slowdown", "the GPU's hardware slowed it down (heat, or the power brake)"),
    ("hw_power_brake_slowdown", "hw_slowdown", "the power supply asked the GPU to slow down (power brake)"),
)
NOTED = {
    "sw_power_cap": "held at the power limit",
    "sw_thermal_slowdown": "slowed by the driver to stay below its temperature limit",
    "applications_clocks_setting": "application clocks are set",
    "sync_boost": "clocks follow the slowest GPU of a sync boost group",
}
LOCKED_BELOW = 0.95  # of the highest clock
LOADED_PERCENT = 50


def reasons(samples: List[Json]) -> Optional[List[str]]:
    """The reasons that were active in any sample, without idling; None where nothing was sampled."""
    said = [one["clocks_event_reasons"] for one in samples if one.get("clocks_event_reasons") is not None]
    if not said:
        return None
    return sorted({name for names in said for name in names} - {IDLE})


def under_load(samples: List[Json]) -> List[Json]:
    """Those samples in which the GPU was at work, as far as it says; of a MIG GPU, which says no utilisation,
    those in which it did not call itself idle."""
    return [one for one in samples if _at_work(one)]


def _at_work(sample: Json) -> bool:
    if IDLE in (sample.get("clocks_event_reasons") or []):
        return False
    percent = sample.get("gpu_utilization_percent")
    return percent is None or percent >= LOADED_PERCENT


def during(samples: List[Json], at_work: List[Json], device: Json) -> Json:
    """``during`` of a record's GPU, of all samples of it while tests ran; how busy it was, of those that were
    taken while a test kept it at work: between tests it waits for the host, which is no fault."""
    loaded = under_load(samples)
    return {
        "samples": len(samples),
        "sm_clock_mhz_median": median(_values(loaded, "sm_clock_mhz")),
        "max_sm_clock_mhz": device.get("max_sm_clock_mhz"),
        "power_draw_w_max": _power(samples, device),
        "power_limit_w": device.get("power_limit_enforced_w") or device.get("power_limit_w"),
        "temperature_c_max": _highest(samples, "temperature_c"),
        "clocks_event_reasons": reasons(samples) or [],
        "gpu_utilization_percent_median": median(_values(at_work, "gpu_utilization_percent")),
        "memory_used_mib_max": _highest(samples, "memory_used_mib"),
        "memory_total_mib": device.get("memory_total_mib"),
        "pcie_generation": _highest(samples, "pcie_generation"),
        "pcie_width": _highest(samples, "pcie_width"),
    }


def apply(result: Json, samples: List[Json], max_sm_clock_mhz: Optional[float]) -> None:
    """Say in a result what the samples of its time say, and make it invalid where they spoil it.

    ``samples`` are those of its GPUs between the result before it and its own end.
    """
    active = reasons(samples)
    result["clocks_event_reasons"] = active
    if result["status"] == "measured":
        for name, reason, words in SLOWED:
            if name in (active or []):
                result.update(status="invalid", reason=reason, message=slowed_words(words, name, samples))
                break
    counted = len([one for one in samples if one.get("clocks_event_reasons") is not None])
    for name in (name for name in NOTED if name in (active or [])):
        often = len([one for one in samples if name in (one.get("clocks_event_reasons") or [])])
        result["notes"].append("%s in %d of %d samples" % (NOTED[name], often, counted))
    locked = None if active else locked_words(samples, max_sm_clock_mhz)
    if locked is not None:
        result["notes"].append(locked)


def slowed_words(words: str, name: str, samples: List[Json]) -> str:
    """The cause, with the hottest and slowest that was seen."""
    bad = [one for one in samples if name in (one.get("clocks_event_reasons") or [])]
    seen = ["%d of %d samples" % (len(bad), len(samples))]
    temperature, clocks = _highest(bad, "temperature_c"), _values(bad, "sm_clock_mhz")
    if temperature is not None:
        seen.append("up to %d °C" % temperature)
    if clocks:
        seen.append("down to %d MHz" % min(clocks))
    return "%s: %s" % (words, ", ".join(seen))


def locked_words(samples: List[Json], max_sm_clock_mhz: Optional[float]) -> Optional[str]:
    """The note on clocks that stay low for no reason that the GPU gives, or None."""
    clock = median(_values(under_load(samples), "sm_clock_mhz"))
    if not clock or not max_sm_clock_mhz or clock >= LOCKED_BELOW * max_sm_clock_mhz:
        return None
    return "SM clock %d of %d MHz with no reason given: locked clocks likely" % (clock, max_sm_clock_mhz)


def _power(samples: List[Json], device: Json) -> Optional[float]:
    """The highest draw that can be: a sensor that says half as much again as the limit is not believed."""
    limits = [device[key] for key in ("power_limit_w", "power_limit_max_w") if device.get(key)]
    draws = _values(samples, "power_draw_w")
    believed = [draw for draw in draws if not limits or draw <= DRAW_OVER_LIMIT * max(limits)]
    return max(believed) if believed else None


def median(values: List[float]) -> Optional[float]:
    """The middle value; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _values(samples: List[Json], key: str) -> List[float]:
    return [one[key] for one in samples if one.get(key) is not None]


def _highest(samples: List[Json], key: str) -> Any:
    values = _values(samples, key)
    return max(values) if values else None
