"""How often something is run, and what its samples say. Pure but for the calls it is given; no torch.

A sample is one call, timed by the backend. The first call is run to see how long it takes; then as many as a
time budget holds, at least ``MINIMUM`` and at most the limit asked for. Medians are reported, with half the
interquartile range as the spread: one interrupted sample moves neither.
"""

from __future__ import annotations

import itertools
import math
import statistics

from fleet.agent.bench.torch_side.units import value_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Optional, TypeVar

    from fleet.agent.bench.torch_side.backend import Backend

    Json = dict[str, Any]
    Item = TypeVar("Item")

MINIMUM = 5
WARM_UP_SHARE = 0.25
# Inputs are rotated over this many times the second-level cache.
CACHE_FACTOR = 3
MAXIMUM_SETS = 64


def repetitions(estimate_s: float, budget_s: float, limit: int = 100) -> int:
    """How many calls of ``estimate_s`` fit ``budget_s``: between :data:`MINIMUM` and ``limit``."""
    if estimate_s <= 0:
        return limit
    return max(MINIMUM, min(limit, int(budget_s / estimate_s)))


def sets_past_cache(set_bytes: int, cache_bytes: int, available_bytes: int) -> int:
    """How many sets of inputs to rotate so that no call finds its own in the cache: at least 1, where memory
    allows it at least 2."""
    wanted = max(2, math.ceil(CACHE_FACTOR * cache_bytes / max(set_bytes, 1)) + 1)
    return max(1, min(wanted, MAXIMUM_SETS, int(available_bytes // max(set_bytes, 1))))


def rotating(call: Callable[[Item], object], inputs: Iterable[Item]) -> Callable[[], object]:
    """A call without arguments that takes the next of ``inputs`` each time, over and over."""
    following = itertools.cycle(list(inputs))
    return lambda: call(next(following))


def sampled(
    backend: Backend,
    call: Callable[[], object],
    amount: float,
    test: str,
    gpus: Sequence[str],
    budget_s: float,
    limit: int = 100,
    agree: Optional[Callable[[float], float]] = None,
) -> list[float]:
    """Seconds per call of ``call``. Empty where the backend has none.

    ``agree`` makes one estimate of those of all ranks, so that each makes the same number of calls.
    """
    first = backend.measure(call, amount, test, 1, 1, gpus)
    if not first:
        return []
    estimate = agree(first[0]) if agree else first[0]
    count = repetitions(estimate, budget_s, limit)
    warm_up = max(1, min(20, int(count * WARM_UP_SHARE)))
    return backend.measure(call, amount, test, count, warm_up, gpus)


def values(test: str, amount: float, seconds: Iterable[float]) -> list[float]:
    """The value of each sample, in the test's unit. A sample of no duration is not finite."""
    return [value_of(test, amount, each) if each > 0 else math.inf for each in seconds]


def median(samples: Sequence[float]) -> float:
    """The middle one of ``samples``."""
    return statistics.median(samples)


def spread_percent(samples: Sequence[float]) -> Optional[float]:
    """Half the interquartile range over the median, in percent; None for fewer than 4 samples or a median of 0."""
    middle = statistics.median(samples)
    if len(samples) < 4 or middle == 0:
        return None
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return 50 * (high - low) / abs(middle)


def summary(samples: Sequence[float]) -> Json:
    """``value`` (the median), ``samples``, ``minimum``, ``maximum`` and ``spread_percent`` of a result."""
    return {
        "value": statistics.median(samples),
        "samples": len(samples),
        "minimum": min(samples),
        "maximum": max(samples),
        "spread_percent": spread_percent(samples),
    }
