"""What an image asks of the host by NVIDIA_REQUIRE_CUDA: who refuses the container, and where nobody does."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.fits import fit
from fleet.audit.compatibility.requirements import SOURCE, Unmet, unmet
from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule
from fleet.audit.compatibility.starting import SOURCE as WAYS
from fleet.audit.compatibility.starting import Way, way
from fleet.audit.findings import Finding, Severity
from fleet.catalogue.images import Image

_DEVEL_128 = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-devel@sha256:" + "0" * 64
_RTX_4090_545 = {
    "gpus.0.device_id": "2684", "gpus.0.subsystem_id": "16c1", "driver.loaded.version": "545.29.06",
}  # fmt: skip
_HOOK = {
    "engine.version": "28.5.2",
    "container_toolkit.runtime_hook": "/usr/bin/nvidia-container-runtime-hook",
}
_BY_CDI = {"engine.version": "29.7.2", "engine.cdi": True}


@rule("audit.image.require_cuda", known_bad=KnownBad({**_RTX_4090_545, **_HOOK}, _DEVEL_128))
def require_cuda(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The driver is one that the image asks for, where the toolkit's hook refuses to start it on another.

    Not known where the image asks for something and nobody knows what.
    """
    how = _way(case, "hook")
    for image, found in _unmet(case) if how is not None else ():
        yield self.finding(
            f"{_asks(image, found)}: {_refused(how, found)}",
            observed=str(case.subject.driver),
            limit=found.first if found is not None else None,
            source=f"{SOURCE}; {WAYS}",
            remedy="a driver that the image asks for, or another image; NVIDIA_DISABLE_REQUIRE=1 in the container's"
            " environment turns the check off, and not what it warns of",
            severity=None if found is not None and found.sure else Severity.UNKNOWN,
        )


@rule(
    "audit.cdi.requirements",
    severity=Severity.WARNING,
    known_bad=KnownBad({**_RTX_4090_545, **_BY_CDI}, _DEVEL_128),
)
def unenforced(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Where an image says which CUDA its host must have, something refuses the image on a host that has not."""
    how = _way(case, "cdi")
    for image, found in _unmet(case) if how is not None else ():
        yield self.finding(
            f"{_asks(image, found)}: {how.words if how else ''} does not enforce that; it starts whatever the driver,"
            " and shows at the first use of a GPU what is missing",
            observed=how.words if how else None,
            limit=found.first if found is not None else None,
            source=WAYS,
            remedy="take no container that started as evidence; run the container check, which uses the GPUs",
        )


def _refused(how: Way | None, found: Unmet | None) -> str:
    """What the hook does of it, as far as is known."""
    hook = how.words if how else "the hook"
    if found is None:
        return f"whether {hook}, starts the container is not known"
    if not found.sure:
        return f"whether {hook}, starts the container depends on the brand of {found.gpu}"
    return f"{hook}, refuses to start the container"


def _way(case: Case, kind: str) -> Way | None:
    """How GPUs get into a container here, if it is of this kind."""
    found = way(case.subject) if case.in_container else None
    return found if found is not None and found.kind == kind else None


def _unmet(case: Case) -> list[tuple[Image, Unmet | None]]:
    """The image with what it asks for in vain, of the first GPU that shows it; None: what it asks for is not known.

    Of such an image a driver that is its CUDA's own, or newer, is in any case what it asks for.
    """
    image = case.image
    if image is None:
        return []
    asked = [one for one in (image.require_cuda, *image.require) if one]
    found = sorted(unmet(asked, case.subject), key=lambda one: not one.sure)
    if found:
        return [(image, found[0])]
    silent = image.require_cuda is None and image.compat_package is True
    return [(image, None)] if silent and fit(case) in ("minor_version", "too_old") else []


def _asks(image: Image, found: Unmet | None) -> str:
    if found is None:
        return f"{image.reference} asks for CUDA {image.cuda}, or for older drivers that are not known"
    if found.unreadable:
        return f"NVIDIA_REQUIRE_* of {image.reference} has {found.unreadable!r}, which cannot be evaluated"
    if not found.sure:
        return (
            f"{image.reference} asks for {found.first}, or for older drivers on some GPUs (NVIDIA_REQUIRE_*)"
        )
    return f"{image.reference} asks for {found.first} (NVIDIA_REQUIRE_*), which {found.gpu} and its driver do not meet"
