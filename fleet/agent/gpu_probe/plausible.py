"""Values that cannot be, whoever told them: NVML or nvidia-smi."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from fleet.agent.protocol import Json


# Path -> (least, most) that can be; outside of it a sensor or the driver is wrong.
_POSSIBLE = {
    "temperature_c": (-40, 150),
    "memory_temperature_c": (-40, 150),
    "gpu_utilization_percent": (0, 100),
    "memory_utilization_percent": (0, 100),
}
_POWER_LIMITS = ("power_limit_w", "power_limit_max_w", "power_limit_enforced_w")
DRAW_OVER_LIMIT = 1.5  # above the limit for a moment is normal, half as much again is not


def judge_plausible(device: Json) -> None:
    """Fill ``implausible``: values that cannot be. They stay as reported, and enter no average."""
    found = []
    limits = [device[key] for key in _POWER_LIMITS if device[key]]
    draw = device["power_draw_w"]
    if draw is not None and limits and draw > DRAW_OVER_LIMIT * max(limits):
        found.append("power_draw_w")
    found += [
        path
        for path, (least, most) in _POSSIBLE.items()
        if device[path] is not None and not least <= device[path] <= most
    ]
    used, total = device["memory_used_mib"], device["memory_total_mib"]
    if used is not None and total is not None and used > total:
        found.append("memory_used_mib")
    device["implausible"] = found
