"""What a rule of the compatibility audit is. Its cousin for one host's facts is :mod:`fleet.audit.rule`.

A rule is a pure function of a :class:`Case`. Its known-bad sample must make it fire; no rule covers for another, so
that leaving one out always changes somebody's verdict (tests/audit/compatibility).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.subject import Subject
from fleet.audit.findings import Finding, Severity
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.images import Image, NoSuchTag, NotInCatalogue

Asked = Image | NoSuchTag | NotInCatalogue | None

#: An image that the healthy host with GPUs of the tests runs, pinned.
FITTING = "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime@sha256:" + "0" * 64


@dataclass(frozen=True)
class Case:
    """What is judged. ``image`` is None where the catalogue has none by the name that was asked for."""

    subject: Subject
    asked: Asked
    options: Options

    @property
    def image(self) -> Image | None:
        """The image, where it is known."""
        return self.asked if isinstance(self.asked, Image) else None

    @property
    def catalogue(self) -> Catalogue:
        """What the host is judged by."""
        return self.subject.catalogue

    @property
    def in_container(self) -> bool:
        """Whether the image is to run in a container, on a host that has GPUs."""
        return self.options.where == "container" and self.subject.has_gpus


@dataclass(frozen=True)
class KnownBad:
    """What must make a rule fire: values by dotted path over the healthy host with GPUs, and the image.

    ``image`` is looked up in the catalogue, ``changes`` are fields laid over it.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    image: str = FITTING
    changes: Mapping[str, Any] = field(default_factory=dict)
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, eq=False)
class AuditRule:
    """One rule. ``severity`` is that of its known-bad sample; ``holds`` says what is right, in a sentence."""

    id: str
    function: Callable[[Case], Iterable[Finding]]
    known_bad: KnownBad
    severity: Severity
    holds: str

    def evaluate(self, case: Case) -> list[Finding]:
        """The findings on one host."""
        return list(self.function(case))

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
        """A finding of this rule; ``gpu`` is the PCI address of the GPU it is about.

        Lists become tuples: hosts that are alike share a finding, and nobody is to change it.
        """
        return Finding(
            self.id, severity or self.severity, what, _fixed(observed), _fixed(limit), source, remedy, gpu=gpu
        )


def rule(
    rule_id: str, *, known_bad: KnownBad, severity: Severity = Severity.ERROR
) -> Callable[[Callable[[AuditRule, Case], Iterable[Finding]]], AuditRule]:
    """Make a function ``(self, case)`` an :class:`AuditRule`; ``self.finding`` makes its findings."""

    def decorate(function: Callable[[AuditRule, Case], Iterable[Finding]]) -> AuditRule:
        def bound(case: Case) -> Iterable[Finding]:
            return function(made, case)

        holds = " ".join((function.__doc__ or "").partition("\n\n")[0].split())
        made = AuditRule(rule_id, bound, known_bad, severity, holds)
        return made

    return decorate


def with_caveat(what: str, caveat: str) -> str:
    """A sentence, and that what it rests on was not verified, where it was not."""
    return f"{what} ({caveat})" if caveat else what


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
