"""What the facts know of the driver, for the resources: one place that asks them, at the moment it matters.

The readers themselves are :mod:`fleet.agent.facts` (``driver``, ``boot_kernels``, ``gpu_holders``,
``gpus``, ``secure_boot``, ``cdi``).
They are imported when asked for: a plan without a driver step pays for none of them.
"""

from __future__ import annotations

import importlib
import os

from fleet.agent.machine import BOOT_ID
from fleet.agent.resources.base import StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

OSRELEASE = "/proc/sys/kernel/osrelease"


def _facts(name: str) -> Any:
    return importlib.import_module("fleet.agent.facts." + name)


def loaded(host: Host) -> Optional[Json]:
    """The driver in the kernel now, {"version", "flavour", "architecture"}; None where there is none."""
    driver = _facts("driver")
    found: Optional[Json] = driver.loaded(host, driver.loaded_modules(host))
    return found


def on_disk(host: Host, release: str) -> Optional[Json]:
    """The nvidia module that modprobe would take for a kernel: {"path", "version", "flavour", "signer"}."""
    modules: List[Json] = _facts("boot_kernels").kernels(host, release, None, set())[0]["modules"]
    return modules[0] if modules else None


def holders(host: Host) -> List[Json]:
    """Who has a GPU's device file open or mapped, fleet's own processes left out.

    StepFailed where some process may not be looked at: nothing is unloaded on half an answer.
    """
    found, complete = _facts("gpu_holders").holders(host)
    if not complete:
        raise StepFailed(
            "cannot tell who uses the GPUs: some processes of this host may not be looked at",
            "run as root, without a security module that hides processes",
        )
    return list(found)


def gpus(host: Host) -> List[Json]:
    """The GPUs on the PCI bus: {"address", "device_id", "driver", "uuid", "minor", …}, by address."""
    found: List[Json] = _facts("gpus").collect(host)["gpus"]
    return found


def kernels(host: Host) -> List[str]:
    """The releases of the running kernel and of the one that boots next, each once."""
    kernel: Dict[str, Any] = _facts("kernel").collect(host)["kernel"]
    found = [kernel["release"], kernel.get("next_release")]
    return [release for place, release in enumerate(found) if release and release not in found[:place]]


def has_headers(host: Host, release: str) -> bool:
    """Whether modules can be built for a kernel."""
    return bool(_facts("links").is_folder(host, "/lib/modules/%s/build" % release))


def has_module(host: Host, release: str) -> bool:
    """Whether a kernel has an nvidia module, of whatever version."""
    return bool(_facts("boot_kernels").driver_files(host, release))


def initramfs_lacks(host: Host, release: str) -> List[str]:
    """Where nouveau and nova are forbidden: the files that say so and are newer than a kernel's initramfs."""
    modprobe = _facts("modprobe")
    if not modprobe.rivals_blocked(host):
        return []
    newer = _facts("boot_kernels").initramfs(host, release)["older_than"]
    return [path for path in newer if modprobe.forbids_rival(host, path)]


def signing_key(host: Host) -> Optional[str]:
    """The certificate of the key that DKMS signs modules with, where there is one."""
    found: Optional[str] = _facts("secure_boot").signing_key(host)
    return found


def enrolment_pending(host: Host) -> bool:
    """Whether a key waits to be enrolled, which somebody at the console must do at the next boot."""
    return bool(_facts("secure_boot").read(host).get("enrolment_pending"))


def specification(text: str) -> Optional[Json]:
    """A CDI specification, {"kind", "devices", "driver_version"}; None for a text that is none of NVIDIA's."""
    try:
        found: Json = _facts("cdi").parse(text)
    except ValueError:
        return None
    return found if str(found["kind"]).startswith("nvidia.com/") else None


def running_kernel(host: Host) -> str:
    """The running kernel's release."""
    return _setting(host, OSRELEASE)


def boot_id(host: Host) -> str:
    """The id of this boot; "" where it cannot be read."""
    return _setting(host, BOOT_ID)


def _setting(host: Host, path: str) -> str:
    """A kernel setting; "" where it cannot be read. In small pieces: the kernel refuses large reads of these."""
    try:
        with open(host.path(path), encoding="ascii", errors="replace") as file:
            return file.read(256).strip()
    except OSError:
        return ""


def is_loaded(host: Host, name: str) -> bool:
    """Whether a module is in the kernel, loaded or built in."""
    return os.path.isdir(_folder(host, name))


def is_builtin(host: Host, name: str) -> bool:
    """Whether it is a part of the kernel itself: those have a folder without ``initstate``."""
    return is_loaded(host, name) and not os.path.exists(_folder(host, name) + "/initstate")


def references(host: Host, name: str) -> Optional[int]:
    """How often a loaded module is in use, by modules on top of it, open devices and others."""
    try:
        with open(_folder(host, name) + "/refcnt", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def on_top(host: Host, name: str) -> List[str]:
    """The modules that use this one."""
    try:
        return sorted(os.listdir(_folder(host, name) + "/holders"))
    except OSError:
        return []


def kernel_name(name: str) -> str:
    """``nvidia-uvm`` is ``nvidia_uvm`` to the kernel."""
    return name.replace("-", "_")


def _folder(host: Host, name: str) -> str:
    return host.path("/sys/module/" + kernel_name(name))
