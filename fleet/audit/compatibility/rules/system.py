"""The host around driver and engine: distribution, C library, fabric manager, and memory for the model."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.rule import FITTING, AuditRule, Case, KnownBad, rule, with_caveat
from fleet.audit.compatibility.subject import NOTHING
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import fabric_manager_for
from fleet.catalogue.fabric import FabricNeeds
from fleet.catalogue.gpus import Gpu
from fleet.catalogue.operating_systems import Release
from fleet.catalogue.versions import Version, last_day, release

_GIB = 2**30


def _release(case: Case) -> Release | None:
    os = case.subject.os
    return case.catalogue.systems.release(*os) if isinstance(os, tuple) else None


@rule(
    "audit.os.end_of_life",
    severity=Severity.WARNING,
    known_bad=KnownBad({"os.id": "ubuntu", "os.version_id": "20.04"}),
)
def end_of_life(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The distribution still gets security updates, by its makers or by its long term team."""
    found = _release(case)
    dates = [one for one in (found.end_of_life, found.long_term_end) if one] if found else []
    if found is None or not dates:
        return
    ended = max(dates, key=last_day)
    if case.options.on <= last_day(ended):
        return
    field = "long_term_end" if ended == found.long_term_end else "end_of_life"
    yield self.finding(
        with_caveat(f"{found.name} is past its end of life, {ended}", found.provenance.caveat(field)),
        observed=found.name,
        limit=ended,
        source=found.provenance.source(field),
        remedy="upgrade the distribution: NVIDIA publishes no new drivers for it either",
    )


@rule(
    "audit.os.glibc",
    known_bad=KnownBad({"os.id": "amzn", "os.version_id": "2"}, options=Options(where="host")),
)
def glibc(self: AuditRule, case: Case) -> Iterator[Finding]:
    """On the host itself, the C library is new enough for the wheels of torch. Containers bring their own."""
    found, image = _release(case), case.image
    if case.options.where != "host" or found is None or image is None:
        return
    build = case.catalogue.torch.find(image.torch, image.variant) if image.torch and image.variant else None
    if build is None or found.glibc is None or release(found.glibc) >= release(build.wheel_glibc):
        return
    yield self.finding(
        with_caveat(
            f"{found.name} has glibc {found.glibc}, the wheels of torch {build.torch} need {build.wheel_glibc}",
            found.provenance.caveat("glibc"),
        ),
        observed=found.glibc,
        limit=build.wheel_glibc,
        source=build.provenance.source("wheel_glibc"),
        remedy="run it in a container, which brings its own glibc",
    )


def _needs(case: Case) -> FabricNeeds | None:
    """What must run beside the driver on this host; None, too, where nobody knows of NVSwitches."""
    gpus = [known for _, known in case.subject.known_gpus()]
    return fabric_manager_for(gpus, case.subject.nvswitches is True, case.catalogue)


@rule(
    "audit.fabric_manager.version",
    known_bad=KnownBad({"driver.fabric_manager.version": "580.126.09"}),
)
def fabric_manager_version(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Where there are NVSwitches, the fabric manager has the very version of the driver."""
    manager, driver, needs = case.subject.fabric_manager, case.subject.driver, _needs(case)
    if needs is None or not isinstance(manager, Version) or not isinstance(driver, Version):
        return
    if manager == driver:
        return
    yield self.finding(
        with_caveat(
            f"fabric manager {manager} beside driver {driver}: it does not start, and CUDA fails with error 802",
            needs.provenance.caveat("version_match"),
        ),
        observed=manager.text,
        limit=driver.text,
        source=needs.provenance.source("version_match"),
        remedy=f"nvidia-fabricmanager {driver}: fleet provision INVENTORY --limit HOST",
    )


@rule(
    "audit.fabric_manager.absent",
    known_bad=KnownBad({"driver.fabric_manager": {"version": None, "active": False}}),
)
def fabric_manager_absent(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Where there are NVSwitches, a fabric manager is installed and runs."""
    subject, needs = case.subject, _needs(case)
    stopped = isinstance(subject.fabric_manager, Version) and subject.fabric_manager_active is False
    if needs is None or not isinstance(subject.driver, Version):
        return
    if subject.fabric_manager is not NOTHING and not stopped:
        return
    yield self.finding(
        with_caveat(
            f"the fabric manager {subject.fabric_manager} is not running: CUDA fails with error 802"
            if stopped
            else f"there is no fabric manager beside driver {subject.driver}, and this host has NVSwitches: CUDA"
            " fails with error 802",
            needs.provenance.caveat("needs"),
        ),
        observed="not running" if stopped else None,
        limit=f"nvidia-fabricmanager {subject.driver}, running",
        source=needs.provenance.source("needs"),
        remedy="systemctl enable --now nvidia-fabricmanager"
        if stopped
        else f"install nvidia-fabricmanager {subject.driver}: fleet provision INVENTORY --limit HOST",
    )


@rule(
    "audit.memory.model",
    severity=Severity.WARNING,
    known_bad=KnownBad(image=FITTING, options=Options(intended_memory_bytes=140 * _GIB)),
)
def memory(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Every GPU has the memory that the intended model needs on one."""
    wanted = case.options.intended_memory_bytes
    if wanted is None:
        return
    for gpu, known in case.subject.known_gpus():
        there = memory_bytes(known)
        if there is None or there >= wanted:
            continue
        for place in gpu.places:
            yield self.finding(
                f"{known.name} has {there / _GIB:.0f} GiB, the model needs {wanted / _GIB:.0f} GiB on one GPU",
                observed=there,
                limit=wanted,
                source=known.provenance.source("memory_mib" if known.memory_mib else "memory_gb"),
                remedy="a smaller model or batch, sharding over several GPUs, or GPUs with more memory",
                gpu=place,
            )


def memory_bytes(gpu: Gpu) -> int | None:
    """As NVML says it; where that is not known, as marketed, which is a little more."""
    if gpu.memory_mib is not None:
        return gpu.memory_mib * 2**20
    return int(gpu.memory_gb * _GIB) if gpu.memory_gb is not None else None
