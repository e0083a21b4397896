"""Doubles of what the runner is given: devices of the probe, a sampler, and the lines that the torch side prints."""

from __future__ import annotations

import copy
import json
from typing import Any

Json = dict[str, Any]


def uuid(number: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{number:012d}"


def address(number: int) -> str:
    return f"0000:{27 + number:02x}:00.0"


def device(number: int, **changes: Any) -> Json:
    """A healthy H100 as the probe has it, as far as the runner reads."""
    whole: Json = {
        "address": address(number),
        "status": "ok",
        "message": None,
        "index": number,
        "minor": number,
        "uuid": uuid(number),
        "name": "NVIDIA H100 80GB HBM3",
        "device_id": "2330",
        "subsystem_id": "16c1",
        "compute_capability": "9.0",
        "sm_clock_mhz": 345,
        "max_sm_clock_mhz": 1980,
        "temperature_c": 34,
        "power_draw_w": 71.5,
        "power_limit_w": 700.0,
        "power_limit_enforced_w": 700.0,
        "power_limit_max_w": 700.0,
        "memory_used_mib": 4,
        "memory_total_mib": 81559,
        "ecc_mode": "enabled",
        "mig": {"mode": "disabled", "devices": []},
        "remapped_rows": {"pending": False},
        "retired_pages": {"pending": None},
        "recovery_action": "none",
        "processes": [],
    }
    return {**whole, **copy.deepcopy(changes)}


def sample(number: int, at_s: float, **changes: Any) -> Json:
    """A sample of a GPU at full work."""
    whole: Json = {
        "at_s": at_s,
        "address": address(number),
        "sm_clock_mhz": 1935,
        "memory_clock_mhz": 2619,
        "power_draw_w": 640.0,
        "temperature_c": 61,
        "memory_temperature_c": 70,
        "clocks_event_reasons": [],
        "gpu_utilization_percent": 99,
        "memory_used_mib": 40000,
        "pcie_generation": 5,
        "pcie_width": 16,
        "processes": [],
    }
    return {**whole, **changes}


def idle(number: int, at_s: float = 0.0, **changes: Any) -> Json:
    quiet: Json = {
        "sm_clock_mhz": 345,
        "power_draw_w": 71.5,
        "temperature_c": 34,
        "clocks_event_reasons": ["gpu_idle"],
        "gpu_utilization_percent": 0,
        "memory_used_mib": 4,
    }
    return sample(number, at_s, **{**quiet, **changes})


class Sampler:
    """Gives the same samples always."""

    problem: str | None = None

    def __init__(self, samples: list[Json]) -> None:
        self.samples = samples

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *unused: object) -> None:
        return


def result_line(test: str, gpus: list[str], value: Any = 100.0, **changes: Any) -> str:
    """One line as the torch side prints it."""
    whole: Json = {
        "test": test,
        "gpus": gpus,
        "status": "measured",
        "reason": None,
        "message": None,
        "value": value,
        "unit": "tflops",
        "samples": 20,
        "minimum": 99.0,
        "maximum": 101.0,
        "spread_percent": 0.5,
        "parameters": {"size": 8192},
        "correctness": {"checked": True, "passed": True, "max_relative_error": 1e-4, "tolerance": 1e-2},
        "points": None,
        "clocks_event_reasons": None,
        "notes": [],
    }
    return "fleet:result " + json.dumps({**whole, **changes}) + "\n"


SOFTWARE = "fleet:software " + json.dumps(
    {
        "python": "3.11.2",
        "torch": "2.7.0+cu128",
        "cuda": "12.8",
        "cudnn": 90701,
        "nccl": "2.26.2",
        "arch_list": ["sm_80", "sm_90"],
        "compiler": True,
    }
)
