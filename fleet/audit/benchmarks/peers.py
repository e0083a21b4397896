"""GPUs of the same product at the same test: what their results say of one among them.

A limit passes whatever lies above it: a GPU at a third of its rate once passed a long diagnosis (DCGM issue 122).
Its peers show it. Median and median absolute deviation, since a mean would follow the outlier.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from fleet.audit.benchmarks.subject import HARDWARE_SLOWDOWN, Subject, comparable

#: Fewer others than these give no verdict.
LEAST_PEERS = 4
#: Makes a median absolute deviation a standard deviation where values are normally distributed.
NORMAL = 1.4826
#: Peers that agree better than this share of their median are not held to their agreement.
LEAST_SCATTER = 0.01


@dataclass(frozen=True)
class Group:
    """The others. ``deviation``: of the one looked at, in robust standard deviations, negative where slower."""

    scope: str
    count: int
    median: float
    gain: float
    deviation: float | None


class Peers:
    """All valid results, by what may be compared."""

    def __init__(self, all_subjects: Iterable[Subject]) -> None:
        self._alike: dict[str, list[Subject]] = {}
        for one in all_subjects:
            if counts(one):
                self._alike.setdefault(_key(one), []).append(one)

    def of(self, subject: Subject) -> tuple[Group, ...]:
        """Its peers in its host, and in the fleet where others than its host have any."""
        alike = [one for one in self._alike.get(_key(subject), ()) if one.result is not subject.result]
        here = [one for one in alike if one.host == subject.host]
        groups = [_group("of this host", subject, here)] if here else []
        if len(alike) > len(here):
            groups.append(_group("of the fleet", subject, alike))
        return tuple(groups)


def counts(subject: Subject) -> bool:
    """Whether a result may be held against others: measured, right, and not slowed down by its hardware."""
    checked = subject.result["correctness"]
    return (
        subject.result["status"] == "measured"
        and bool(subject.value)
        and not (checked and checked["passed"] is False)
        and not set(subject.clock_reasons) & set(HARDWARE_SLOWDOWN)
    )


def _key(subject: Subject) -> str:
    return json.dumps(comparable(subject), sort_keys=True)


def _group(scope: str, subject: Subject, others: Sequence[Subject]) -> Group:
    values = sorted(one.value for one in others if one.value is not None)
    middle = median(values)
    deviation = None
    gain = subject.gain_over(middle)
    if len(values) >= LEAST_PEERS:
        deviation = gain / max(NORMAL * _scatter(values, middle) / middle, LEAST_SCATTER)
    return Group(scope, len(values), middle, gain, deviation)


def _scatter(values: Sequence[float], middle: float) -> float:
    absolute: Callable[[float], float] = abs
    return median(absolute(value - middle) for value in values)
