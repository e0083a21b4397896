"""How a question of the truth table is put to the audit, and what it answers in the table's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.registry import ALL
from fleet.audit.compatibility.rule import Asked, AuditRule
from fleet.audit.compatibility.subject import Subject, subject_of
from fleet.audit.compatibility.verdict import Verdict, judge
from fleet.audit.findings import Finding, Severity
from fleet.catalogue import images
from fleet.catalogue.catalogue import load
from tests.audit.compatibility.machines import facts_of

#: The day that the table's facts are of: branches end, and the rows are not to change with them.
AS_OF = date(2026, 11, 30)
#: What a reference is asked with unless the row is about its lack: which one it is decides nothing.
DIGEST = "@sha256:" + "0" * 64
_QUESTION = ("gpu", "driver", "modules", "os", "docker", "toolkit")


@dataclass(frozen=True)
class Answer:
    """``rules``: how bad each error, warning and unknown is, by id; ``informs``: ids of information, sorted, once."""

    status: str
    rules: Mapping[str, str]
    informs: tuple[str, ...]
    findings: tuple[Finding, ...]

    def finding(self, rule: str) -> Finding:
        """The one finding of a rule."""
        (found,) = [one for one in self.findings if one.id == f"audit.{rule}"]
        return found


def ask(asked: Mapping[str, Any], rules: tuple[AuditRule, ...] = ALL) -> Answer:
    """What the audit says, with all rules or some of them."""
    return answer(judge(subject(asked), image(asked), options(asked), rules=rules))


def subject(asked: Mapping[str, Any]) -> Subject:
    """An offline question, or the machine that the row means."""
    if "host" in asked:
        return subject_of(facts_of(asked))
    return Subject.from_question(**{name: asked[name] for name in _QUESTION if name in asked})


def image(asked: Mapping[str, Any]) -> Asked:
    """What the catalogue makes of a reference; an image as inspection finds it; None where none is asked."""
    said = asked.get("image")
    if said is None:
        return None
    digest = DIGEST if asked.get("digest", True) else ""
    if isinstance(said, str):
        return load().images.look_up(said + digest)
    facts = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    return images.asked(facts.pop("reference") + digest, "inspected", "the truth table", **facts)


def options(asked: Mapping[str, Any]) -> Options:
    """What is asked beside machine and image."""
    memory = asked.get("intended_memory_gb")
    job = (
        [load().gpus.find(one).id for one in (*asked.get("job", ()), asked["gpu"])] if "job" in asked else []
    )
    return Options(
        intended_memory_bytes=None if memory is None else memory * 10**9,
        job_groups=(tuple(job),) if job else (),
        where=asked.get("where", "container"),
        on=AS_OF,
    )


def answer(verdict: Verdict) -> Answer:
    """A verdict in the table's words. Of a rule that says several things, the worst counts: findings come so."""
    counted: dict[str, str] = {}
    for one in verdict.findings:
        if one.severity is not Severity.INFO:
            counted.setdefault(one.id, one.severity.value)
    informs = {one.id for one in verdict.findings if one.severity is Severity.INFO}
    return Answer(verdict.status, counted, tuple(sorted(informs)), verdict.findings)
