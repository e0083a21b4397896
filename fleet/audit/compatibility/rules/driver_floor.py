"""Is there a driver, and is it new enough for the image's CUDA?

Three floors, not one number: the driver that CUDA came out with (native), the one from which minor-version
compatibility holds, and below that, on GPUs of data centres, forward compatibility by a package in the image. All in
``fleet/catalogue/data/cuda.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.fits import (
    COMPAT_SINCE,
    COMPAT_SOURCE,
    brings_compat,
    fit,
    forward,
    toolkit_of,
)
from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule, with_caveat
from fleet.audit.compatibility.subject import NOTHING
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import best_branch
from fleet.catalogue.cuda import Fit, Toolkit

_RUNTIME_130 = "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime@sha256:" + "0" * 64
_DEVEL_130 = _RUNTIME_130.replace("runtime", "devel")


def _driver(version: str) -> dict[str, object]:
    """The healthy host with another driver, all its parts alike."""
    return {
        "driver.loaded.version": version,
        "driver.library_version": version,
        "driver.kernels.0.modules.0.version": version,
        "driver.fabric_manager.version": version,
        "container_toolkit.cdi.specifications.0.driver_version": version,
        "packages.installed": {},
    }


@rule("audit.driver.absent", known_bad=KnownBad({"driver.loaded": None}))
def absent(self: AuditRule, case: Case) -> Iterator[Finding]:
    """A driver is loaded on a host that has GPUs."""
    subject = case.subject
    if not subject.has_gpus or subject.driver is not NOTHING:
        return
    best = best_branch(subject.host_gpus, catalogue=subject.catalogue)
    there = subject.installed
    yield self.finding(
        f"driver {there} is installed and not loaded" if there else "there is no driver for the GPUs",
        observed="not loaded" if there else None,
        limit="a loaded driver",
        source="a GPU is of use only through its driver",
        remedy="modprobe nvidia; where that fails, dmesg has the reason"
        if there
        else f'install one: fleet provision, with nvidia_driver_branch: "{best}"'
        if best
        else "take out a GPU: no driver serves all that are here",
    )


@rule("audit.driver.floor_cuda", known_bad=KnownBad(_driver("550.163.01"), _RUNTIME_130))
def floor_cuda(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The driver is not older than what the image's CUDA needs at the least."""
    needed = toolkit_of(case.image, case.catalogue)
    if needed is None or fit(case) != "too_old" or forward(case) is not None:
        return
    floor = needed.minor_version_floor or needed.native_driver or needed.branch
    yield self.finding(
        with_caveat(
            f"driver {case.subject.driver} is below {floor}, the floor of CUDA"
            f" {needed.version.major if needed.minor_version_floor else _minor(needed)}",
            _caveat(needed),
        ),
        observed=str(case.subject.driver),
        limit=str(floor),
        source=_floor_source(needed),
        remedy=_newer(case, needed, ("native", "minor_version")),
    )


@rule(
    "audit.driver.minor_version",
    severity=Severity.WARNING,
    known_bad=KnownBad(
        _driver("550.163.01"), "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime@sha256:" + "0" * 64
    ),
)
def minor_version(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The driver is the image's CUDA's own, or newer: nothing rests on minor-version compatibility."""
    needed = toolkit_of(case.image, case.catalogue)
    if needed is None or fit(case) != "minor_version":
        return
    native = needed.native_driver or needed.branch
    yield self.finding(
        with_caveat(
            f"driver {case.subject.driver} runs CUDA {_minor(needed)} by minor-version compatibility, native is"
            f" {native}: no PTX is compiled, and features of a newer driver fail",
            needed.provenance.caveat("native_driver") if needed.native_driver else "",
        ),
        observed=str(case.subject.driver),
        limit=str(native),
        source=needed.provenance.source("native_driver"),
        remedy=f"for all of CUDA {_minor(needed)}: {_newer(case, needed)}",
    )


@rule(
    "audit.driver.forward_compatibility",
    severity=Severity.WARNING,
    known_bad=KnownBad(_driver("570.211.01"), _DEVEL_130),
)
def forward_compatibility(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The driver is new enough by itself, without the forward compatibility package of the image."""
    package, needed = forward(case), toolkit_of(case.image, case.catalogue)
    if package is None or needed is None or fit(case) != "too_old":
        return
    yield self.finding(
        with_caveat(
            f"driver {case.subject.driver} is too old for CUDA {_minor(needed)} and runs it only by"
            f" {package.package} in the image, which the container toolkit uses from {COMPAT_SINCE} on",
            package.provenance.caveat("base_branches"),
        ),
        observed=str(case.subject.driver),
        limit=str(needed.minor_version_floor or needed.native_driver or needed.branch),
        source=f"{package.provenance.source('base_branches')}; {COMPAT_SOURCE}",
        remedy=_newer(case, needed),
    )


def _minor(needed: Toolkit) -> str:
    return ".".join(map(str, needed.version.numbers[:2]))


def _caveat(needed: Toolkit) -> str:
    if needed.minor_version_floor is not None and needed.floor_provenance is not None:
        return needed.floor_provenance.caveat("minor_version_floor")
    return needed.provenance.caveat("native_driver")


def _floor_source(needed: Toolkit) -> str:
    if needed.minor_version_floor is not None and needed.floor_provenance is not None:
        return needed.floor_provenance.source("minor_version_floor")
    return needed.provenance.source("native_driver")


def _newer(case: Case, needed: Toolkit, enough: tuple[Fit, ...] = ("native",)) -> str:
    """What to do: a driver that serves all GPUs of the host and fits well enough, else an image of an older CUDA."""
    best = best_branch(case.subject.host_gpus, catalogue=case.catalogue)
    branch = case.catalogue.drivers.branch(best) if best is not None else None
    if branch is not None and needed.fit(branch.latest) in enough:
        return f"driver {branch.latest} (branch {branch.number})"
    other = "an image of an older CUDA"
    image = case.image
    if image is not None and not brings_compat(image) and image.flavour == "runtime":
        other += ", or on GPUs of data centres the devel image, which brings cuda-compat"
    return other
