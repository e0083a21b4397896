"""Whether a result can be judged at all. These rules decide: what they say stands, and nothing is compared."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fleet.audit.benchmarks.case import Case
from fleet.audit.benchmarks.opinion import Opinion, ResultRule, result_rule
from fleet.audit.benchmarks.subject import HARDWARE_SLOWDOWN
from fleet.audit.benchmarks.verdict import FAIL, INVALID, NOT_JUDGED, PASS, SKIPPED

#: Wrong whatever else is true: the computer does not compute.
WRONG = frozenset({"non_finite", "wrong_result", "no_samples"})

#: Above this share of its peak a result is a mistake in measuring or counting. Clocks above the marketed ones
#: explain a part for computing; bandwidths have no such thing.
MOST_OF_PEAK = {"matrix_product": 1.25, "memory": 1.03, "host_link": 1.03, "peer": 1.03}


@result_rule("bench.status", decides=True)
def status(case: Case) -> Iterable[Opinion]:
    """A test that was not measured is not a pass: failed and timed out fail; skipped and not runnable say why."""
    result = case.subject.result
    if result["status"] == "measured":
        return
    why = _said(result["reason"], result["message"])
    if result["reason"] in WRONG:
        yield Opinion(FAIL, why)
        return
    verdicts = {"skipped": SKIPPED, "not_runnable": NOT_JUDGED, "invalid": INVALID}
    yield Opinion(verdicts.get(result["status"], FAIL), why)


def _said(reason: str | None, message: str | None) -> str:
    return ": ".join(word for word in (reason, message) if word) or "no reason was given"


@result_rule("bench.correctness", decides=True)
def correctness(case: Case) -> Iterable[Opinion]:
    """What was computed is right within its tolerance."""
    found = case.subject.result["correctness"]
    if found and found["checked"] and found["passed"] is False:
        error, tolerance = found["max_relative_error"], found["tolerance"]
        seen = "not finite" if error is None else f"{error:.2g}"
        yield Opinion(
            FAIL,
            f"wrong_result: relative error {seen}"
            + ("" if tolerance is None else f", at most {tolerance:.2g}"),
        )


@result_rule("bench.value", decides=True)
def value(case: Case) -> Iterable[Opinion]:
    """A measured value is a finite number above 0, of at least one sample."""
    found = case.subject.value
    if case.subject.test == "burn" and found == 0:
        return
    if found is None or not math.isfinite(found) or found <= 0 or case.subject.result["samples"] < 1:
        yield Opinion(FAIL, f"no_samples: {found} of {case.subject.result['samples']} samples is no result")


@result_rule("bench.burn", decides=True)
def burn(case: Case) -> Iterable[Opinion]:
    """Under sustained load no result is wrong."""
    if case.subject.test != "burn":
        return
    wrong = case.subject.value or 0
    if wrong:
        yield Opinion(FAIL, f"wrong_result: {wrong:.0f} results under sustained load were wrong")
    elif set(case.subject.clock_reasons) & set(HARDWARE_SLOWDOWN):
        yield Opinion(
            FAIL, f"{', '.join(case.subject.clock_reasons)} under sustained load: look at cooling and power"
        )
    else:
        yield Opinion(PASS)


@result_rule("bench.cpu", decides=True)
def cpu(case: Case) -> Iterable[Opinion]:
    """The CPU's test shows that torch in the image works; it is never judged."""
    if case.subject.test.startswith("cpu."):
        yield Opinion(NOT_JUDGED, "shows that torch works here; says nothing of any GPU")


@result_rule("bench.clocks", decides=True)
def clocks(case: Case) -> Iterable[Opinion]:
    """The hardware did not hold its own clocks down meanwhile."""
    held = [why for why in case.subject.clock_reasons if why in HARDWARE_SLOWDOWN]
    if held:
        yield Opinion(INVALID, f"{', '.join(held)}: the GPU was slowed down by its hardware meanwhile")


@result_rule("bench.above_peak", decides=True)
def above_peak(case: Case) -> Iterable[Opinion]:
    """No GPU is faster than it can be."""
    peak, most = case.reference.peak, MOST_OF_PEAK.get(case.subject.test.partition(".")[0])
    if peak and most and case.subject.value is not None and case.subject.value > peak * most:
        yield Opinion(
            INVALID,
            f"{case.subject.value / peak:.0%} of the {case.reference.of}: measured or counted wrongly",
        )


RULES: tuple[ResultRule, ...] = (status, correctness, value, burn, cpu, clocks, above_peak)
