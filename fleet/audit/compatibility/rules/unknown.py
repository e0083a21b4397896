"""What the host did not say, and what the catalogue does not hold: never guessed."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.observe import GATES
from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule
from fleet.audit.compatibility.subject import Subject
from fleet.audit.findings import Finding, Severity


@rule(
    "audit.facts.unknown",
    severity=Severity.UNKNOWN,
    known_bad=KnownBad({"engine": None, "engine_reason": "permission"}),
)
def facts_unknown(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The host said what a verdict rests on: its GPUs, driver, engine and container toolkit."""
    for name in _gates(case):
        if getattr(case.subject, name) is None:
            yield self.finding(
                f"{GATES[name]} is not known: {case.subject.why(name)}",
                observed=None,
                limit="known",
                source="a gate fails closed: unknown is not healthy",
                remedy=f"find out on the host why {GATES[name]} cannot be read: fleet agent probe",
            )


def _gates(case: Case) -> list[str]:
    """What must be known of this host."""
    subject = case.subject
    if not subject.has_gpus:
        return ["gpus"]
    gates = ["driver"]
    if _picky(subject):
        gates.append("modules")
    if any(known.nvswitch == "some" for _, known in subject.known_gpus()):
        gates.append("nvswitches")
    return [*gates, "engine", "toolkit"] if case.in_container else gates


def _picky(subject: Subject) -> bool:
    """Whether a GPU runs with one flavour of the kernel modules alone, so that it matters which is loaded."""
    return any(gpu.open_kernel_modules in ("required", "impossible") for _, gpu in subject.known_gpus())


@rule(
    "audit.gpu.not_in_catalogue",
    severity=Severity.UNKNOWN,
    known_bad=KnownBad({"gpus.0.device_id": "ffff"}),
)
def gpu_not_in_catalogue(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Every GPU of the host is in the catalogue."""
    for gpu in case.subject.products:
        if gpu.known is not None:
            continue
        for place in gpu.places:
            yield self.finding(
                f"{gpu.name} is not in the catalogue: what it needs is not known",
                observed=gpu.device,
                limit="a GPU of the catalogue",
                source="fleet/catalogue/data/gpus.yaml",
                remedy="add the GPU to the site's catalogue, by its PCI ids",
                gpu=place,
            )
