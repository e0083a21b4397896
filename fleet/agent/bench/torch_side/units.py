"""Which unit each test's value has, and how work and seconds make a value. Imports nothing of torch.

A value is ``amount / seconds / SCALES[unit]``; for latencies it is ``seconds / amount * 1e6``.
"""

from __future__ import annotations

TERA, GIGA, MICRO = 1e12, 1e9, 1e-6
SCALES = {"tflops": TERA, "tops": TERA, "gb_s": GIGA, "images_s": 1.0, "tokens_s": 1.0, "samples_s": 1.0}
_UNITS = {
    "memory": "gb_s",
    "host_link": "gb_s",
    "peer": "gb_s",
    "nccl": "gb_s",
    "resnet50": "images_s",
    "ddp": "images_s",
    "transformer": "tokens_s",
    "burn": "count",
}


def unit_of(test: str) -> str:
    """The unit of ``test``'s value: ``unit_of("matrix_product.int8") == "tops"``."""
    family, _, kind = test.partition(".")
    if kind.endswith("latency"):
        return "us"
    if family in ("matrix_product", "cpu"):
        return "tops" if kind.startswith("int8") else "tflops"
    return _UNITS[family]


def value_of(test: str, amount: float, seconds: float) -> float:
    """The value of ``test`` that did ``amount`` of work (operations, bytes, images …) in ``seconds``."""
    unit = unit_of(test)
    if unit == "us":
        return seconds / amount / MICRO
    return amount / seconds / SCALES[unit]


def seconds_at(test: str, amount: float, value: float) -> float:
    """The seconds in which ``amount`` is done at ``value``: what a simulated backend's ``measure`` answers."""
    unit = unit_of(test)
    if unit == "us":
        return value * amount * MICRO
    return amount / (value * SCALES[unit])
