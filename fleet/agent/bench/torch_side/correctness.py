"""What is computed is compared with float64 before anything is timed: a fast wrong answer has no rate.

The error is the largest difference over the largest magnitude of the reference, so that sums near zero do not
count as wrong. The reference is computed on the CPU, from the very inputs the device got (rounded to their
type). Tolerances follow from the types: what the result is rounded to, and what products are rounded to first.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

# Result's rounding (half a unit in the last place: fp16 and tf32 2**-11, bf16 2**-9) times about four; fp32 and
# fp64 have the growth of a sum of some thousand products besides. fp8's accumulation may have 14 bits only.
TOLERANCES = {
    "fp64": 1e-12,
    "fp32": 1e-5,
    "tf32": 2e-3,
    "fp16": 2e-3,
    "bf16": 1e-2,
    "fp8": 4e-2,
    "int8": 0.0,
    "fp16_sparse": 2e-3,
    "int8_sparse": 0.0,
    "exact": 0.0,
}
# A whole network: the rounding of some fifty layers after each other.
NETWORK_TOLERANCES = {"fp32": 1e-3, "tf32": 3e-2, "bf16": 1.5e-1, "fp16": 5e-2}


def compared(computed: Any, reference: Any, tolerance: float) -> Json:
    """``correctness`` of a result: ``computed`` (any type, any device) against ``reference`` (float64, CPU)."""
    import torch

    found = computed.detach().to("cpu").to(torch.float64)
    scale = max(reference.abs().max().item(), 1e-300)
    error = (found - reference).abs().max().item() / scale
    return {
        "checked": True,
        "passed": math.isfinite(error) and error <= tolerance,
        "max_relative_error": error,
        "tolerance": tolerance,
    }


def equal(computed: Any, expected: Any) -> Json:
    """As :func:`compared`, for what must be the same bit for bit; works on the device of ``expected``."""
    import torch

    passed = bool(torch.equal(computed.to(expected.device), expected))
    error = 0.0 if passed else None
    return {"checked": True, "passed": passed, "max_relative_error": error, "tolerance": 0.0}


def wrong_words(correctness: Json, against: str = "float64") -> str:
    """The message of a wrong result."""
    error = correctness["max_relative_error"]
    if error is None or not math.isfinite(error):
        return "what was computed is not what %s gives" % against
    words = "what was computed is off by %.3g of the largest value (allowed %.3g) against %s"
    return words % (error, correctness["tolerance"], against)
