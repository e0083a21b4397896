"""Values that cannot be are named, and kept as they were reported."""

from __future__ import annotations

import pytest

from fleet.agent.gpu_probe.device import empty_device
from fleet.agent.gpu_probe.plausible import judge_plausible


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"power_draw_w": 588.0, "power_limit_w": 35.0}, ["power_draw_w"]),
        ({"power_draw_w": 52.5, "power_limit_w": 35.0}, []),  # above the limit for a moment
        ({"power_draw_w": 588.0, "power_limit_w": 35.0, "power_limit_max_w": 600.0}, []),
        ({"power_draw_w": 588.0, "power_limit_enforced_w": 35.0}, ["power_draw_w"]),  # the only limit told
        ({"power_draw_w": 588.0}, []),
        ({"temperature_c": 255}, ["temperature_c"]),
        ({"memory_temperature_c": 511}, ["memory_temperature_c"]),
        ({"temperature_c": -5, "memory_temperature_c": 105}, []),
        (
            {"gpu_utilization_percent": 101, "memory_utilization_percent": -1},
            ["gpu_utilization_percent", "memory_utilization_percent"],
        ),
        ({"memory_used_mib": 81921, "memory_total_mib": 81920}, ["memory_used_mib"]),
        ({"memory_used_mib": 81920, "memory_total_mib": 81920}, []),
    ],
)
def test_what_cannot_be_is_named_and_kept(values: dict[str, float], named: list[str]) -> None:
    device = {**empty_device("0000:1b:00.0", "not_collected"), **values}
    judge_plausible(device)
    assert device["implausible"] == named
    assert {key: device[key] for key in values} == values
