"""The facts of the machine that a row of the truth table means: a healthy host, and what the row says of it.

The healthy host has Debian 13, a driver that is supported and patched, Docker Engine, a container toolkit and a runc
without known weaknesses, and a CDI specification of the loaded driver. A row changes it by the names explained in
``truth.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fleet.catalogue.catalogue import load
from fleet.core.errors import InputError
from tests.facts import healthy_gpu_facts
from tests.paths import set_path

Json = dict[str, Any]

DRIVER, DOCKER, TOOLKIT, RUNC = "580.178.04", "29.7.2", "1.20.0", "1.4.3"
#: ``(id, version_id, codename)`` of os-release.
SYSTEMS = {
    "debian-11": ("debian", "11", "bullseye"),
    "debian-12": ("debian", "12", "bookworm"),
    "debian-13": ("debian", "13", "trixie"),
    "ubuntu-24.04": ("ubuntu", "24.04", "noble"),
}
_DRIVER_PACKAGES = (
    "firmware-nvidia-gsp", "libcuda1", "libnvidia-ml1", "nvidia-driver", "nvidia-driver-cuda", "nvidia-kernel-common",
    "nvidia-kernel-open-dkms", "nvidia-modprobe", "nvidia-open", "nvidia-open-580", "nvidia-persistenced",
)  # fmt: skip


def facts_of(asked: Mapping[str, Any]) -> Json:
    """A document fleet.facts/1 of the machine that a row asks about."""
    facts = healthy_gpu_facts()
    host: Mapping[str, Any] = asked["host"]
    _system(facts, host.get("os", "debian-13"))
    _packages(facts)
    _gpus(facts, asked["gpu"])
    driver = asked.get("driver", DRIVER)
    _driver(facts, driver, asked.get("modules", "open"))
    _containers(facts, driver)
    _without_neighbours(facts)
    for name, value in host.items():
        _CHANGES[name](facts, value)
    return facts


def _system(facts: Json, system: str) -> None:
    os_id, version, codename = SYSTEMS[system]
    facts["os"].update(id=os_id, version_id=version, codename=codename, name=f"{os_id} {version}")


def _packages(facts: Json) -> None:
    """The engine as Docker packages it; fabric manager only where a row has it."""
    installed = facts["packages"]["installed"]
    for name in ("containerd", "docker.io", "runc", "nvidia-fabricmanager"):
        installed.pop(name, None)
    facts["packages"]["held"] = []


def _gpus(facts: Json, asked: str | list[str]) -> None:
    facts["nvswitches"] = []
    facts["gpus"] = [
        _gpu(place, name) for place, name in enumerate(asked if isinstance(asked, list) else [asked])
    ]


def _gpu(place: int, name: str) -> Json:
    try:
        known = load().gpus.find(name)
        device, nvml_name = known.pci[0].device, known.nvml_name
    except InputError:  # a PCI id that the catalogue does not have
        device, nvml_name = name.removeprefix("10de:"), None
    return {
        "address": f"0000:{0x1B + 16 * place:02x}:00.0",
        "vendor_id": "10de",
        "device_id": device,
        "subsystem_vendor_id": "10de",
        "subsystem_id": "16c1",
        "class": "0302",
        "driver": "nvidia",
        "numa_node": 0,
        "uuid": f"GPU-00000000-0000-4000-8000-{place:012d}",
        "name": nvml_name,
        "minor": place,
    }


def _driver(facts: Json, version: str, flavour: str) -> None:
    """Loaded, on disk, in packages and in DKMS one driver."""
    driver = facts["driver"]
    driver["loaded"] = {"version": version, "flavour": flavour, "architecture": "x86_64"}
    driver["library_version"] = version
    for module in driver["modules"].values():
        module["version"] = version
    for kernel in driver["kernels"]:
        kernel["modules"][0].update(version=version, flavour=flavour)
    for module in driver["dkms"]:
        module["version"] = version
    driver["fabric_manager"] = {"version": None, "version_reason": "not_supported", "active": False}
    driver["holders"] = []
    for name in _DRIVER_PACKAGES:
        facts["packages"]["installed"][name] = f"{version}-1"


def _containers(facts: Json, driver: str) -> None:
    _docker(facts, DOCKER)
    _toolkit(facts, TOOLKIT)
    _runc(facts, RUNC)
    facts["engine"]["cdi"] = True
    specification = facts["container_toolkit"]["cdi"]["specifications"][0]
    uuids = [gpu["uuid"] for gpu in facts["gpus"]]
    specification.update(devices=[*map(str, range(len(uuids))), *uuids, "all"], driver_version=driver)


def _without_neighbours(facts: Json) -> None:
    facts["interconnect"] = {
        "ports": [], "ofed_version": None, "doca_version": None, "nvidia_fs_version": None, "gdrcopy_version": None,
        "gpu_direct": {"nvidia_peermem": False, "dma_buf": True}, "iommu": {"groups": 0, "translating": False},
        "acs_redirect": [], "kernel_command_line": "quiet",
    }  # fmt: skip


def _docker(facts: Json, version: str | None) -> None:
    installed = facts["packages"]["installed"]
    for name in ("docker-ce", "docker-ce-cli", "containerd.io", "docker.io"):
        installed.pop(name, None)
    if version is None:
        facts["engine"] = {**dict.fromkeys(facts["engine"]), "present": False, "responding": False, "snap": False,
                           "podman_docker": False, "address_pools": [],
                           "daemon_json": {"exists": False, "parsed": None, "error": None}}  # fmt: skip
        return
    facts["engine"]["version"] = version.partition("-")[0]
    if "+" in version:
        installed["docker.io"] = version
    else:
        installed["docker-ce"] = installed["docker-ce-cli"] = f"5:{version}-1~debian.13~trixie"
        installed["containerd.io"] = "2.3.5-1~debian.13~trixie"


def _toolkit(facts: Json, version: str | None) -> None:
    toolkit = facts["container_toolkit"]
    names = [name for name in facts["packages"]["installed"] if "container" in name and "nvidia" in name]
    for name in names:
        facts["packages"]["installed"].pop(name)
    if version is None:
        toolkit.update(version=None, packages={}, runtime_hook=None, runtime=None, mode=None)
        toolkit["cdi"] = {"specifications": [], "refresh_unit": False}
        facts["engine"]["runtimes"] = ["runc"]
        return
    toolkit["version"] = version
    toolkit["packages"] = dict.fromkeys(toolkit["packages"], f"{version}-1")
    facts["packages"]["installed"].update(toolkit["packages"])


def _cdi_by_hand(facts: Json, engine_cdi: bool) -> None:
    """No toolkit, and a specification that somebody wrote; ``engine_cdi``: whether the engine reads it."""
    specifications = facts["container_toolkit"]["cdi"]["specifications"]
    _toolkit(facts, None)
    facts["container_toolkit"]["cdi"]["specifications"] = specifications
    facts["engine"]["cdi"] = engine_cdi


def _runc(facts: Json, version: str) -> None:
    facts["packages"]["installed"]["runc"] = version


def _no_driver(facts: Json, which: str | None) -> None:
    """Packages removed, nothing loaded, no module for any kernel; or all there and ``not`` loaded."""
    driver = facts["driver"]
    if which == "not":
        driver.update(loaded=None, modules={})
        return
    driver.update(
        loaded=None, modules={}, library_version=None, library_version_reason="not_supported", dkms=[]
    )
    for kernel in driver["kernels"]:
        kernel["modules"] = []
    for name in _DRIVER_PACKAGES:
        facts["packages"]["installed"].pop(name)
    for gpu in facts["gpus"]:
        gpu.update(driver=None, uuid=None, name=None, minor=None)
    facts["container_toolkit"]["cdi"]["specifications"] = []


def _held(facts: Json, which: str) -> None:
    held = {"all": _DRIVER_PACKAGES, "some": _DRIVER_PACKAGES[:4], "none": ()}[which]
    facts["packages"]["held"] = list(held)


def _next_kernel(facts: Json, which: str) -> None:
    (running,) = facts["driver"]["kernels"]
    coming = {**running, "release": "6.12.57+deb13-amd64", "running": False, "next": True}
    if which == "without modules":
        coming.update(modules=[], headers=False, out_of_tree_missing=["nvidia"])
    running["next"] = False
    facts["driver"]["kernels"] = [running, coming]
    facts["kernel"]["next_release"] = coming["release"]


def _fabric_manager(facts: Json, which: str | None) -> None:
    """A version, which runs; ``stopped``; None: not installed."""
    version = facts["driver"]["loaded"]["version"] if which == "stopped" else which
    facts["driver"]["fabric_manager"] = {"version": version, "active": which not in (None, "stopped")}
    if version is None:
        facts["driver"]["fabric_manager"]["version_reason"] = "not_supported"
    else:
        facts["packages"]["installed"]["nvidia-fabricmanager"] = f"{version}-1"


def _nvswitches(facts: Json, devices: list[str]) -> None:
    facts["nvswitches"] = [
        {"address": f"0000:{7 + place:02x}:00.0", "device_id": device, "driver": "nvidia-nvswitch"}
        for place, device in enumerate(devices)
    ]


def _infiniband(facts: Json, _: bool) -> None:
    facts["interconnect"]["ports"] = healthy_gpu_facts()["interconnect"]["ports"]
    facts["interconnect"]["ofed_version"] = "24.10-1.1.4"


def _peermem(facts: Json, which: bool | str) -> None:
    """Whether nvidia_peermem is loaded, or of which version."""
    facts["interconnect"]["gpu_direct"]["nvidia_peermem"] = bool(which)
    if isinstance(which, str):
        facts["driver"]["modules"]["nvidia_peermem"] = {"version": which, "references": 0}


def _unknown_flavour(facts: Json, _: None) -> None:
    facts["driver"]["loaded"].update(flavour=None, flavour_reason="permission")


def _unknown(facts: Json, groups: list[str]) -> None:
    for group in groups:
        facts[group], facts[f"{group}_reason"] = None, "permission"


def _distribution_containerd(facts: Json, version: str) -> None:
    """containerd of the distribution in place of Docker's."""
    facts["packages"]["installed"].pop("containerd.io", None)
    facts["packages"]["installed"]["containerd"] = version


