"""Is the driver in one piece, will it stay, and who owns it? Only a host's own facts tell."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule
from fleet.audit.findings import Finding, Severity
from fleet.catalogue.versions import Version

_SHOWN = 5
_RUNNING = {
    "release": "6.1.0-28-amd64", "running": True, "next": False, "headers": True,
    "modules": [{"name": "nvidia", "path": "/lib/modules/6.1.0-28-amd64/updates/dkms/nvidia.ko",
                 "version": "580.159.03", "flavour": "open", "signer": None}],
    "initramfs": {"path": "/boot/initrd.img-6.1.0-28-amd64", "exists": True, "older_than": []},
    "out_of_tree_missing": [],
}  # fmt: skip
_NEXT = {
    **_RUNNING, "release": "6.1.0-31-amd64", "running": False, "next": True, "headers": False, "modules": [],
}  # fmt: skip


@rule("audit.driver.split", known_bad=KnownBad({"driver.library_version": "580.178.04"}))
def split(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Module in memory, module on disk, library and packages are of one version, or of one branch.

    A warning where packages of another branch are merely left beside the driver's own.
    """
    subject = case.subject
    loaded = subject.driver
    if not isinstance(loaded, Version) or not subject.has_gpus:
        return
    others = {subject.disk, subject.library} - {loaded, None}
    strangers = [branch for branch in subject.branches if branch != loaded.major]
    if not others and not strangers:
        return
    says = []
    if others:
        says.append(
            f"the driver is split: loaded {loaded}, on disk {subject.disk or 'none'}, library"
            f" {subject.library or 'none'}"
        )
    if strangers:
        says.append(
            f"packages of branch {' and '.join(map(str, strangers))} are installed, and driver {loaded} is loaded"
        )
    yield self.finding(
        "; ".join(says),
        observed=sorted({loaded.text, *(one.text for one in others if one), *map(str, strangers)}),
        limit="one version",
        source="NVML and CUDA work with the library of the very version that is loaded",
        remedy="drain the host and reboot it, or install one version whole: fleet provision INVENTORY --limit HOST",
        severity=None if others or loaded.major not in subject.branches else Severity.WARNING,
    )


@rule(
    "audit.driver.split_holds",
    severity=Severity.WARNING,
    known_bad=KnownBad({"packages.held": ["nvidia-driver"]}),
)
def split_holds(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The driver's packages are on hold all together, or none is."""
    held, loose = case.subject.held, case.subject.loose
    if not held or not loose or not case.subject.has_gpus:
        return
    more = f" and {len(loose) - _SHOWN} more" if len(loose) > _SHOWN else ""
    yield self.finding(
        f"{len(held)} of {len(held) + len(loose)} packages of the driver are on hold, and not"
        f" {', '.join(loose[:_SHOWN])}{more}: an upgrade would replace a part of the driver",
        observed=list(loose),
        limit="all or none",
        source="the driver's packages carry one version: one held back alone splits the set",
        remedy=f"apt-mark hold {' '.join(loose)}",
    )


@rule(
    "audit.driver.next_kernel",
    severity=Severity.WARNING,
    known_bad=KnownBad({"driver.kernels": [_RUNNING, _NEXT]}),
)
def next_kernel(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The kernel that boots next has the driver's modules.

    A warning: it runs now, and will not after a reboot.
    """
    subject = case.subject
    release = subject.next_kernel
    if release is None or not subject.has_gpus or not isinstance(subject.driver, Version):
        return
    headers = subject.next_kernel_headers
    yield self.finding(
        f"{release} boots next and has no module of driver {subject.driver}"
        + ("" if headers else ", nor headers to build one"),
        observed="no module",
        limit="modules of the driver",
        source="modprobe takes the modules of the kernel that runs",
        remedy=f"dkms autoinstall -k {release}" if headers else f"apt-get install linux-headers-{release}",
    )


@rule(
    "audit.driver.operator",
    severity=Severity.WARNING,
    known_bad=KnownBad(
        {"gpu_operator.active": True, "gpu_operator.evidence": "/run/nvidia/validations exists"}
    ),
)
def operator(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The driver is this host's own, and not brought by the GPU Operator of a cluster."""
    evidence = case.subject.operator
    if evidence is None:
        return
    yield self.finding(
        f"the GPU Operator owns driver and toolkit here ({evidence}): what is changed by hand it changes back",
        observed="active",
        limit="inactive",
        source="the operator brings driver and toolkit in containers of its own",
        remedy="change driver.version in the operator's ClusterPolicy, or take the node from it"
        " (kubectl label node HOST nvidia.com/gpu.deploy.operands=false)",
    )
