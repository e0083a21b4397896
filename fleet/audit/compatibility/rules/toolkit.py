"""NVIDIA's container toolkit: there, safe, of today's repository, and on terms with the engine.

Releases, features and floors are in ``fleet/catalogue/data/container_toolkit.yaml`` and ``docker.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.observe import version_within
from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule
from fleet.audit.compatibility.starting import refused
from fleet.audit.compatibility.subject import NOTHING, Known, Program, Subject
from fleet.audit.compatibility.weaknesses import listed, open_ones, with_numbers
from fleet.audit.findings import Finding, Severity
from fleet.catalogue.container_toolkit import (
    cdi_0_7_since,
    toolkit_feature_since,
    toolkit_floor,
    toolkit_repository,
)
from fleet.catalogue.docker import feature_since
from fleet.catalogue.versions import Version

_SHOWN = 3
_TODAY = "NVIDIA/nvidia-container-toolkit CHANGELOG"


@rule("audit.toolkit.absent", known_bad=KnownBad({"container_toolkit.version": None}))
def absent(self: AuditRule, case: Case) -> Iterator[Finding]:
    """A host whose containers are to have GPUs has NVIDIA's container toolkit.

    An engine with CDI needs only a specification, whoever wrote it: without the toolkit nobody renews it.
    """
    subject = case.subject
    if not case.in_container or subject.toolkit is not NOTHING:
        return
    by_hand = subject.engine_cdi is True and isinstance(subject.cdi, tuple)
    files = case.catalogue.files
    yield self.finding(
        "NVIDIA's container toolkit is not installed: "
        + (
            "containers get GPUs by a CDI specification (--device nvidia.com/gpu=all), which nobody renews when the "
            "driver changes, and not by --gpus"
            if by_hand
            else "no container gets a GPU"
        ),
        severity=Severity.WARNING if by_hand else None,
        observed=None,
        limit=str(toolkit_floor(files)),
        source=toolkit_repository(files).provenance.source("packages"),
        remedy=f"install nvidia-container-toolkit {toolkit_floor(files)} or newer: fleet provision INVENTORY",
    )


@rule(
    "audit.toolkit.security",
    severity=Severity.WARNING,
    known_bad=KnownBad({"container_toolkit.version": "1.17.4"}),
)
def security(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The container toolkit has the fixes of every bulletin known."""
    toolkit = case.subject.toolkit
    if not isinstance(toolkit, Version) or case.options.where == "host":
        return
    unfixed = open_ones("container_toolkit", toolkit, case.subject)
    if not unfixed:
        return
    yield self.finding(
        f"toolkit {toolkit} has {listed(unfixed)}; {toolkit_floor(case.catalogue.files)} is the first without",
        observed=with_numbers(toolkit.text, unfixed),
        limit=str(toolkit_floor(case.catalogue.files)),
        source=unfixed[-1].provenance.source("fixed_in"),
        remedy=f"container toolkit {toolkit_floor(case.catalogue.files)} or newer",
    )


