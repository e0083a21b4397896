"""The verdict on one host and one image. Hosts that are alike are judged once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.registry import ALL
from fleet.audit.compatibility.rule import Asked, AuditRule, Case
from fleet.audit.compatibility.subject import Subject
from fleet.audit.findings import Finding, Severity

Status = Literal["runs", "runs_with_warnings", "does_not_run", "unknown"]

#: Worst first: the order of findings, and what decides the status.
ORDER = (Severity.ERROR, Severity.UNKNOWN, Severity.WARNING, Severity.INFO)


@dataclass(frozen=True)
class Verdict:
    """Whether it runs, and every finding: the worst first, then by id and GPU."""

    status: Status
    findings: tuple[Finding, ...]


def judge(
    subject: Subject, image: Asked, options: Options | None = None, rules: tuple[AuditRule, ...] = ALL
) -> Verdict:
    """Whether an image runs on a host. ``image`` None: only what holds for every image is judged."""
    return _judged(subject, image, options or Options(), rules)


@lru_cache(maxsize=65536)
def _judged(subject: Subject, image: Asked, options: Options, rules: tuple[AuditRule, ...]) -> Verdict:
    case = Case(subject, image, options)
    found = [finding for each in rules for finding in each.evaluate(case)]
    found.sort(key=lambda one: (ORDER.index(one.severity), one.id, one.gpu or "", one.what))
    return Verdict(_status(found, options), tuple(found))


def _status(findings: list[Finding], options: Options) -> Status:
    worst = min((ORDER.index(one.severity) for one in findings), default=len(ORDER))
    if worst == 0:
        return "does_not_run"
    if worst == 1 and not options.allow_unknown:
        return "unknown"
    return "runs_with_warnings" if worst <= ORDER.index(Severity.WARNING) else "runs"
