"""Heat, caps and locked clocks: what spoils a figure, what is noted, and what is nothing."""

from __future__ import annotations

from typing import Any

from fleet.agent.bench import conditions
from fleet.agent.bench.output import result

from .doubles import device, idle, sample


def said(*samples: dict[str, Any], max_sm_clock_mhz: float | None = 1980) -> dict[str, Any]:
    one = result("matrix_product.bf16", ["GPU-0"], status="measured", value=700.0, samples=20)
    conditions.apply(one, list(samples), max_sm_clock_mhz)
    return one


def test_heat_makes_a_result_invalid_and_says_how_hot() -> None:
    hot = {
        "clocks_event_reasons": ["hw_slowdown", "hw_thermal_slowdown"],
        "temperature_c": 92,
        "sm_clock_mhz": 795,
    }
    found = said(sample(0, 0.0), sample(0, 1.0, **hot))
    assert (found["status"], found["reason"]) == ("invalid", "hw_thermal_slowdown")
    assert "1 of 2 samples, up to 92 °C, down to 795 MHz" in found["message"]
    assert found["value"] == 700.0  # kept for whoever looks


def test_the_power_brake_makes_it_invalid_too() -> None:
    for name in ("hw_slowdown", "hw_power_brake_slowdown"):
        found = said(sample(0, 0.0, clocks_event_reasons=[name]))
        assert (found["status"], found["reason"]) == ("invalid", "hw_slowdown")


def test_a_power_cap_is_noted_and_the_result_stands() -> None:
    capped = sample(0, 1.0, clocks_event_reasons=["sw_power_cap"], sm_clock_mhz=1395)
    found = said(sample(0, 0.0), capped, capped)
    assert found["status"] == "measured"
    assert found["notes"] == ["held at the power limit in 2 of 3 samples"]
    assert found["clocks_event_reasons"] == ["sw_power_cap"]


def test_low_clocks_with_no_reason_are_likely_locked() -> None:
    found = said(sample(0, 0.0, sm_clock_mhz=1507), sample(0, 1.0, sm_clock_mhz=1507))
    assert found["status"] == "measured"
    assert found["notes"] == ["SM clock 1507 of 1980 MHz with no reason given: locked clocks likely"]


def test_an_idle_gpu_is_neither_slowed_nor_locked() -> None:
    found = said(idle(0, 0.0), idle(0, 1.0))
    assert (found["status"], found["notes"], found["clocks_event_reasons"]) == ("measured", [], [])


def test_nothing_sampled_is_null_and_not_an_empty_list() -> None:
    assert said()["clocks_event_reasons"] is None
    assert said(sample(0, 0.0, clocks_event_reasons=None))["clocks_event_reasons"] is None


def test_a_result_that_failed_keeps_its_own_reason() -> None:
    one = result("burn", ["GPU-0"], status="failed", reason="wrong_result")
    conditions.apply(one, [sample(0, 0.0, clocks_event_reasons=["hw_slowdown"])], 1980)
    assert (one["status"], one["reason"]) == ("failed", "wrong_result")


def test_during_is_of_the_work_and_not_of_the_pauses() -> None:
    samples = [idle(0, 0.0, pcie_generation=1), sample(0, 1.0), sample(0, 2.0, power_draw_w=5880.0)]
    found = conditions.during(samples, samples[1:], device(0))
    assert found["samples"] == 3
    assert found["gpu_utilization_percent_median"] == samples[1]["gpu_utilization_percent"]
    assert found["sm_clock_mhz_median"] == 1935
    assert found["pcie_generation"] == 5  # an idle link is slow on purpose
    assert found["power_draw_w_max"] == 640.0  # 5880 W of a 700 W limit is not believed
    assert found["clocks_event_reasons"] == []


def test_how_busy_it_was_is_not_known_where_no_test_kept_it_at_work() -> None:
    found = conditions.during([idle(0, 0.0), idle(0, 1.0)], [], device(0))
    assert found["gpu_utilization_percent_median"] is None


def test_during_of_no_sample_has_no_figures() -> None:
    found = conditions.during([], [], device(0))
    assert (found["samples"], found["sm_clock_mhz_median"], found["temperature_c_max"]) == (0, None, None)
