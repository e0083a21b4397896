"""Which packages NVIDIA's repositories hold in the lab, named and related as the real ones.

Sources of the names: NVIDIA's driver installation guide (nvidia-open-BRANCH, cuda-drivers-BRANCH,
nvidia-driver-pinning-BRANCH), NVIDIA/gpu-driver-container (fabric manager before and since 580), the
container toolkit's installation guide. Which package holds which file in the Debian and Ubuntu flavours
is recalled, not verified. Versions that were really published are used, so that a host looks plausible.
Next: :mod:`.contents` says what is in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fleet.lab.simulation import contents
from fleet.lab.simulation.deb import Package

DRIVERS = (
    "535.183.06",
    "535.309.01",
    "550.163.01",
    "570.158.01",
    "570.211.01",
    "580.105.08",
    "580.159.03",
    "590.48.01",
    "595.71.05",
    "610.57.04",
)
FIRST_OPEN = 515
# Branches of long ago, and which distributions' repositories had them.
OLD_DRIVERS = {"470.256.02": ("debian11",)}
TOOLKITS = ("1.13.5", "1.17.8", "1.18.2", "1.19.1", "1.20.0")
DISTRIBUTIONS = ("debian11", "debian12", "debian13", "ubuntu2204", "ubuntu2404")
DEBIANS = {"bullseye": "debian11", "bookworm": "debian12", "trixie": "debian13"}
# The kernels of each distribution: the one its hosts run, and the one an update would bring.
KERNELS = {
    "debian11": ("5.10.0-90-amd64", "5.10.0-91-amd64"),
    "debian12": ("6.1.0-90-amd64", "6.1.0-91-amd64"),
    "debian13": ("6.12.990+deb13-amd64", "6.12.991+deb13-amd64"),
    "ubuntu2204": ("5.15.0-170-generic", "5.15.0-171-generic"),
    "ubuntu2404": ("6.8.0-90-generic", "6.8.0-91-generic"),
}


def driver_packages(distribution: str, driver: str, native: Path) -> Iterator[Package]:
    """The packages of one driver version for ``distribution`` (``debian12``, ``ubuntu2204``).

    ``native``: the folder that :func:`fleet.lab.simulation.native.build` made for that version.
    """
    if distribution.startswith("debian"):
        yield from _debian(driver, native)
    else:
        yield from _ubuntu(driver, native)
    yield from _fabric(driver, native)
    if branch(driver) >= 580:
        yield from _pinning(driver)


def drivers_of(distribution: str, drivers: Sequence[str] = DRIVERS) -> Iterator[str]:
    """Those of ``drivers`` that the repository of ``distribution`` holds."""
    return (driver for driver in drivers if distribution in OLD_DRIVERS.get(driver, DISTRIBUTIONS))


def branch(driver: str) -> int:
    """580 of 580.159.03."""
    return int(driver.partition(".")[0])


def _exactly(version: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{name} (= {version})" for name in names)


def _only_one(virtual: str) -> dict[str, tuple[str, ...]]:
    """Of all packages that provide ``virtual``, one can be installed."""
    return {"Provides": (virtual,), "Conflicts": (virtual,), "Replaces": (virtual,)}


def _debian(driver: str, native: Path) -> Iterator[Package]:
    """Debian's names: no branch in them but in the metapackages'."""
    version = f"{driver}-1"
    yield Package("libnvidia-ml1", version, "NVIDIA Management Library", files=contents.nvml(driver, native))
    yield Package("libcuda1", version, "NVIDIA CUDA driver library", files=contents.cuda(driver, native))
    yield Package(
        "nvidia-driver-cuda", version, "NVIDIA driver metapackage (CUDA)",
        {"Depends": (*_exactly(version, "libnvidia-ml1", "libcuda1", "nvidia-persistenced", "nvidia-modprobe"),
                     f"nvidia-kernel-{driver}"),
         "Provides": ("nvidia-smi",), "Replaces": ("nvidia-smi",), "Conflicts": ("nvidia-smi",)},
        contents.smi(native),
    )  # fmt: skip
    yield Package(
        "nvidia-modprobe", version, "utility to load NVIDIA kernel modules", files=contents.modprobe()
    )
    yield Package(
        "nvidia-persistenced", version, "daemon to keep GPUs initialised",
        {"Depends": _exactly(version, "libnvidia-ml1")}, contents.persistenced(driver, native),
        contents.service_scripts("nvidia-persistenced.service", start=True),
    )  # fmt: skip
    yield Package(
        "nvidia-kernel-common", version, "NVIDIA kernel modules: configuration",
        files=contents.kernel_common(), scripts=contents.initramfs_scripts(),
        configuration=("etc/modprobe.d/nvidia.conf",),
    )  # fmt: skip
    yield Package("firmware-nvidia-gsp", version, "NVIDIA GSP firmware", files=contents.firmware(driver))
    for name, other, flavour in (
        ("nvidia-kernel-dkms", "nvidia-kernel-open-dkms", "proprietary"),
        ("nvidia-kernel-open-dkms", "nvidia-kernel-dkms", "open"),
    ):
        if flavour == "open" and branch(driver) < FIRST_OPEN:
            continue
        yield Package(
            name, version, f"NVIDIA {flavour} kernel modules, source for DKMS",
            {"Depends": ("dkms", *_exactly(version, "nvidia-kernel-common", "firmware-nvidia-gsp")),
             "Provides": (f"nvidia-kernel-{driver}",), "Conflicts": (other,), "Replaces": (other,)},
            contents.dkms_source(driver, flavour), contents.dkms_scripts(driver),
        )  # fmt: skip
    yield Package(
        "nvidia-driver", version, "NVIDIA driver metapackage",
        {"Depends": (*_exactly(version, "nvidia-driver-cuda"), f"nvidia-kernel-{driver}")},
    )  # fmt: skip
    yield from _metapackages(
        driver, version, "nvidia-driver", "nvidia-kernel-open-dkms", "nvidia-kernel-dkms"
    )


def _ubuntu(driver: str, native: Path) -> Iterator[Package]:
    """Ubuntu's names: the branch in all of them up to 580, in none since 590."""
    number = branch(driver)
    version = f"{driver}-{'1ubuntu1' if number >= 590 else '0ubuntu1'}"
    suffix = "" if number >= 590 else f"-{number}"
    library, utilities, common = (
        f"libnvidia-compute{suffix}",
        f"nvidia-utils{suffix}",
        f"nvidia-kernel-common{suffix}",
    )
    daemon, firmware = f"nvidia-compute-utils{suffix}", f"nvidia-firmware{suffix}-{driver}"
    virtual = {
        **_only_one("libnvidia-compute-any"),
    }
    yield Package(library, version, "NVIDIA libcompute package", virtual,
                  {**contents.nvml(driver, native), **contents.cuda(driver, native)})  # fmt: skip
    yield Package(
        utilities, version, "NVIDIA driver support binaries",
        {"Depends": _exactly(version, library), **_only_one("nvidia-utils-any")},
        {**contents.smi(native), **contents.modprobe()},
    )  # fmt: skip
    yield Package(
        daemon, version, "NVIDIA compute utilities",
        {"Depends": _exactly(version, library), **_only_one("nvidia-persistenced")},
        contents.persistenced(driver, native), contents.service_scripts("nvidia-persistenced.service", start=True),
    )  # fmt: skip
    yield Package(
        common, version, "Shared files used with the kernel module",
        _only_one("nvidia-kernel-common-any"),
        contents.kernel_common(), contents.initramfs_scripts(), ("etc/modprobe.d/nvidia.conf",),
    )  # fmt: skip
    yield Package(
        firmware, version, "Firmware files used by the kernel module", files=contents.firmware(driver)
    )
    for tail, flavour in (("", "proprietary"), ("-open", "open")):
        dkms = f"nvidia-dkms{suffix}{tail}"
        yield Package(
            dkms, version, f"NVIDIA DKMS package ({flavour} kernel module)",
            {"Depends": ("dkms", *_exactly(version, common, firmware)),
             **_only_one("nvidia-dkms-kernel")},
            contents.dkms_source(driver, flavour), contents.dkms_scripts(driver),
        )  # fmt: skip
        yield Package(
            f"nvidia-driver{suffix}{tail}", version, "NVIDIA driver metapackage",
            {"Depends": _exactly(version, library, utilities, daemon, dkms),
             **_only_one("nvidia-driver-any")},
        )  # fmt: skip
        yield Package(
            f"nvidia-headless{suffix}{tail}", version, "NVIDIA headless metapackage",
            {"Depends": _exactly(version, library, dkms)},
        )  # fmt: skip
    yield from _metapackages(
        driver, version, f"nvidia-driver{suffix}", None, None, f"nvidia-driver{suffix}-open"
    )


