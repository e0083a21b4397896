"""What a valid result is held against: limit, peak, link, baseline, peers, itself."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.audit.benchmarks.case import Case
from fleet.audit.benchmarks.opinion import NOTE, Opinion, ResultRule, result_rule
from fleet.audit.benchmarks.peers import LEAST_PEERS, Group
from fleet.audit.benchmarks.reference import FULL_WIDTH, largest_message, measured_link
from fleet.audit.benchmarks.verdict import FAIL, PASS, WARN

#: Slower than a baseline or the peers by these fractions: SuperBench's documentation has the first, the rules it
#: ships with the second.
SLOWER_WARNS, SLOWER_FAILS = 0.05, 0.10

#: Robust standard deviations from the median that make an outlier.
OUTLIER = 3.5

#: Least share of the peak where no source gives a limit: of what the catalogue's lint allows a limit to be, the
#: lowest; NVLink reached 74 to 79 % in the limits that are known, PCIe 57 to 76 %.
FLOORS = {"matrix_product": 0.40, "memory": 0.40, "host_link": 0.60}
NVLINK_FLOOR = 0.70
#: Messages of collectives from which on NVLink's floor holds.
FLOOR_MESSAGE = 256 << 20

#: Half the interquartile range in % of the median.
SCATTER_PERCENT = 10.0


@result_rule("bench.limit")
def limit(case: Case) -> Iterable[Opinion]:
    """It reaches the limit that the catalogue has for this product."""
    value, least = case.subject.value, case.reference.limit
    if value is None or least is None:
        return
    if value < least:
        yield Opinion(FAIL, f"below the limit of {least:g}; source: {case.reference.source}")
    else:
        yield Opinion(PASS)


@result_rule("bench.floor")
def floor(case: Case) -> Iterable[Opinion]:
    """Where no source gives a limit, it reaches a fair share of the peak; NVLink comes near its rate."""
    value, peak, least = case.subject.value, case.reference.peak, _floor(case)
    if value is None or not peak or least is None or case.reference.limit is not None:
        return
    if value < least * peak:
        yield Opinion(
            WARN, f"{value / peak:.0%} of the {case.reference.of} ({peak:g}); {least:.0%} can be expected"
        )
    else:
        yield Opinion(PASS)


def _floor(case: Case) -> float | None:
    group = case.subject.test.partition(".")[0]
    if not case.reference.nvlink:
        return FLOORS.get(group)
    if group == "nccl" and largest_message(case.subject) < FLOOR_MESSAGE:
        return None
    return NVLINK_FLOOR


@result_rule("bench.narrow_link")
def narrow_link(case: Case) -> Iterable[Opinion]:
    """Under load the PCIe link has the generation of the GPU and all 16 lanes."""
    product, link = case.subject.product, measured_link(case.subject)
    if not case.subject.test.startswith("host_link.") or product is None or link is None:
        return
    best = product.pcie_generation
    if best is not None and (link[0] < best or link[1] < FULL_WIDTH):
        yield Opinion(
            WARN,
            f"the link ran as PCIe {link[0]} x{link[1]} under load; the GPU can PCIe {best}"
            f"{'' if link[1] >= FULL_WIDTH else f' x{FULL_WIDTH}'}, if slot and board can",
        )


@result_rule("bench.baseline")
def baseline(case: Case) -> Iterable[Opinion]:
    """It is not slower than the baseline of the same GPU, by more than measuring scatters."""
    if case.baseline is None:
        if case.other_baseline:
            yield Opinion(NOTE, "its baseline is of another image or other parameters: not compared")
        return
    gain = case.subject.gain_over(case.baseline.value)
    was, now = case.baseline.record.get("driver"), case.subject.record["key"].get("driver")
    moved = f", with driver {was} then and {now} now" if was and now and was != now else ""
    yield _slower(gain, f"than its baseline {case.baseline.value:g}{moved}")


@result_rule("bench.peers")
def peers(case: Case) -> Iterable[Opinion]:
    """It is no outlier below its peers, in the host and in the fleet.

    Where NVLink does not join them, pairs of GPUs differ by where they sit: that is told, and no fault.
    """
    by_place = case.subject.test == "peer.copy" and not case.reference.nvlink
    for group in case.peers:
        if group.deviation is None or by_place:
            if -group.gain >= SLOWER_WARNS:
                why = (
                    "pairs differ by where they sit"
                    if by_place
                    else f"fewer than {LEAST_PEERS} give no verdict"
                )
                yield Opinion(NOTE, f"{-group.gain:.0%} slower than the median of {_others(group)}; {why}")
        elif group.deviation > -OUTLIER:
            yield Opinion(PASS)
        else:
            yield _slower(group.gain, f"than the median {group.median:g} of {_others(group)}")


def _others(group: Group) -> str:
    return f"{group.count} other{'' if group.count == 1 else 's'} {group.scope}"


def _slower(gain: float, words: str) -> Opinion:
    gain = round(gain, 6)  # a tenth slower is a tenth slower, whatever binary fractions make of it
    if -gain >= SLOWER_FAILS:
        return Opinion(FAIL, f"{-gain:.0%} slower {words}")
    if -gain >= SLOWER_WARNS:
        return Opinion(WARN, f"{-gain:.0%} slower {words}")
    return Opinion(PASS)


@result_rule("bench.scatter")
def scatter(case: Case) -> Iterable[Opinion]:
    """Its samples lie close together."""
    spread = case.subject.result["spread_percent"]
    if spread is not None and spread > SCATTER_PERCENT:
        yield Opinion(
            WARN, f"its samples scatter by {spread:.0f} %: something else was going on, or clocks moved"
        )


@result_rule("bench.notes")
def notes(case: Case) -> Iterable[Opinion]:
    """What the runner noted goes with the result."""
    for words in case.subject.result["notes"]:
        yield Opinion(NOTE, str(words))


RULES: tuple[ResultRule, ...] = (limit, floor, narrow_link, baseline, peers, scatter, notes)