def _sets(path: str) -> Callable[[Json, Any], None]:
    return lambda facts, value: set_path(facts, path, value)


def _installs(package: str) -> Callable[[Json, Any], None]:
    return lambda facts, value: facts["packages"]["installed"].update({package: str(value)})


_CHANGES: Mapping[str, Callable[[Json, Any], None]] = {
    "os": lambda facts, value: None,
    "docker": _docker,
    "toolkit": _toolkit,
    "runc": _runc,
    "podman": _installs("podman"),
    "containerd": _installs("containerd.io"),
    "distribution_containerd": _distribution_containerd,
    "default_runtime": _sets("engine.default_runtime"),
    "no_cdi": _sets("container_toolkit.cdi.specifications"),
    "mode": _sets("container_toolkit.mode"),
    "architecture": _sets("kernel.architecture"),
    "kubelet": _sets("kubelet.active"),
    "gpu_operator": _sets("gpu_operator.active"),
    "loaded": _no_driver,
    "flavour": _unknown_flavour,
    "hook": _sets("container_toolkit.runtime_hook"),
    "engine_cdi": _sets("engine.cdi"),
    "library": _sets("driver.library_version"),
    "held": _held,
    "next_kernel": _next_kernel,
    "nvidia_docker2": _sets("container_toolkit.nvidia_docker2"),
    "legacy_sources": _sets("container_toolkit.legacy_sources"),
    "cdi_by_hand": _cdi_by_hand,
    "cdi_driver": _sets("container_toolkit.cdi.specifications.0.driver_version"),
    "fabric_manager": _fabric_manager,
    "nvswitches": _nvswitches,
    "infiniband": _infiniband,
    "peermem": _peermem,
    "dma_buf": _sets("interconnect.gpu_direct.dma_buf"),
    "acs": _sets("interconnect.acs_redirect"),
    "iommu": _sets("interconnect.iommu.translating"),
    "unknown": _unknown,
}
