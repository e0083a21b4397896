"""What is to be told of verdicts that are no pass: the same thing once, however many hosts have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fleet.audit.benchmarks import Verdict
from fleet.audit.benchmarks.verdict import NOT_JUDGED, PASS, rank
from fleet.report.benchmarks.benched import Benched, HostBench


@dataclass
class Trouble:
    """One thing: a verdict and its reasons, with everything that has it. ``image`` groups it, too.

    ``places`` are (host, GPUs, test); ``measured`` the verdict itself, where it is of one place only.
    """

    verdict: str
    reasons: tuple[str, ...]
    image: str
    places: list[tuple[str, str, str]] = field(default_factory=list)
    measured: Verdict | None = None

    @property
    def hosts(self) -> list[str]:
        """The hosts that have it."""
        return list(dict.fromkeys(host for host, _, _ in self.places))

    @property
    def tests(self) -> list[str]:
        """The tests that have it."""
        return list(dict.fromkeys(test for _, _, test in self.places))

    def as_json(self) -> dict[str, Any]:
        """As the document has it."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "image": self.image or None,
            "places": [{"host": host, "gpus": gpus, "test": test} for host, gpus, test in self.places],
        }


def troubles(benched: Benched) -> list[Trouble]:
    """Everything to be told, the worst first, then by how many have it."""
    found: dict[tuple[str, tuple[str, ...], str], Trouble] = {}
    for host in benched.hosts.values():
        for verdict in _telling(host):
            key = (verdict.verdict, verdict.reasons, host.image)
            trouble = found.setdefault(key, Trouble(*key))
            trouble.measured = verdict if not trouble.places else None
            trouble.places.append((host.host, host.gpus_name(verdict.gpus), verdict.test))
    return sorted(found.values(), key=lambda one: (rank(one.verdict), -len(one.places), one.places))


def _telling(host: HostBench) -> Iterator[Verdict]:
    """Verdicts that a person must hear of: what is no pass, and what could not run in this image."""
    results = host.results()
    for result, verdict in results:
        if result["status"] == "not_runnable" or verdict.verdict not in (PASS, NOT_JUDGED):
            yield verdict
    yield from _unwell(host.verdicts[len(results) :])


def _unwell(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    return (one for one in verdicts if one.verdict not in (PASS, NOT_JUDGED))
