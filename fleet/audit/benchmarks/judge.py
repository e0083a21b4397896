"""All hosts judged together: :func:`judge`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fleet.audit.benchmarks import comparisons, validity, watch
from fleet.audit.benchmarks.case import Case
from fleet.audit.benchmarks.opinion import NOTE, Opinion, ResultRule
from fleet.audit.benchmarks.peers import Group, Peers
from fleet.audit.benchmarks.reference import reference
from fleet.audit.benchmarks.subject import Baseline, Json, Subject, baseline_key, subjects
from fleet.audit.benchmarks.verdict import FAIL, NOT_JUDGED, PASS, UNKNOWN, WARN, Verdict
from fleet.catalogue.catalogue import Catalogue

#: Every rule on results, those that decide first.
RULES: tuple[ResultRule, ...] = (*validity.RULES, *comparisons.RULES)


def judge(
    records: Mapping[str, Json],
    catalogue: Catalogue,
    baselines: Iterable[Baseline] = (),
    wanted: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, list[Verdict]]:
    """Verdicts by host: on each result in the record's order, then what is watched of the host.

    ``records`` follow schemas/benchmark.schema.json. ``wanted`` is by host: ``gpus.count``, ``model``.
    """
    hosts = {host: subjects(host, records[host], catalogue.gpus) for host in sorted(records)}
    peers = Peers(one for found in hosts.values() for one in found)
    earlier = _Baselines(baselines)
    verdicts = {}
    for host, found in hosts.items():
        judged = [verdict_on(case_of(one, peers, earlier)) for one in found]
        case = watch.HostCase(host, records[host], (wanted or {}).get(host, {}), catalogue.gpus)
        verdicts[host] = [*judged, *(one for rule in watch.RULES for one in rule.says(case))]
    return verdicts


class _Baselines:
    """Baselines by what they are of."""

    def __init__(self, baselines: Iterable[Baseline]) -> None:
        self._exact: dict[tuple[str, str, str, str], Baseline] = {}
        self._any: set[tuple[str, str, str]] = set()
        for one in baselines:
            self._exact[one.host, one.gpu, one.test, one.key] = one
            self._any.add((one.host, one.gpu, one.test))

    def of(self, subject: Subject) -> tuple[Baseline | None, bool]:
        """The baseline of a result, and whether there is one of other conditions only."""
        place = (subject.host, subject.gpu, subject.test)
        found = self._exact.get((*place, baseline_key(subject)))
        return found, found is None and place in self._any


def case_of(subject: Subject, peers: Peers, earlier: _Baselines) -> Case:
    """A result with all it is compared with."""
    if subject.result["status"] != "measured":
        return Case(subject, reference(subject))
    baseline, other = earlier.of(subject)
    return Case(subject, reference(subject), peers.of(subject) if subject.value else (), baseline, other)


def verdict_on(case: Case) -> Verdict:
    """What is said of one result."""
    verdict, reasons, compared = _decided(case)
    peer = case.peers[-1] if compared and case.peers else None
    baseline = case.baseline if compared else None
    subject, known = case.subject, case.reference
    share = subject.value / known.peak if subject.value is not None and known.peak else None
    change = 100 * subject.gain_over(baseline.value) if baseline else None
    return Verdict(
        test=subject.test,
        gpus=tuple(subject.result["gpus"]),
        value=subject.value,
        unit=subject.result["unit"],
        verdict=verdict,
        share_of_peak=_rounded(share, 4),
        peak=known.peak,
        limit=known.limit,
        limit_source=known.source,
        baseline=baseline.value if baseline else None,
        baseline_change_percent=_rounded(change, 2),
        peer_median=peer.median if peer else None,
        peer_deviation=_worst_deviation(case.peers) if peer else None,
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _decided(case: Case) -> tuple[str, list[str], bool]:
    """(verdict, reasons, whether anything was compared)."""
    for rule in RULES:
        if not rule.decides:
            break
        said = list(rule.says(case))
        if said:
            return said[0].verdict, [one.reason for one in said if one.reason], False
    opinions = [one for rule in RULES if not rule.decides for one in rule.says(case)]
    verdict = _worst(case, opinions)
    reasons = [one.reason for word in (FAIL, WARN, NOTE) for one in opinions if one.verdict == word]
    if verdict in (UNKNOWN, NOT_JUDGED):
        reasons.insert(0, case.reference.why_not or "nothing to hold it against")
    return verdict, [why for why in reasons if why], True


def _worst(case: Case, opinions: Iterable[Opinion]) -> str:
    said = {one.verdict for one in opinions}
    for word in (FAIL, WARN, PASS):
        if word in said:
            return word
    known = (
        case.subject.is_slice or not case.subject.gpus or all(one is not None for one in case.subject.known)
    )
    return NOT_JUDGED if known else UNKNOWN


def _worst_deviation(peers: Iterable[Group]) -> float | None:
    found = [one.deviation for one in peers if one.deviation is not None]
    return _rounded(min(found), 2) if found else None


def _rounded(number: float | None, digits: int) -> float | None:
    return None if number is None else round(number, digits)
