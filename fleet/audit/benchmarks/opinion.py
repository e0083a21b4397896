"""A rule on results: what it is, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleet.audit.benchmarks.case import Case

#: A remark that changes no verdict.
NOTE = "note"


@dataclass(frozen=True)
class Opinion:
    """What a rule says of a result: a verdict (or :data:`NOTE`) and why; no reason where all is well."""

    verdict: str
    reason: str = ""


@dataclass(frozen=True)
class ResultRule:
    """``says`` gives the rule's opinions of one case. ``decides``: its verdict stands, nothing is compared."""

    id: str
    says: Callable[[Case], Iterable[Opinion]]
    decides: bool
    holds: str


def result_rule(
    rule_id: str, *, decides: bool = False
) -> Callable[[Callable[[Case], Iterable[Opinion]]], ResultRule]:
    """Make a function of a case a :class:`ResultRule`; its docstring's first paragraph says what is right."""

    def decorate(function: Callable[[Case], Iterable[Opinion]]) -> ResultRule:
        holds = " ".join((function.__doc__ or "").partition("\n\n")[0].split())
        return ResultRule(rule_id, function, decides, holds)

    return decorate
