"""What a rule is, and how rules are evaluated.

A rule is a pure function ``(facts, wanted) -> findings`` with an id and a known-bad sample that must make it
fire (:mod:`tests.audit` holds it to that). ``wanted`` is what the playbook asks for; each rule's docstring
names the keys it reads. Rules marked ``gate`` fail closed: a value they read that is null is a finding by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.audit.facts import Facts, fact, why_absent
from fleet.audit.findings import Finding, Severity

Wanted = Mapping[str, Any]
RuleFunction = Callable[[Facts, Wanted], "Iterable[Finding]"]


@dataclass(frozen=True)
class Sample:
    """What must make a rule fire: values by dotted path, laid over healthy facts, and ``wanted``.

    ``gpu``: they are laid over the host that has GPUs. ``model``: over the host with GPUs of that model, as
    :mod:`tests.devices` has them, with what NVML says of each.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    wanted: Mapping[str, Any] = field(default_factory=dict)
    gpu: bool = False
    model: str = ""


@dataclass(frozen=True)
class Rule:
    """One rule. ``reads`` are the paths a gate needs; ``needs_leave`` lets ``--disrupt`` overrule it.

    ``severity`` is that of its known-bad sample, the worst it has. ``holds`` says what is right, in a sentence.
    """

    id: str
    function: RuleFunction
    known_bad: Sample
    severity: Severity
    gate: bool = False
    reads: tuple[str, ...] = ()
    needs_leave: bool = False
    holds: str = ""

    def evaluate(self, facts: Facts, wanted: Wanted) -> list[Finding]:
        """The findings on one host."""
        unknown = [
            self.unknown(facts, path) for path in self.reads if self.gate and fact(facts, path) is None
        ]
        return unknown or list(self.function(facts, wanted))

    def finding(
        self,
        what: str,
        *,
        observed: Any,
        limit: Any,
        source: str,
        remedy: str,
        severity: Severity | None = None,
        gpu: str | None = None,
    ) -> Finding:
        """A finding of this rule; ``gpu`` is the PCI address of the GPU it is about."""
        return Finding(
            self.id,
            severity or self.severity,
            what,
            observed,
            limit,
            source,
            remedy,
            needs_leave=self.needs_leave,
            gpu=gpu,
        )

    def unknown(
        self, facts: Facts, path: str, *, consequence: str = "", remedy: str | None = None
    ) -> Finding:
        """The finding that a value is not known, and so cannot be called healthy."""
        return self.finding(
            f"{path} is not known: {why_absent(facts, path)}{consequence}",
            observed=None,
            limit="known",
            source="a gate fails closed: unknown is not healthy",
            remedy=remedy or f"find out on the host why {path} cannot be read: fleet agent probe",
        )


def rule(
    rule_id: str,
    *,
    known_bad: Sample,
    severity: Severity = Severity.ERROR,
    gate: bool = False,
    reads: tuple[str, ...] = (),
    needs_leave: bool = False,
) -> Callable[[Callable[[Rule, Facts, Wanted], Iterable[Finding]]], Rule]:
    """Make a function ``(self, facts, wanted)`` a :class:`Rule`; ``self.finding`` makes its findings."""

    def decorate(function: Callable[[Rule, Facts, Wanted], Iterable[Finding]]) -> Rule:
        def bound(facts: Facts, wanted: Wanted) -> Iterable[Finding]:
            return function(made, facts, wanted)

        holds = " ".join((function.__doc__ or "").partition("\n\n")[0].split())
        made = Rule(rule_id, bound, known_bad, severity, gate, reads, needs_leave, holds)
        return made

    return decorate
