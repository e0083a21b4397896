"""A subject out of a facts document: which value of the facts each is, and when it is not known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fleet.audit.compatibility.subject import (
    ABSENT,
    NOTHING,
    Known,
    Missing,
    Program,
    Subject,
    SubjectGpu,
)
from fleet.audit.driver import by_branch, holds, kernel_without_driver, parts, upstream
from fleet.audit.facts import Facts, fact, releases, why_absent
from fleet.audit.gpus import has_gpus, host_gpus
from fleet.audit.interconnect import no_gpu_direct, redirecting_bridges, translating
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.versions import Version, release

#: Upstream's version within a package's or a program's: ``1.1.5`` of ``1:1.1.5+ds1-1+deb12u1``.
_UPSTREAM = re.compile(r"(?:\d+:)?(\d{1,4}(?:\.\d{1,4}){0,3})(?![\d.])")
#: What distributions write into the versions of what they build themselves.
#: Not ``~ubuntu.24.04``, by which Docker says what a package of its own is for.
_DISTRIBUTION = re.compile(r"\+dfsg|\+ds|~ds|(?<!~)ubuntu|\+deb\d+u")


def observed(facts: Facts, catalogue: Catalogue) -> Subject:
    """The host of a facts document."""
    gpus = _gpus(facts, catalogue)
    return Subject(
        gpus=gpus,
        architecture=fact(facts, "kernel.architecture"),
        nvswitches=_nvswitches(facts),
        os=releases(facts) if fact(facts, "os.id") and fact(facts, "os.version_id") else None,
        operator=_evidence(facts, "gpu_operator"),
        **_driver(facts),
        **_containers(facts),
        **_interconnect(facts, gpus),
        reasons=_reasons(facts),
        catalogue=catalogue,
    )


def _gpus(facts: Facts, catalogue: Catalogue) -> tuple[SubjectGpu, ...] | None:
    if fact(facts, "gpus") is None:
        return None
    return tuple(SubjectGpu.of(gpu.known, gpu.device, gpu.addresses) for gpu in host_gpus(facts, catalogue))


def _nvswitches(facts: Facts) -> bool | None:
    found = fact(facts, "nvswitches")
    return None if found is None else bool(found)


def _driver(facts: Facts) -> dict[str, Any]:
    if fact(facts, "driver") is None:
        known: Missing | None = NOTHING if fact(facts, "driver_reason") == "not_supported" else None
        return {"driver": known, "modules": known}
    there = parts(facts)
    loaded = fact(facts, "driver.loaded")
    held, loose = holds(facts)
    kernel = kernel_without_driver(facts)
    manager = fact(facts, "driver.fabric_manager") or {}
    return {
        "driver": NOTHING if loaded is None else there.loaded,
        "installed": (there.library or there.disk) if loaded is None else None,
        "modules": ABSENT if loaded is None else loaded.get("flavour"),
        "disk": there.disk,
        "library": there.library,
        "branches": tuple(sorted(by_branch(facts, fact(facts, "packages.installed") or {}))),
        "held": held,
        "loose": loose,
        "next_kernel": str(kernel["release"]) if kernel else None,
        "next_kernel_headers": bool(kernel.get("headers")),
        "fabric_manager": upstream(str(manager.get("version") or "")) or NOTHING,
        "fabric_manager_active": manager.get("active"),
    }


def _containers(facts: Facts) -> dict[str, Any]:
    toolkit = fact(facts, "container_toolkit")
    installed: Mapping[str, str] = fact(facts, "packages.installed") or {}
    found: dict[str, Any] = {
        "engine": _engine(facts, installed),
        "engine_cdi": fact(facts, "engine.cdi"),
        "default_runtime": fact(facts, "engine.default_runtime"),
        "runc": _runc(installed),
        "toolkit": None if toolkit is None else _toolkit(toolkit),
        "podman": installed.get("podman"),
        "podman_docker": bool(fact(facts, "engine.podman_docker")),
        "kubelet": _evidence(facts, "kubelet"),
        "containerd": _containerd(installed),
    }
    if toolkit is None:
        return found
    older = toolkit.get("nvidia_docker2")
    specifications = fact(toolkit, "cdi.specifications") or []
    written = [
        upstream(str(one.get("driver_version") or ""))
        for one in specifications
        if one.get("kind") == "nvidia.com/gpu"
    ]
    return {
        **found,
        "toolkit_mode": toolkit.get("mode"),
        "hook": bool(toolkit.get("runtime_hook")),
        "legacy": (
            *([f"nvidia-docker2 {older}"] if older else []),
            *map(str, toolkit.get("legacy_sources") or []),
        ),
        "cdi": tuple(sorted({one for one in written if one is not None})) if written else NOTHING,
    }


def _toolkit(toolkit: Mapping[str, Any]) -> Known:
    if toolkit.get("version") is not None:
        return version_within(str(toolkit["version"]))
    return None if toolkit.get("version_reason") not in (None, "not_supported") else NOTHING


def _engine(facts: Facts, installed: Mapping[str, str]) -> Program | Missing | None:
    if fact(facts, "engine") is None:
        return None
    if not fact(facts, "engine.present"):
        return NOTHING
    package = next((installed[name] for name in ("docker-ce", "docker.io") if name in installed), None)
    text = fact(facts, "engine.version") or package
    return _program(
        text and str(text), distribution="docker.io" in installed and "docker-ce" not in installed
    )


def _runc(installed: Mapping[str, str]) -> Program | Missing:
    """runc by its package. Docker's containerd.io has one inside, and its version does not say which."""
    return _program(installed.get("runc")) or ABSENT


