"""How old what is judged is. Facts that are older than their limit are stale, and stale is not healthy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS: tuple[str, ...] = ()
#: A report that nobody gave another limit is believed for so long.
LIMIT_S = 3600.0
_NOON = 1_796_040_000.0  # 2026-11-30T12:00:00Z, when the healthy hosts of the tests were looked at


def age_s(facts: Facts, now_unix: float) -> float | None:
    """Seconds since the facts were collected; None where they do not say when."""
    collected = fact(facts, "collected_at")
    try:
        return now_unix - datetime.fromisoformat(str(collected).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


@rule("health.age.stale", known_bad=Sample(wanted={"now_unix": _NOON + 2 * LIMIT_S}, model="h100"))
def stale(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """What is judged is fresh. Reads ``now_unix`` and ``age_limit_s``; without the first, age is not judged."""
    now = wanted.get("now_unix")
    if now is None:
        return
    limit = float(wanted.get("age_limit_s") or LIMIT_S)
    age = age_s(facts, float(now))
    if age is not None and age <= limit:
        return
    yield self.finding(
        f"stale: what is known is {age / 3600:.1f} h old"
        if age is not None
        else "stale: nobody knows how old this is",
        observed=age,
        limit=limit,
        source="--max-age",
        remedy="ask the host itself: fleet health INVENTORY",
    )
