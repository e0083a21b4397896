"""What is wanted of NVIDIA's driver, and whether a host has it: read by the rules of :mod:`fleet.audit.rules`.

The playbook says what it wants in ``wanted["driver"]``, the arguments of the module ``nvidia_driver``. Whether a
driver is *as wanted* is judged by the one that is loaded: a host whose driver is as wanted needs nothing
disruptive, whoever uses it. Next: :mod:`fleet.audit.gpus`, what the catalogue knows of a host's GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fleet.audit.facts import Facts, fact
from fleet.audit.gpus import flavour_fits, has_gpus, host_gpus
from fleet.audit.rule import Wanted
from fleet.catalogue.versions import Version, driver_version

#: A driver's version within a package's: ``580.159.03`` of ``2:580.159.03-1``.
_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d{1,3}){1,2})(?![\d.])")
_BRANCH = re.compile(r"\d{3}")
_BRANCH_IN_NAME = re.compile(r"-(\d{3})(?=-|$)")

#: How the packages begin that carry the driver itself, by NVIDIA's, Debian's and Ubuntu's names. Tools that
#: may be of another version (nvidia-settings, nvidia-modprobe, nvidia-persistenced) are not among them.
_DRIVER_PACKAGES = (
    "nvidia-driver", "nvidia-open", "cuda-drivers", "nvidia-headless", "nvidia-dkms", "nvidia-kernel-dkms",
    "nvidia-kernel-open-dkms", "nvidia-kernel-source", "nvidia-utils", "nvidia-compute-utils", "nvidia-smi",
    "nvidia-firmware", "firmware-nvidia-gsp", "libnvidia-compute", "libnvidia-ml1", "libnvidia-cfg1",
    "libnvidia-gl", "libnvidia-decode", "libnvidia-encode", "libnvidia-extra", "libnvidia-fbc1",
    "libnvidia-ptxjitcompiler", "libcuda1", "libnvcuvid1", "linux-modules-nvidia", "xserver-xorg-video-nvidia",
)  # fmt: skip
_NO_DRIVER = ("nvidia-driver-pinning", "nvidia-driver-assistant", "nvidia-driver-local-repo")
#: Packages without a part of the driver: they depend on parts of their own version, and stay while those are held.
_METAPACKAGE = re.compile(
    r"(nvidia-driver|nvidia-open|cuda-drivers|nvidia-headless)(-\d{3})?(-server)?(-open)?"
)
#: Packages that a driver cannot be changed without.
_BESIDE = ("nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex", "nvidia-persistenced", "nvidia-modprobe")


@dataclass(frozen=True)
class WantedDriver:
    """``source``: nvidia, distribution or preinstalled. ``exact`` and ``branch`` are None where open."""

    source: str
    exact: Version | None
    branch: int | None
    modules: str

    @property
    def installed_by_fleet(self) -> bool:
        """Whether the driver task installs packages, and does not only look."""
        return self.source != "preinstalled"

    @property
    def words(self) -> str:
        """``580.159.03``, ``branch 580`` or ``a driver``."""
        if self.exact is not None:
            return self.exact.text
        return f"branch {self.branch}" if self.branch is not None else "a driver"


def wanted_driver(wanted: Wanted) -> WantedDriver | None:
    """What the playbook says of the driver; None where it says nothing."""
    said: Mapping[str, Any] = wanted.get("driver") or {}
    if not said:
        return None
    exact = upstream(str(said.get("version") or ""))
    branch = str(said.get("branch") or "")
    return WantedDriver(
        source=str(said.get("source") or "nvidia"),
        exact=exact,
        branch=exact.major if exact else int(branch) if _BRANCH.fullmatch(branch) else None,
        modules=str(said.get("modules") or "auto"),
    )


@lru_cache(maxsize=4096)
def upstream(text: str) -> Version | None:
    """The driver's version within a package's; None where there is none."""
    match = _UPSTREAM.match(text)
    return driver_version(match[1]) if match else None


def loaded_version(facts: Facts) -> Version | None:
    """The version of the module in memory; None where none is loaded, and for Tegra's own numbers."""
    return upstream(str(fact(facts, "driver.loaded.version") or ""))


def as_wanted(facts: Facts, driver: WantedDriver) -> bool:
    """Whether the loaded driver is one that the playbook asks for."""
    loaded = loaded_version(facts)
    if loaded is None:
        return False
    flavour = fact(facts, "driver.loaded.flavour")
    if driver.modules in ("open", "proprietary") and flavour not in (None, driver.modules):
        return False
    if driver.exact is not None:
        return loaded == driver.exact
    return driver.branch in (None, loaded.major) and _serves(facts, loaded, flavour)


