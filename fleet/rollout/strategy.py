"""How careful a rollout is: stages, limits, patience, and what a failure leads to.

Read from inventory and command line by :mod:`fleet.rollout.reading`; :func:`check` holds it against the hosts before
anything moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fleet.rollout.amounts import Amount
from fleet.rollout.members import Member, units_of
from fleet.rollout.window import Window

_NONE, _ONE = Amount(count=0), Amount(count=1)


class OnFailure(str, Enum):
    """What happens when more hosts failed than may."""

    PAUSE = "pause"
    ROLLBACK = "rollback"
    STOP = "stop"


@dataclass(frozen=True)
class Strategy:
    """All that the operator decides. The defaults move one host at a time and wait at the first failure.

    ``canary``: hosts of the first stage (None: the first of ``batches``, or one). ``max_failures``: how many hosts may
    fail, be unreachable or be overdue, taken together, before it stops. ``confirm``: wait for the operator's word
    after the canary. ``no_rollback``: also hosts whose previous packages cannot be had.
    """

    canary: int | None = None
    batches: tuple[Amount, ...] = ()
    as_drained: bool = False
    max_unavailable: Amount = _ONE
    failure_domain: str | None = None
    max_unavailable_per_domain: Amount | None = None
    unit: str | None = None
    max_failures: Amount = _NONE
    soak_s: float = 0.0
    window: Window | None = None
    on_failure: OnFailure = OnFailure.PAUSE
    no_rollback: bool = False
    confirm: bool = True

    def as_json(self) -> dict[str, Any]:
        """As the store keeps it: each value as an operator would write it."""
        return {
            "canary": self.canary,
            "batches": [str(amount) for amount in self.batches],
            "as_drained": self.as_drained,
            "max_unavailable": str(self.max_unavailable),
            "failure_domain": self.failure_domain,
            "max_unavailable_per_domain": _text(self.max_unavailable_per_domain),
            "unit": self.unit,
            "max_failures": str(self.max_failures),
            "soak_s": self.soak_s,
            "window": _text(self.window),
            "on_failure": self.on_failure.value,
            "no_rollback": self.no_rollback,
            "confirm": self.confirm,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Strategy:
        """The strategy of a stored rollout."""
        per_domain, window = document["max_unavailable_per_domain"], document["window"]
        return cls(
            canary=document["canary"],
            batches=tuple(Amount.read(text) for text in document["batches"]),
            as_drained=document["as_drained"],
            max_unavailable=Amount.read(document["max_unavailable"]),
            failure_domain=document["failure_domain"],
            max_unavailable_per_domain=Amount.read(per_domain) if per_domain is not None else None,
            unit=document["unit"],
            max_failures=Amount.read(document["max_failures"]),
            soak_s=document["soak_s"],
            window=Window.read(window) if window is not None else None,
            on_failure=OnFailure(document["on_failure"]),
            no_rollback=document["no_rollback"],
            confirm=document["confirm"],
        )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def limits_of(strategy: Strategy, members: Sequence[Member]) -> tuple[int, dict[str, int]]:
    """How many hosts may be out: of all of ``members``, and of each failure domain (none: not limited)."""
    overall = strategy.max_unavailable.of(len(members))
    per_domain = strategy.max_unavailable_per_domain
    if per_domain is None:
        return overall, {}
    sizes = Counter(member.domain for member in members if member.domain is not None)
    return overall, {domain: per_domain.of(size) for domain, size in sizes.items()}


def check(strategy: Strategy, members: Sequence[Member]) -> list[tuple[str, str]]:
    """What makes this strategy impossible for these hosts: (the key that is to be changed, why).

    A limit that rounds down to nothing, and a unit that never fits under one, would wait for ever.
    """
    problems: list[tuple[str, str]] = []
    overall, per_domain = limits_of(strategy, members)
    if overall < 1:
        shown = f"{strategy.max_unavailable} of {len(members)} hosts is less than one host"
        problems.append(("max_unavailable", f"{shown}, so nothing could ever move; say 1, or a larger share"))
    small = [domain for domain, limit in per_domain.items() if limit < 1]
    if small:
        shown = f"{strategy.max_unavailable_per_domain} of {strategy.failure_domain} {small[0]}"
        problems.append(
            ("max_unavailable_per_domain", f"{shown} is less than one host, so nothing in it could move")
        )
    for unit in units_of(members) if not problems else ():
        if len(unit.hosts) > overall:
            message = f"unit {unit.name} moves {len(unit.hosts)} hosts at once, and only {overall} may be out"
            problems.append(("max_unavailable", message))
        for domain, count in Counter(unit.domains).items():
            if domain in per_domain and count > per_domain[domain]:
                where = f"{strategy.failure_domain} {domain}"
                at_once = f"unit {unit.name} moves {count} hosts of {where} at once"
                message = f"{at_once}, and only {per_domain[domain]} may be out"
                problems.append(("max_unavailable_per_domain", message))
    taking_part = sum(member.takes_part for member in members)
    if strategy.canary is not None and strategy.canary > taking_part:
        problems.append(("canary", f"{strategy.canary} hosts, but only {taking_part} are to be upgraded"))
    return problems
