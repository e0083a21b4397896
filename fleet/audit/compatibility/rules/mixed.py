"""Unlike GPUs: in one host, in one job, and such that nothing serves them all."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.fits import code_for
from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import at_odds, common, served_by
from fleet.catalogue.gpus import Gpu

_GTX_1080_TI = {"gpus.0.device_id": "1b06", "gpus.0.subsystem_id": "3752"}
_RTX_5090 = {"gpus.1.device_id": "2b85", "gpus.1.subsystem_id": "5301"}
_SOURCE = "a step of a job ends when its slowest GPU does; precisions and tuned kernels differ by capability"


def _capabilities(gpus: list[Gpu]) -> str:
    """``T4 (7.5) and A100 (8.0)``, one product for each capability, oldest first."""
    by_capability = {one.capability: one for one in sorted(gpus, key=lambda one: one.id, reverse=True)}
    return " and ".join(f"{one.name} ({one.compute_capability})" for _, one in sorted(by_capability.items()))


@rule("audit.mixed.host", severity=Severity.WARNING, known_bad=KnownBad(_GTX_1080_TI))
def host(self: AuditRule, case: Case) -> Iterator[Finding]:
    """All GPUs of a host are of one compute capability."""
    gpus = [known for _, known in case.subject.known_gpus()]
    if len({one.capability for one in gpus}) < 2:
        return
    yield self.finding(
        f"GPUs of different compute capability in one host: {_capabilities(gpus)}",
        observed=sorted({one.compute_capability for one in gpus}),
        limit="one compute capability",
        source=_SOURCE,
        remedy="give a job GPUs of one kind: CUDA_VISIBLE_DEVICES, or --gpus device=...",
    )


@rule(
    "audit.mixed.job",
    severity=Severity.WARNING,
    known_bad=KnownBad(options=Options(job_groups=(("t4", "h100-sxm5-80gb"),))),
)
def job(self: AuditRule, case: Case) -> Iterator[Finding]:
    """All GPUs that work on one job are of one compute capability."""
    own = {known.id for _, known in case.subject.known_gpus()}
    by_id = {one.id: one for one in case.catalogue.gpus.all}
    for group in case.options.job_groups:
        gpus = [by_id[one] for one in group if one in by_id]
        if not own & set(group) or len({one.capability for one in gpus}) < 2:
            continue
        yield self.finding(
            f"one job over GPUs of different compute capability: {_capabilities(gpus)}; the slowest sets the pace",
            observed=sorted({one.compute_capability for one in gpus}),
            limit="one compute capability",
            source=_SOURCE,
            remedy="a job for each kind, or weigh the batch by GPU",
        )


@rule("audit.mixed.impossible", known_bad=KnownBad({**_GTX_1080_TI, **_RTX_5090}))
def impossible(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Some driver, and some image, serves all GPUs of a host."""
    gpus = case.subject.host_gpus
    odd = at_odds(gpus, case.catalogue)
    known = [one.known for one in (odd or gpus) if one.known is not None]
    names = " and ".join(dict.fromkeys(one.name for one in known))
    if odd:
        yield self.finding(
            "no driver serves all GPUs of this host: "
            + ", ".join(f"{one.name} takes {served_by(one)}" for one in known),
            observed=[one.name for one in known],
            limit="a branch and a flavour of kernel modules in common",
            source=known[0].architecture.provenance.source("last_branch"),
            remedy="take one kind out, or hand it on to virtual machines (vfio-pci)",
        )
    elif len(known) > 1 and common(gpus, case.catalogue) and not _images(known, case):
        yield self.finding(
            f"no image of the catalogue has code for {names} together",
            observed=[one.compute_capability for one in known],
            limit="an image with code for all",
            source="fleet/catalogue/data/torch.yaml",
            remedy="an image for each kind, each container with GPUs of one kind",
        )


def _images(gpus: list[Gpu], case: Case) -> bool:
    """Whether some image has code for all of these products."""
    return any(
        all(code_for(image, gpu) in ("code", "ptx") for gpu in gpus)
        for image in case.catalogue.images.all
        if image.arch_list is not None
    )
