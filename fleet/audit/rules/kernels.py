"""Will the driver still be there after the next boot?

The kernel that boots next is often another one than the running one. A driver has to have modules for both, and
the initramfs of both must keep nouveau and nova away from the GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.audit.driver import (
    kernel_without_driver,
    kernels,
    loaded_version,
    next_kernel,
    running_kernel,
    to_be_changed,
    wanted_driver,
)
from fleet.audit.facts import Facts, fact, releases
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import has_gpus, own_gpus
from fleet.audit.rule import Rule, Sample, Wanted, rule
from fleet.catalogue.catalogue import load

_PREINSTALLED = {"driver": {"source": "preinstalled"}}
_RUNNING = {
    "release": "6.1.0-28-amd64", "running": True, "next": False, "headers": True,
    "modules": [{"name": "nvidia", "path": "/lib/modules/6.1.0-28-amd64/updates/dkms/nvidia.ko",
                 "version": "580.159.03", "flavour": "open", "signer": None}],
    "initramfs": {"path": "/boot/initrd.img-6.1.0-28-amd64", "exists": True, "older_than": []},
    "out_of_tree_missing": [],
}  # fmt: skip
_NEXT = {
    **_RUNNING, "release": "6.1.0-31-amd64", "running": False, "next": True, "headers": False, "modules": [],
    "initramfs": {"path": "/boot/initrd.img-6.1.0-31-amd64", "exists": True, "older_than": []},
}  # fmt: skip
_OTHER_DRIVERS = ("nouveau", "nova_core", "nova")


@rule(
    "preflight.next_kernel", known_bad=Sample({"driver.kernels": [_RUNNING, _NEXT]}, _PREINSTALLED, gpu=True)
)
def headers(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The kernel that boots next has the driver's modules, or headers to build them. Reads ``driver``.

    A warning where the driver task installs the headers, which fails by name where they are not offered.
    """
    driver = wanted_driver(wanted)
    ours = driver is not None and driver.installed_by_fleet
    if not has_gpus(facts) or (driver is None and loaded_version(facts) is None):
        return
    kernel = kernel_without_driver(facts)
    if not kernel:
        return
    release = str(kernel["release"])
    if not kernel.get("headers"):
        package = _headers_package(facts, release)
        yield self.finding(
            f"{release} boots next and has no headers: after a reboot there would be no driver",
            observed="no module, no headers",
            limit="modules of the driver, or headers",
            source="DKMS builds the modules for kernels whose headers are installed",
            remedy="the driver task installs them; by hand: " * ours + f"apt-get install {package}",
            severity=None if driver is not None and not ours else Severity.WARNING,
        )
    elif not ours:
        yield self.finding(
            f"{release} boots next and has no module of the driver yet",
            observed="no module",
            limit="modules of the driver",
            source="DKMS builds them when a kernel is installed, or while it boots",
            remedy=f"dkms autoinstall -k {release}",
            severity=Severity.WARNING,
        )


def _headers_package(facts: Facts, release: str) -> str:
    found = load().systems.release(*releases(facts))
    names = found.family.headers(release) if found is not None and found.family is not None else ()
    return " ".join(names) or f"linux-headers-{release}"


@rule(
    "preflight.out_of_tree",
    severity=Severity.WARNING,
    known_bad=Sample(
        {
            "driver.kernels": [
                _RUNNING,
                {**_NEXT, "headers": True, "out_of_tree_missing": ["mlx5_core", "lustre"]},
            ]
        },
        gpu=True,
    ),
)
def out_of_tree(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every module from outside the kernel that is loaded now exists for the kernel that boots next.

    Only a warning: nothing is lost before somebody reboots. Those of the driver are built by the driver task.
    """
    kernel, driver = next_kernel(facts), wanted_driver(wanted)
    ours = driver is not None and driver.installed_by_fleet
    names = [
        name for name in kernel.get("out_of_tree_missing") or [] if not (ours and name == "nvidia_peermem")
    ]
    if not has_gpus(facts) or not names:
        return
    release = kernel["release"]
    yield self.finding(
        f"{', '.join(names)} would be gone after a reboot: {release} boots next and has no such modules",
        observed=list(names),
        limit="the modules loaded now",
        source=f"/lib/modules/{release}",
        remedy=f"before a reboot: dkms autoinstall -k {release}, or install their packages for {release}",
    )


@rule(
    "preflight.nouveau",
    known_bad=Sample(
        {
            "gpus.0.driver": "nouveau",
            "driver.kernels.0.initramfs.older_than": ["/etc/modprobe.d/nvidia.conf"],
        },
        _PREINSTALLED,
        gpu=True,
    ),
)
def nouveau(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No GPU is bound to nouveau or nova where the driver is preinstalled, or although both are forbidden.

    The driver task forbids both, rebuilds the initramfs and gives the GPUs to NVIDIA's driver.
    """
    driver = wanted_driver(wanted)
    bound = [gpu for gpu in own_gpus(facts) if gpu.get("driver") in _OTHER_DRIVERS]
    if driver is None or not bound:
        return
    blocked = fact(facts, "driver.nouveau_blocked")
    if driver.installed_by_fleet and not blocked:
        return
    name, release = bound[0]["driver"], running_kernel(facts).get("release") or fact(facts, "kernel.release")
    why = _why_bound(running_kernel(facts)) if blocked else ": nothing in /etc/modprobe.d forbids it"
    yield self.finding(
        f"{name} owns {len(bound)} of {len(own_gpus(facts))} GPUs ({bound[0]['address']}){why}",
        observed=name,
        limit="nvidia",
        source="the driver that a GPU is bound to keeps every other one away",
        remedy=("" if blocked else "printf 'blacklist nouveau\\nblacklist nova_core\\n' >"
                " /etc/modprobe.d/blacklist-nouveau.conf && ")
        + f"update-initramfs -u -k {release} && systemctl reboot",
        severity=Severity.WARNING if driver.installed_by_fleet else None,
    )  # fmt: skip


def _why_bound(kernel: Mapping[str, Any]) -> str:
    older = (kernel.get("initramfs") or {}).get("older_than") or []
    if older:
        return f" although it is forbidden: the initramfs of {kernel['release']} is older than {', '.join(older)}"
    return " although it is forbidden: it was loaded before that was written, or asked for by name"


@rule(
    "preflight.initramfs",
    severity=Severity.WARNING,
    known_bad=Sample({"driver.kernels.0.initramfs.older_than": ["/etc/modprobe.d/nvidia.conf"]}, gpu=True),
)
def initramfs(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The initramfs of the kernels that run and boot next holds what /etc/modprobe.d says.

    Silent where the driver task rebuilds it anyway.
    """
    if not has_gpus(facts) or to_be_changed(facts, wanted) is not None:
        return
    for kernel in kernels(facts):
        older = (kernel.get("initramfs") or {}).get("older_than") or []
        if older:
            yield self.finding(
                f"the initramfs of {kernel['release']} is older than {', '.join(older)}:"
                " what is forbidden there may come back with the next boot",
                observed=list(older),
                limit="none",
                source="modules loaded from the initramfs obey the files in it, not those on disk",
                remedy=f"update-initramfs -u -k {kernel['release']}",
            )