def _containerd(installed: Mapping[str, str]) -> Program | None:
    """containerd by its package: Docker's, else the distribution's."""
    if "containerd.io" in installed:
        return _program(installed["containerd.io"])
    return _program(installed.get("containerd"), distribution=True)


def _program(text: str | None, distribution: bool = False) -> Program | None:
    version = version_within(text) if text else None
    if version is None or text is None:
        return None
    return Program(version, text, distribution or bool(_DISTRIBUTION.search(text)))


def version_within(text: str) -> Version | None:
    """Upstream's version, of at least three numbers, so that 24.0 is 24.0.0; None where there is none."""
    match = _UPSTREAM.match(text.removeprefix("v"))
    return release(match[1] + ".0" * max(0, 2 - match[1].count("."))) if match else None


def program(text: str) -> Program | None:
    """A program by what it, or somebody, says of its version."""
    return _program(text)


def _interconnect(facts: Facts, gpus: tuple[SubjectGpu, ...] | None) -> dict[str, Any]:
    count = sum(len(gpu.addresses) for gpu in gpus or ())
    return {
        "no_gpu_direct": no_gpu_direct(facts),
        "peermem": upstream(str(fact(facts, "driver.modules.nvidia_peermem.version") or "")),
        "acs_redirect": tuple(redirecting_bridges(facts, count)),
        "iommu_translating": count > 1 and translating(facts),
    }


def _evidence(facts: Facts, name: str) -> str | None:
    if not fact(facts, f"{name}.active"):
        return None
    return str(fact(facts, f"{name}.evidence") or "it is active")


#: Paths of the facts without which nothing can be said, by the field of the subject that comes from them.
GATES = {
    "gpus": "gpus",
    "nvswitches": "nvswitches",
    "driver": "driver",
    "modules": "driver.loaded.flavour",
    "engine": "engine",
    "toolkit": "container_toolkit",
}
_DEEPER = {
    "driver": "driver.loaded.version",
    "engine": "engine.version",
    "toolkit": "container_toolkit.version",
}


def _reasons(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Why each value that a rule needs is null, for those that are."""
    found = []
    for name, path in GATES.items():
        deeper = _DEEPER.get(name, path)
        asked = path if fact(facts, path) is None else deeper
        if fact(facts, asked) is None and (name == "gpus" or has_gpus(facts)):
            found.append((name, why_absent(facts, asked)))
    return tuple(found)