def _metapackages(
    driver: str,
    version: str,
    base: str,
    open_modules: str | None,
    closed_modules: str | None,
    open_base: str = "",
) -> Iterator[Package]:
    """nvidia-open and cuda-drivers: the newest of all, and the newest of a branch."""
    number = branch(driver)
    wanted = {
        "nvidia-open": _exactly(version, open_base or base, *([open_modules] if open_modules else [])),
        "cuda-drivers": _exactly(version, base, *([closed_modules] if closed_modules else [])),
    }
    if number < FIRST_OPEN:
        del wanted["nvidia-open"]
    for name, depends in wanted.items():
        yield Package(f"{name}-{number}", version, f"NVIDIA driver, branch {number}", {"Depends": depends})
        yield Package(
            name, version, "NVIDIA driver, newest", {"Depends": _exactly(version, f"{name}-{number}")}
        )


def _fabric(driver: str, native: Path) -> Iterator[Package]:
    """Fabric manager and its company; since 580 without the branch in their names."""
    version, number = f"{driver}-1", branch(driver)
    suffix = "" if number >= 580 else f"-{number}"
    manager = f"nvidia-fabricmanager{suffix}"
    yield Package(
        manager, version, "Fabric Manager for NVSwitch based systems",
        _only_one("nvidia-fabricmanager-any"),
        contents.fabric_manager(driver, native), contents.service_scripts("nvidia-fabricmanager.service", start=False),
        ("usr/share/nvidia/nvswitch/fabricmanager.cfg",),
    )  # fmt: skip
    yield Package(f"libnvidia-nscq{suffix}", version, "NVSwitch configuration and query library")
    yield Package(f"nvidia-imex{suffix}", version, "IMEX service for multi-node NVLink")
    yield Package(f"cuda-drivers-fabricmanager-{number}", version, "Fabric Manager, branch metapackage",
                  {"Depends": _exactly(version, manager)})  # fmt: skip
    if number >= 580:
        yield Package("libnvsdm", version, "NVSwitch device monitoring library")


