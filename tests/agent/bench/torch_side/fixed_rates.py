"""A backend with two equal GPUs whose rates are fixed; what it computes is computed for real, on the CPU.

An entry point of a distribution made for the test offers it (``folder/fixed_rates-1.dist-info``), so the way
in is the real one. The environment chooses its faults, since tests run it in processes of their own:
``FIXED_RATES_WRONG=TEST@INDEX`` flips one bit of what is seen of that test's results on that GPU, after the first
``FIXED_RATES_WRONG_AFTER`` of them,
``FIXED_RATES_NONE=TEST`` has no samples, ``FIXED_RATES_HANG=TEST@RANK`` stops that rank for ever in that test,
``FIXED_RATES_DIE=TEST@RANK`` ends it, ``FIXED_RATES_RAISE=TEST=TEXT`` raises what torch would.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from fleet.agent.bench.torch_side.backend import Backend
from fleet.agent.bench.torch_side.units import seconds_at, unit_of

GPUS = ("GPU-00000000-0000-4000-8000-000000000000", "GPU-00000000-0000-4000-8000-000000000001")
RATES = {"tflops": 500.0, "tops": 900.0, "gb_s": 400.0, "images_s": 4000.0, "tokens_s": 90000.0, "us": 18.0}


class FixedRates(Backend):
    name = "fixed_rates"
    reference_size = 64

    def __init__(self) -> None:
        self._seen = 0

    def devices(self) -> list[dict[str, Any]]:
        capability = os.environ.get("FIXED_RATES_CAPABILITY", "9.0")
        return [
            {"uuid": uuid, "name": "Fixed", "compute_capability": capability, "memory_total_mib": 81920}
            for uuid in GPUS
        ]

    def device(self, index: int) -> Any:
        import torch

        return torch.device("cpu")

    def measure(
        self,
        call: Callable[[], object],
        amount: float,
        test: str,
        repetitions: int,
        warm_up: int,
        gpus: Sequence[str],
    ) -> list[float]:
        self._trouble(test)
        call()
        if os.environ.get("FIXED_RATES_NONE") == test:
            return []
        rate = RATES[unit_of(test)]
        if test == "ddp.resnet50.without_synchronisation":
            rate /= 0.9
        return [seconds_at(test, amount, rate)] * repetitions

    def _trouble(self, test: str) -> None:
        where = "%s@%s" % (test, os.environ.get("RANK", "0"))
        if os.environ.get("FIXED_RATES_HANG") == where:
            signal.pause()
        if os.environ.get("FIXED_RATES_DIE") == where:
            os._exit(9)
        raised, _, text = os.environ.get("FIXED_RATES_RAISE", "").partition("=")
        if raised == test:
            raise RuntimeError(text)

    def observed(self, test: str, tensor: Any, gpus: Sequence[str]) -> Any:
        wrong, _, index = os.environ.get("FIXED_RATES_WRONG", "").partition("@")
        if wrong != test or GPUS.index(gpus[0]) != int(index or 0):
            return tensor
        self._seen += 1
        return flipped(tensor) if self._seen > int(os.environ.get("FIXED_RATES_WRONG_AFTER", "0")) else tensor


def flipped(tensor: Any) -> Any:
    """``tensor`` with a high bit of its first element changed."""
    import torch

    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    changed = tensor.clone().contiguous()
    view = changed.view(integers).reshape(-1)
    view[0] ^= 1 << (8 * tensor.element_size() - 2)
    return changed
