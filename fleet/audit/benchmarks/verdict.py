"""What is said of one result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PASS = "pass"  # noqa: S105 - a verdict, not a password
WARN = "warn"
FAIL = "fail"
INVALID = "invalid"  # measured, but not under conditions that allow a judgement
NOT_JUDGED = "not_judged"  # nothing is wrong, and nothing to hold it against
UNKNOWN = "unknown"  # what it should be held against is not known
SKIPPED = "skipped"

#: Worst first, as tables show them.
ORDER = (FAIL, INVALID, WARN, UNKNOWN, SKIPPED, NOT_JUDGED, PASS)


@dataclass(frozen=True)
class Verdict:
    """One result of one host, judged. ``gpus`` are UUIDs.

    ``peak`` and ``limit`` are in ``unit``, ``share_of_peak`` is a fraction of 1. ``baseline_change_percent`` is
    negative where it got slower; ``peer_deviation`` is from the peers' median in robust standard deviations,
    negative where it is slower. What was not compared is None, and ``reasons`` say why where that is of interest.
    """

    test: str
    gpus: tuple[str, ...]
    value: float | None
    unit: str
    verdict: str
    share_of_peak: float | None = None
    peak: float | None = None
    limit: float | None = None
    limit_source: str | None = None
    baseline: float | None = None
    baseline_change_percent: float | None = None
    peer_median: float | None = None
    peer_deviation: float | None = None
    reasons: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The verdict as ``fleet bench --json`` has it."""
        return {
            "test": self.test,
            "gpus": list(self.gpus),
            "value": self.value,
            "unit": self.unit,
            "verdict": self.verdict,
            "share_of_peak": self.share_of_peak,
            "peak": self.peak,
            "limit": self.limit,
            "limit_source": self.limit_source,
            "baseline": self.baseline,
            "baseline_change_percent": self.baseline_change_percent,
            "peer_median": self.peer_median,
            "peer_deviation": self.peer_deviation,
            "reasons": list(self.reasons),
        }


def rank(verdict: str) -> int:
    """Place in :data:`ORDER`: the worse, the lower."""
    return ORDER.index(verdict)
