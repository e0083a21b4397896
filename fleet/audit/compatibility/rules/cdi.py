"""CDI: does its specification fit the driver, and who notices an image that the driver is too old for?"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.fits import fit, forward
from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule
from fleet.audit.compatibility.subject import Program, Subject
from fleet.audit.findings import Finding, Severity
from fleet.catalogue.docker import feature_since
from fleet.catalogue.images import Image
from fleet.catalogue.versions import Version, release

#: From this toolkit on its runtime makes CDI specifications on the fly, and enforces no requirements.
JIT_CDI_SINCE = release("1.18.0")


@rule(
    "audit.cdi.requirements",
    severity=Severity.WARNING,
    known_bad=KnownBad(
        {"driver.loaded.version": "550.163.01"},
        "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-devel@sha256:" + "0" * 64,
    ),
)
def requirements(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Where an image says which CUDA its host must have, something refuses the image on a host that has not."""
    image, how = case.image, _by_cdi(case.subject)
    if not case.in_container or image is None or how is None or not _requires(image):
        return
    if fit(case) not in ("minor_version", "too_old") or (
        fit(case) == "too_old" and forward(case) is not None
    ):
        return
    yield self.finding(
        f"{image.reference} asks for CUDA {image.cuda} (NVIDIA_REQUIRE_CUDA), and {how} does not enforce that: it"
        " starts whatever the driver, and shows at the first use of a GPU what is missing",
        observed=how,
        limit="a driver of the image's CUDA",
        source="NVIDIA/nvidia-container-toolkit: only the legacy mode evaluates NVIDIA_REQUIRE_*",
        remedy="take no container that started as evidence; run the container check, which uses the GPUs",
    )


def _requires(image: Image) -> bool:
    """Whether an image declares what it needs: those built upon nvidia/cuda do, as they bring cuda-compat."""
    return bool(image.require_cuda) or (image.require_cuda is None and bool(image.compat_package))


def _by_cdi(subject: Subject) -> str | None:
    """What gives GPUs by CDI on this host; None where the legacy way does, or nobody knows."""
    toolkit, engine = subject.toolkit, subject.engine
    if subject.toolkit_mode in ("legacy", "csv"):
        return None
    if subject.toolkit_mode == "cdi":
        return "the toolkit's mode cdi"
    if isinstance(engine, Program) and engine.version >= feature_since("gpus_by_cdi"):
        return f"Docker {engine.version} by CDI"
    if isinstance(toolkit, Version) and toolkit >= JIT_CDI_SINCE:
        return f"toolkit {toolkit} by CDI made on the fly"
    return None


@rule(
    "audit.cdi.stale",
    known_bad=KnownBad({"container_toolkit.cdi.specifications.0.driver_version": "570.211.01"}),
)
def stale(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The CDI specifications of the GPUs were written for the driver that is loaded."""
    driver, written = case.subject.driver, case.subject.cdi
    if not case.in_container or not isinstance(driver, Version) or not isinstance(written, tuple):
        return
    others = [version for version in written if version != driver]
    if others:
        yield self.finding(
            f"the CDI specification is of driver {', '.join(map(str, others))}, and {driver} is loaded: containers"
            " would get libraries that are not there",
            observed=[version.text for version in others],
            limit=driver.text,
            source="a CDI specification names the driver's files by their versions",
            remedy="systemctl restart nvidia-cdi-refresh, or nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        )