def _pinning(driver: str) -> Iterator[Package]:
    number = branch(driver)
    yield Package(
        f"nvidia-driver-pinning-{number}", f"{driver}-1", f"Pins the driver to branch {number}",
        {"Provides": ("nvidia-driver-pinning",), "Conflicts": ("nvidia-driver-pinning",)},
        contents.pinning(f"{number}.*"), architecture="all",
    )  # fmt: skip
    yield Package(
        f"nvidia-driver-pinning-{driver}", f"{driver}-1", f"Pins the driver to version {driver}",
        {"Provides": ("nvidia-driver-pinning",), "Conflicts": ("nvidia-driver-pinning",)},
        contents.pinning(f"{driver}-*"), architecture="all",
    )  # fmt: skip


def installed_by_hand(
    distribution: str,
    driver: str,
    *,
    switches: bool,
    flavour: str = "proprietary",
    manager: str | None = None,
) -> list[str]:
    """``NAME=VERSION`` of what somebody installs who follows NVIDIA's guide for ``driver``.

    On Debian the whole set must be named, or apt takes the newest of each. ``switches``: with the fabric manager,
    which is of the version ``manager`` where somebody took another.
    """
    number, is_open = branch(driver), flavour == "open"
    if distribution.startswith("ubuntu"):
        suffix = "" if number >= 590 else f"-{number}"
        tail, opened = "1ubuntu1" if number >= 590 else "0ubuntu1", "-open" if is_open else ""
        named = [
            f"nvidia-driver{suffix}{opened}",
            f"nvidia-dkms{suffix}{opened}",
            f"libnvidia-compute{suffix}",
        ]
        named += [f"nvidia-utils{suffix}", f"nvidia-compute-utils{suffix}", f"nvidia-kernel-common{suffix}"]
        found = [f"{name}={driver}-{tail}" for name in named]
    else:
        modules = "nvidia-kernel-open-dkms" if is_open else "nvidia-kernel-dkms"
        named = ["nvidia-driver", "nvidia-driver-cuda", "libnvidia-ml1", "libcuda1", "nvidia-persistenced"]
        named += ["nvidia-modprobe", modules, "nvidia-kernel-common", "firmware-nvidia-gsp"]
        found = [f"{name}={driver}-1" for name in named]
    return [*found, *([_manager(manager or driver)] if switches else [])]


