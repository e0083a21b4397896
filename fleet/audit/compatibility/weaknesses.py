"""Advisories in the words of findings, and which of them concern a host."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.audit.compatibility.subject import Subject
from fleet.catalogue.advisories import Advisory, Component
from fleet.catalogue.versions import Version

_SHOWN = 3


def open_ones(component: Component, version: Version, subject: Subject) -> list[Advisory]:
    """The weaknesses of a component that a host with this version has."""
    return [
        one for one in subject.catalogue.advisories.lacking(component, version) if _concerns(one, subject)
    ]


def _concerns(advisory: Advisory, subject: Subject) -> bool:
    """Whether a weakness is there on such a host: some are on nodes of Kubernetes alone, some not under Docker."""
    if advisory.exposure == "kubernetes":
        return subject.kubelet is not None
    return advisory.exposure != "not_docker"


def listed(advisories: Sequence[Advisory]) -> str:
    """``CVE-2025-23266 (CVSS 9) and 3 more``: the worst first, then the newest."""
    ranked = sorted(advisories, key=lambda one: (one.cvss or 0.0, one.id), reverse=True)
    names = [f"{one.id} (CVSS {one.cvss:g})" if one.cvss else one.id for one in ranked[:_SHOWN]]
    more = f" and {len(ranked) - _SHOWN} more" if len(ranked) > _SHOWN else ""
    return ", ".join(names) + more


def with_numbers(version: str, advisories: Sequence[Advisory]) -> str:
    """``24.0.9: CVE-2024-29018, CVE-2024-41110``: the version, and every weakness by its number."""
    return f"{version}: {', '.join(sorted(one.id for one in advisories))}"


def caveat(advisories: Sequence[Advisory]) -> str:
    """That fixes of some of them were not verified, where that is so."""
    loose = [one.id for one in advisories if one.provenance.caveat("fixed_in")]
    return f"not verified: the fixes of {', '.join(loose[:_SHOWN])}" if loose else ""
