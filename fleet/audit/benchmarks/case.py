"""A result with everything it is compared with, looked up once: what rules are given."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.audit.benchmarks.peers import Group
from fleet.audit.benchmarks.reference import Reference
from fleet.audit.benchmarks.subject import Baseline, Subject


@dataclass(frozen=True)
class Case:
    """``peers``: of the host first, then of the fleet where it has more. ``other_baseline``: of other conditions."""

    subject: Subject
    reference: Reference
    peers: tuple[Group, ...] = ()
    baseline: Baseline | None = None
    other_baseline: bool = False