def _serves(facts: Facts, loaded: Version, flavour: str | None) -> bool:
    """Whether a driver serves every GPU here, as far as the catalogue knows them: one that does may stay."""
    known = [gpu.known for gpu in host_gpus(facts) if gpu.known is not None]
    return all(
        gpu.support(loaded) not in ("too_old", "dropped") and (flavour is None or flavour_fits(gpu, flavour))
        for gpu in known
    )


def to_be_changed(facts: Facts, wanted: Wanted) -> WantedDriver | None:
    """The wanted driver where fleet has to install or reload it on this host, else None."""
    driver = wanted_driver(wanted)
    if driver is None or not has_gpus(facts) or not driver.installed_by_fleet or as_wanted(facts, driver):
        return None
    return driver


@dataclass(frozen=True)
class Parts:
    """The driver's parts on a host, each read for itself. None: not there, or not readable as a version."""

    loaded: Version | None
    disk: Version | None
    library: Version | None

    @property
    def agree(self) -> bool:
        """Whether all parts that are there are of the version that is loaded; so, too, where none is."""
        return self.loaded is None or {self.disk, self.library} <= {self.loaded, None}


def parts(facts: Facts) -> Parts:
    """Module in memory, module file of the running kernel, and library."""
    library = upstream(str(fact(facts, "driver.library_version") or ""))
    return Parts(loaded_version(facts), module_version(running_kernel(facts)), library)


def kernels(facts: Facts) -> list[Mapping[str, Any]]:
    """The running kernel, and the one that boots next where it is another."""
    return list(fact(facts, "driver.kernels") or [])


def running_kernel(facts: Facts) -> Mapping[str, Any]:
    """What is known of the running kernel; empty where nothing is."""
    return next((one for one in kernels(facts) if one.get("running")), {})


def next_kernel(facts: Facts) -> Mapping[str, Any]:
    """The kernel that boots next where it is another than the running one; else empty."""
    return next((one for one in kernels(facts) if one.get("next") and not one.get("running")), {})


def kernel_without_driver(facts: Facts) -> Mapping[str, Any]:
    """The kernel that boots next where it is another than the running one and has no module; else empty."""
    kernel = next_kernel(facts)
    return {} if kernel.get("modules") else kernel


def module_version(kernel: Mapping[str, Any]) -> Version | None:
    """The version of the module file that modprobe would take for a kernel; None where there is none."""
    modules = kernel.get("modules") or [{}]
    return upstream(str(modules[0].get("version") or ""))


@lru_cache(maxsize=4096)
def is_driver_package(name: str) -> bool:
    """Whether a package carries a part of the driver."""
    return name.startswith(_DRIVER_PACKAGES) and not name.startswith(_NO_DRIVER)


@lru_cache(maxsize=4096)
def goes_with_driver(name: str) -> bool:
    """Whether a hold on this package keeps the driver from being changed."""
    return is_driver_package(name) or name.startswith(_BESIDE)


def branch_of(name: str, version: str) -> int | None:
    """The branch that a package of the driver belongs to: by its version, else by its name."""
    found = upstream(version)
    if found is not None:
        return found.major
    match = _BRANCH_IN_NAME.search(name)
    return int(match[1]) if match else None


def counts(facts: Facts, name: str) -> bool:
    """Whether a package is of the driver; modules prebuilt for kernels that will not run again are not."""
    if not name.startswith("linux-modules-nvidia-"):
        return is_driver_package(name)
    return name.endswith(tuple(str(kernel["release"]) for kernel in kernels(facts)))


def by_branch(facts: Facts, installed: Mapping[str, str]) -> dict[int, list[str]]:
    """Packages of the driver (name -> version) by their branch, in order of their names."""
    found: dict[int, list[str]] = {}
    for name in sorted(installed):
        branch = branch_of(name, installed[name]) if counts(facts, name) else None
        if branch is not None:
            found.setdefault(branch, []).append(name)
    return found


def holds(facts: Facts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The installed packages of the driver's own versions: those on hold, and those that are not and could go alone."""
    held = fact(facts, "packages.held") or []
    there = parts(facts)
    versions = {there.loaded, there.library} - {None}
    mine = [
        name
        for name, version in sorted((fact(facts, "packages.installed") or {}).items())
        if goes_with_driver(name) and upstream(version) in versions
    ]
    loose = (name for name in mine if name not in held and not _METAPACKAGE.fullmatch(name))
    return tuple(name for name in mine if name in held), tuple(loose)
