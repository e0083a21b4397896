"""Records of benchmarks (``fleet.benchmark/1``) for tests: ``record("h100", 8)`` is a healthy host of eight.

Change what a test is about on the copy that each call returns. The rates are round figures near what such
GPUs are known to reach (docs/benchmarks/reading-results.md has the sources of the real ones).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

MATRIX = {"shape": [8192, 8192, 8192], "second_matrix": "by rows", "counting": "2*m*n*k operations"}
RATES_OF_LINK = {3: 12.4, 4: 25.9, 5: 55.0}
DIGEST = "sha256:" + "a1" * 32


@dataclass(frozen=True)
class Model:
    """One product: its ids, and the rates of a healthy one by test. ``bus_gb_s``: all_reduce of a full host."""

    name: str
    device_id: str
    subsystem_id: str
    compute_capability: str
    memory_total_mib: int
    max_sm_clock_mhz: int
    power_limit_w: float
    pcie_generation: int
    rates: Mapping[str, float]
    peer_gb_s: float
    bus_gb_s: float


MODELS = {
    "h100": Model(
        "NVIDIA H100 80GB HBM3", "2330", "16c1", "9.0", 81559, 1980, 700.0, 5,
        {"fp64": 55, "fp32": 50, "tf32": 395, "fp16": 720, "bf16": 745, "fp8": 1350, "int8": 1400,
         "memory.copy": 2950, "memory.triad": 3010, "resnet50": 2700, "transformer": 52000},
        390.0, 440.0,
    ),
    "h200": Model(
        "NVIDIA H200", "2335", "18be", "9.0", 143771, 1980, 700.0, 5,
        {"fp64": 55, "fp32": 50, "tf32": 395, "fp16": 725, "bf16": 750, "fp8": 1380, "int8": 1400,
         "memory.copy": 4150, "memory.triad": 4230, "resnet50": 3000, "transformer": 55000},
        390.0, 450.0,
    ),
    "4090": Model(
        "NVIDIA GeForce RTX 4090", "2684", "16f3", "8.9", 24564, 3105, 450.0, 4,
        {"fp32": 71, "tf32": 78, "fp16": 158, "bf16": 160, "fp8": 300, "int8": 560,
         "memory.copy": 920, "memory.triad": 925, "resnet50": 1300, "transformer": 19000},
        22.0, 11.0,
    ),
    "t4": Model(
        "Tesla T4", "1eb8", "12a2", "7.5", 15360, 1590, 70.0, 3,
        {"fp32": 5.4, "fp16": 38, "int8": 75,
         "memory.copy": 240, "memory.triad": 245, "resnet50": 310, "transformer": 3900},
        9.5, 6.0,
    ),
}  # fmt: skip


def uuid(number: int, host: int = 0) -> str:
    """The UUID of GPU ``number`` of the ``host``-th host."""
    return f"GPU-00000000-0000-4000-8000-{host:06x}{number:06x}"


def gpu(model: str, number: int, *, host: int = 0) -> Json:
    """One healthy GPU of a record."""
    one = MODELS[model]
    idle = {
        "sm_clock_mhz": 345,
        "temperature_c": 34,
        "power_draw_w": 71.5,
        "memory_used_mib": 4,
        "ecc_mode": None if model == "4090" else "enabled",
        "mig_mode": "disabled" if model in ("h100", "h200") else None,
    }
    return {
        "uuid": uuid(number, host),
        "address": f"0000:{16 + number:02x}:00.0",
        "index": number,
        "name": one.name,
        "mig_profile": None,
        "device_id": one.device_id,
        "subsystem_id": one.subsystem_id,
        "compute_capability": one.compute_capability,
        "state": "measured",
        "reason": None,
        "message": None,
        "before": idle,
        "after": {**idle, "temperature_c": 48},
        "during": {
            "samples": 120,
            "sm_clock_mhz_median": one.max_sm_clock_mhz - 60,
            "max_sm_clock_mhz": one.max_sm_clock_mhz,
            "power_draw_w_max": one.power_limit_w - 2.0,
            "power_limit_w": one.power_limit_w,
            "temperature_c_max": 66,
            "clocks_event_reasons": [],
            "gpu_utilization_percent_median": 98,
            "memory_used_mib_max": one.memory_total_mib // 2,
            "memory_total_mib": one.memory_total_mib,
            "pcie_generation": one.pcie_generation,
            "pcie_width": 16,
        },
    }


def result(test: str, gpus: Iterable[str], value: float | None, unit: str = "tflops", **changes: Any) -> Json:
    """One result that was measured well."""
    whole = {
        "test": test,
        "gpus": list(gpus),
        "status": "measured",
        "reason": None,
        "message": None,
        "value": value,
        "unit": unit,
        "samples": 20,
        "minimum": None if value is None else value * 0.99,
        "maximum": None if value is None else value * 1.01,
        "spread_percent": 0.4,
        "parameters": {},
        "correctness": {"checked": True, "passed": True, "max_relative_error": 1e-4, "tolerance": 1e-2},
        "points": None,
        "clocks_event_reasons": [],
        "notes": [],
    }
    return {**whole, **copy.deepcopy(changes)}


def not_measured(test: str, gpus: Iterable[str], status: str, reason: str, message: str, unit: str) -> Json:
    """One result without a value: failed, skipped, timeout, invalid, not_runnable."""
    return result(
        test,
        gpus,
        None,
        unit,
        status=status,
        reason=reason,
        message=message,
        samples=0,
        spread_percent=None,
        correctness=None,
    )


def record(model: str = "h100", count: int = 8, *, host: int = 0, suite: str = "full") -> Json:
    """The record of a healthy host with ``count`` GPUs of ``model``; ``host`` numbers its UUIDs."""
    gpus = [gpu(model, number, host=host) for number in range(count)]
    results = [one for each in gpus for one in _alone(model, each["uuid"])]
    if count > 1:
        results += _together(model, [each["uuid"] for each in gpus])
    results.append(result("cpu.matrix_product", [], 0.4, parameters={"size": 512}))
    return {
        "schema": "fleet.benchmark/1",
        "suite": suite,
        "started_at": "2026-11-30T20:00:00Z",
        "ended_at": "2026-11-30T20:07:30Z",
        "duration_s": 450.0,
        "simulated": False,
        "key": {
            "boot": "3f1c6a6e-0000-4000-8000-000000000001",
            "driver": "580.159.04",
            "image": DIGEST,
            "toolkit": "1.18.1",
            "engine": "28.5.2",
            "suite": suite,
        },
        "where": "container",
        "image": {"reference": "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime", "digest": DIGEST},
        "software": {
            "python": "3.11.11",
            "torch": "2.7.0+cu128",
            "cuda": "12.8",
            "cudnn": "9.7.1",
            "nccl": "2.26.2",
            "arch_list": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"],
            "compiler": True,
        },
        "gpus": gpus,
        "results": results,
    }


def of(document: Json, test: str, number: int = 0) -> Json:
    """The ``number``-th result of ``test`` in a record, to be changed in place."""
    found: list[Json] = [one for one in document["results"] if one["test"] == test]
    return found[number]


def scale(one: Json, factor: float) -> None:
    """Make a result ``factor`` times as fast, its samples with it."""
    for key in ("value", "minimum", "maximum"):
        one[key] *= factor


def _alone(model: str, each: str) -> list[Json]:
    """What one GPU is measured at by itself."""
    rates = MODELS[model].rates
    link = RATES_OF_LINK[MODELS[model].pcie_generation]
    found = [
        result(
            f"matrix_product.{kind}", [each], rate, "tops" if kind == "int8" else "tflops", parameters=MATRIX
        )
        for kind, rate in rates.items()
        if "." not in kind and kind not in ("resnet50", "transformer")
    ]
    counted = {"bytes": 1 << 30, "counting": "bytes read + bytes written"}
    found += [
        result(test, [each], rates[test], "gb_s", parameters=counted)
        for test in ("memory.copy", "memory.triad")
    ]
    found += [
        result(f"host_link.{way}", [each], link, "gb_s", parameters={"bytes": 1 << 28, "pinned": True})
        for way in ("to_device", "from_device")
    ]
    batch = {"batch": 128, "image_size": 224, "loader": "synthetic", "channels_last": False}
    found.append(result("resnet50.amp", [each], rates["resnet50"], "images_s", parameters=batch))
    eager = rates["transformer"]
    found.append(
        result(
            "transformer.compile",
            [each],
            eager * 1.3,
            "tokens_s",
            parameters={
                "batch": 8,
                "eager_value": eager,
                "gain_percent": 30.0,
                "graph_breaks": 0,
                "compile_s": 41.0,
            },
        )
    )
    return found


def _together(model: str, uuids: list[str]) -> list[Json]:
    """What the GPUs of one host are measured at together."""
    one = MODELS[model]
    bus, size = one.bus_gb_s, 8 << 30
    points = [
        {"size_bytes": 1 << 20, "time_us": 60.0, "bus_gb_s": bus / 12, "algorithm_gb_s": bus / 21},
        {"size_bytes": size, "time_us": 3e4, "bus_gb_s": bus, "algorithm_gb_s": bus / 1.75},
    ]
    peers = [
        result("peer.copy", pair, one.peer_gb_s, "gb_s", parameters={"bytes": 1 << 28})
        for pair in zip(uuids, uuids[1:] + uuids[:1], strict=True)
    ]
    return [
        *peers,
        result(
            "nccl.all_reduce",
            uuids,
            bus,
            "gb_s",
            parameters={"ranks": len(uuids), "size_bytes": size},
            points=points,
        ),
        result("nccl.all_reduce_latency", uuids, 22.0, "us", parameters={"ranks": len(uuids)}),
        result(
            "ddp.resnet50",
            uuids,
            one.rates["resnet50"] * len(uuids) * 0.93,
            "images_s",
            parameters={"batch": 128, "synchronisation_percent": 6.5},
        ),
    ]