def _manager(driver: str) -> str:
    return f"nvidia-fabricmanager{'' if branch(driver) >= 580 else f'-{branch(driver)}'}={driver}-1"


def toolkit_by_hand(toolkit: str) -> list[str]:
    """``NAME=VERSION`` of the four packages of a container toolkit."""
    named = ("nvidia-container-toolkit", "nvidia-container-toolkit-base")
    return [f"{name}={toolkit}-1" for name in (*named, "libnvidia-container-tools", "libnvidia-container1")]


def keyring_package(distribution: str, keyring: bytes, url: str) -> Package:
    """``cuda-keyring``: NVIDIA's way to hand out its repository and key as a package."""
    return Package(
        "cuda-keyring", "1.1-1", "GPG keyring for the CUDA repository",
        files=contents.keyring(distribution, keyring, url), architecture="all",
    )  # fmt: skip


def toolkit_packages(versions: Sequence[str] = TOOLKITS) -> Iterator[Package]:
    """The four packages of each version of the container toolkit, and the last nvidia-docker2."""
    for upstream in versions:
        version = f"{upstream}-1"
        yield Package("libnvidia-container1", version, "NVIDIA container runtime library")
        yield Package("libnvidia-container-tools", version, "NVIDIA container runtime library (command-line tools)",
                      {"Depends": _exactly(version, "libnvidia-container1")})  # fmt: skip
        yield Package("nvidia-container-toolkit-base", version, "NVIDIA Container Toolkit Base",
                      files=contents.toolkit_base(upstream),
                      scripts=contents.cdi_refresh_scripts(upstream))  # fmt: skip
        yield Package(
            "nvidia-container-toolkit", version, "NVIDIA Container toolkit",
            {"Depends": _exactly(version, "nvidia-container-toolkit-base", "libnvidia-container-tools")},
            contents.runtime_hook(),
        )  # fmt: skip
    yield Package("nvidia-docker2", "2.14.0-1", "NVIDIA Container Runtime for Docker",
                  {"Depends": ("nvidia-container-toolkit (>= 1.13.0-1)",)}, contents.nvidia_docker2(),
                  configuration=("etc/docker/daemon.json",))  # fmt: skip


def kernel_packages(references: Path) -> Iterator[Package]:
    """Stand-ins for every kernel, its headers and dkms: the real ones are large, and cannot be booted.

    ``references``: the program of :func:`fleet.lab.simulation.native.build_references`.
    """
    yield Package(
        "fleet-lab-gpu", "1.0-1", "What a kernel would count", files=contents.references(references)
    )
    for releases in KERNELS.values():
        for release in releases:
            version = _kernel_version(release)
            yield Package(f"linux-image-{release}", version, f"Linux {release} (stand-in)", {},
                          contents.kernel_image(release), contents.kernel_image_scripts(release))  # fmt: skip
            yield Package(f"linux-headers-{release}", version, f"Header files for Linux {release} (stand-in)", {},
                          contents.kernel_headers(release), contents.kernel_headers_scripts(release))  # fmt: skip
    yield Package(
        "dkms", "9.0-1", "Dynamic Kernel Module System (stand-in)", files=contents.dkms(), architecture="all"
    )


def kernel_metapackages(distribution: str) -> Iterator[Package]:
    """``linux-image-amd64`` and the like, newer than the distribution's own: "the newest kernel" is one of ours."""
    for release in KERNELS[distribution]:
        version, flavour = _kernel_version(release), release.rpartition("-")[2]
        for kind in ("image", "headers"):
            depends = {"Depends": _exactly(version, f"linux-{kind}-{release}")}
            yield Package(
                f"linux-{kind}-{flavour}", version, f"Linux {kind} (metapackage, stand-in)", depends
            )


def _kernel_version(release: str) -> str:
    """6.1.990-1 for 6.1.0-90-amd64: Debian's 6.1 series will not come that far."""
    base, _, rest = release.partition("-")
    number = rest.partition("-")[0]
    if release.endswith("-generic"):
        return f"{base}-{number}.{number}"
    return f"{base.partition('+')[0]}-1" if "+" in base else f"{base.removesuffix('.0')}.9{number}-1"