@rule(
    "audit.toolkit.legacy",
    severity=Severity.WARNING,
    known_bad=KnownBad({"container_toolkit.nvidia_docker2": "2.13.0-1"}),
)
def legacy(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The toolkit is of today's repository, with a key of its own, and nvidia-docker2 is gone."""
    found = case.subject.legacy
    if not found or case.options.where == "host":
        return
    yield self.finding(
        f"of an installation that NVIDIA gave up: {', '.join(found[:_SHOWN])}",
        observed=list(found),
        limit="nvidia-container-toolkit, its repository signed by its own key",
        source=f"{_TODAY}: nvidia-docker2 and nvidia-container-runtime are gone since 1.15.0",
        remedy="remove nvidia-docker2 and the old list, and install nvidia-container-toolkit: fleet provision sets up"
        " its repository and key",
    )


@rule(
    "audit.toolkit.engine",
    known_bad=KnownBad({"container_toolkit.runtime_hook": None, "engine.version": "24.0.9"}),
)
def engine(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Toolkit and engine have a way in common to give a container GPUs, and read the same specifications.

    An error where there is no way at all; a warning where the engine cannot read what the toolkit writes.
    """
    subject, toolkit = case.subject, case.subject.toolkit
    if not case.in_container or not isinstance(toolkit, Version) or not isinstance(subject.engine, Program):
        return
    version, files = subject.engine.version, case.catalogue.files
    no_cdi, newer = _no_cdi(subject, version), toolkit >= cdi_0_7_since(files)
    unread = newer and version < feature_since("cdi_spec_0_7", files)
    wanted = feature_since("cdi_spec_0_7" if newer else "cdi_opt_in", files)
    if subject.hook is False and (no_cdi or unread):
        yield self.finding(
            f"Docker {version} cannot give GPUs: nvidia-container-runtime-hook is not there, and"
            f" {no_cdi or f'it cannot read the CDI 0.7.0 of toolkit {toolkit}'}",
            observed=version.text,
            limit=str(wanted),
            source="moby daemon/devices_nvidia_linux.go; NVIDIA's container toolkit guide",
            remedy="install nvidia-container-toolkit whole, or Docker"
            f" {feature_since('cdi_default', files)} or newer",
        )
    elif mode := refused(subject):
        yield self.finding(
            f"docker run --gpus is refused: Docker {version} runs nvidia-container-runtime-hook for it, which does not"
            f" work in the toolkit's mode {mode}; --runtime=nvidia does",
            observed=mode,
            limit="auto or legacy",
            source="NVIDIA/nvidia-container-toolkit cmd/nvidia-container-runtime-hook",
            remedy="nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto, or Docker"
            f" {feature_since('gpus_by_cdi', files)} or newer",
            severity=Severity.WARNING,
        )
    elif unread:
        yield self.finding(
            f"toolkit {toolkit} writes CDI 0.7.0, which Docker {version} cannot read (from {wanted} on): only the"
            " runtime hook gives GPUs",
            observed=version.text,
            limit=str(wanted),
            source=_TODAY,
            remedy=f"Docker {wanted} or newer",
            severity=Severity.WARNING,
        )


def _no_cdi(subject: Subject, version: Version) -> str:
    """Why this engine gives nothing by CDI; empty where it does, or may."""
    if version < feature_since("cdi_opt_in", subject.catalogue.files):
        return f"Docker knows CDI from {feature_since('cdi_opt_in')} on"
    return "CDI is turned off in Docker" if subject.engine_cdi is False else ""


@rule(
    "audit.containers.other",
    severity=Severity.WARNING,
    known_bad=KnownBad(
        {"packages.installed": {"podman": "4.3.1+ds1-8"}, "container_toolkit.cdi.specifications": []}
    ),
)
def other(self: AuditRule, case: Case) -> Iterator[Finding]:
    """What runs containers beside Docker gets GPUs too: podman by CDI, a kubelet by containerd's runtime."""
    subject, toolkit = case.subject, case.subject.toolkit
    if not case.in_container:
        return
    says = [
        *(["docker is podman here (podman-docker)"] if subject.podman_docker else []),
        *_podman(subject, toolkit),
        *_kubelet(subject, toolkit),
    ]
    if says:
        yield self.finding(
            "; ".join(says),
            observed=says,
            limit="GPUs in every engine that is there",
            source=f"{_TODAY}: CDI for podman, nvidia-ctk for containerd from {_containerd_since(subject)} on",
            remedy="nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, and container toolkit"
            f" {toolkit_floor(case.catalogue.files)} or newer",
        )


def _podman(subject: Subject, toolkit: Known) -> Iterator[str]:
    """What keeps podman, which takes GPUs by CDI alone, from them."""
    if subject.podman is None:
        return
    version = version_within(subject.podman)
    since = subject.catalogue.runtimes.cdi_0_7["podman"]
    if subject.cdi is NOTHING:
        yield f"podman {subject.podman} takes GPUs by CDI, and there is no specification"
    elif _writes_cdi_0_7(subject, toolkit) and version is not None and version < since:
        yield f"podman {subject.podman} cannot read the CDI 0.7.0 of toolkit {toolkit} (from {since} on)"


def _containerd_since(subject: Subject) -> Version:
    """The first toolkit whose nvidia-ctk writes the configuration of containerd."""
    return toolkit_feature_since("containerd", subject.catalogue.files)


def _kubelet(subject: Subject, toolkit: Known) -> Iterator[str]:
    """What keeps the pods of a kubelet, which containerd runs, from GPUs."""
    if subject.kubelet is None:
        return
    since, containerd = subject.catalogue.runtimes.cdi_0_7["containerd"], subject.containerd
    if isinstance(toolkit, Version) and toolkit < _containerd_since(subject):
        yield f"kubelet runs, and toolkit {toolkit} cannot configure containerd (from {_containerd_since(subject)} on)"
    elif _writes_cdi_0_7(subject, toolkit) and containerd is not None and containerd.version < since:
        yield f"containerd {containerd.text} cannot read the CDI 0.7.0 of toolkit {toolkit} (from {since} on)"


def _writes_cdi_0_7(subject: Subject, toolkit: Known) -> bool:
    return isinstance(toolkit, Version) and toolkit >= cdi_0_7_since(subject.catalogue.files)
