"""NVIDIA's driver: what is loaded, what is on disk for which kernel, which library programs get, who uses it.

The three versions (module in memory, module file, library) are given apart: an upgrade under running jobs
makes them differ, and a reboot heals that only when the file agrees with the library. Next, by what is
asked: :mod:`.boot_kernels`, :mod:`.dkms`, :mod:`.gpu_holders`, :mod:`.runfile`, :mod:`.secure_boot`.
"""

from __future__ import annotations

import os
import re

from fleet.agent.facts import boot_kernels, kernel, links, modprobe, read_text, secure_boot, services
from fleet.agent.package_manager.dpkg_version import split

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, Iterator, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("driver", "secure_boot")

PROC_VERSION = "/proc/driver/nvidia/version"
SYS_MODULE = "/sys/module"
LIBRARY = "libnvidia-ml.so"
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)
MOUNTED = "/usr/local/nvidia/lib64"  # into containers of GPU clouds; programs get it by LD_LIBRARY_PATH
RIVALS = ("nouveau", "nova_core", "nova")
# Without one of these no .run file was ever here; :mod:`.runfile` need not be loaded.
RUNFILE_TRACES = (
    "/usr/bin/nvidia-uninstall",
    "/usr/bin/nvidia-installer",
    "/var/lib/nvidia/log",
    "/var/log/nvidia-installer.log",
)

_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
_ARCHITECTURES = ("x86_64", "aarch64", "ppc64le", "i386", "x86", "arm", "arm64", "armv7l")


def parse_version(text: str) -> Optional[Json]:
    """{"version", "flavour", "architecture"} of /proc/driver/nvidia/version; None when it names no version.

    Wording, order and spaces changed over the branches, so only words are looked at, and only those of the
    first line: the second has the compiler's version.
    """
    lines = [line for line in text.splitlines() if line.startswith("NVRM version:")]
    words = lines[0].split() if lines else []
    versions = [word for word in words if _VERSION.fullmatch(word)]
    if not versions:
        return None
    part: Json = {"version": versions[0], "flavour": "open" if "Open" in words else "proprietary"}
    part["architecture"] = next((word for word in words if word in _ARCHITECTURES), None)
    if part["architecture"] is None:
        part["architecture_reason"] = "not_supported"
    return part


def loaded_modules(host: Host) -> Dict[str, Json]:
    """The ``modules`` part: name -> {"version", "references"} of NVIDIA's and its rivals' in memory."""
    found: Dict[str, Json] = {}
    for name in links.names_in(host, SYS_MODULE):
        if not (name.startswith("nvidia") or name in RIVALS) or not _in_memory(host, name):
            continue
        version = _line(host, "%s/%s/version" % (SYS_MODULE, name))
        references = _line(host, "%s/%s/refcnt" % (SYS_MODULE, name)) or ""
        found[name] = {
            "version": version,
            "references": int(references) if references.isdigit() else None,
        }
        for key in ("version", "references"):
            if found[name][key] is None:
                found[name][key + "_reason"] = "not_supported"
    return found


def _in_memory(host: Host, name: str) -> bool:
    """Modules built into the kernel have a folder too, when they have parameters, but no state."""
    return os.path.exists(host.path("%s/%s/initstate" % (SYS_MODULE, name)))


def loaded(host: Host, modules: Dict[str, Json]) -> Optional[Json]:
    """The ``loaded`` part: by the driver's own word, else by the kernel's record of the module."""
    part = parse_version(_line(host, PROC_VERSION, whole=True) or "")
    if part is not None:
        return part
    version = modules.get("nvidia", {}).get("version")
    if version is None:
        return None
    taint = _line(host, SYS_MODULE + "/nvidia/taint")
    part = {"version": version, "flavour": None, "architecture": None, "architecture_reason": "not_supported"}
    if taint is None:
        part["flavour_reason"] = "not_supported"
    else:
        part["flavour"] = "proprietary" if "P" in taint else "open"
    return part


def library_path(host: Host) -> Optional[str]:
    """The file behind libnvidia-ml.so.1, links followed; None where there is none."""
    name = library_name(host)
    return links.resolve(host, name) if name is not None else None


def library_name(host: Host) -> Optional[str]:
    """The path of libnvidia-ml.so.1 where the dynamic linker would look for it, else where a container gets it
    mounted (:data:`MOUNTED`)."""
    for folder in (*LIBRARY_FOLDERS, *_linked_folders(host), MOUNTED):
        name = "%s/%s.1" % (folder, LIBRARY)
        if links.exists(host, name):
            return name
    return None


def _linked_folders(host: Host) -> Iterator[str]:
    for name in links.names_in(host, "/etc/ld.so.conf.d"):
        for folder in (_line(host, "/etc/ld.so.conf.d/" + name, whole=True) or "").split("\n"):
            if folder.startswith("/"):
                yield folder.strip().rstrip("/")


def version_in_name(path: Optional[str]) -> Optional[str]:
    """580.159.03 of ``…/libnvidia-ml.so.580.159.03``; None when the name does not hold a full version."""
    version = os.path.basename(path or "").partition(LIBRARY + ".")[2]
    return version if _VERSION.fullmatch(version) else None


def fabric_manager_version(installed: Dict[str, str]) -> Optional[str]:
    """The upstream version of the fabric manager among ``installed`` packages; up to 575 its name has the
    branch in it."""
    for name in sorted(installed):
        if re.fullmatch(r"nvidia-fabric-?manager(-\d+)?", name):
            return split(installed[name])[1]
    return None


def collect(host: Host) -> Json:
    """The ``driver`` and ``secure_boot`` parts."""
    modules = loaded_modules(host)
    library = library_path(host)
    library_version = version_in_name(library)
    boots = kernel.collect(host)["kernel"]
    names = {
        name
        for name in links.names_in(host, SYS_MODULE)
        if boots["next_release"] not in (None, boots["release"]) and _in_memory(host, name)
    }
    part: Json = {
        "loaded": loaded(host, modules),
        "modules": modules,
        "kernels": boot_kernels.kernels(host, boots["release"], boots["next_release"], names),
        "dkms": [],
        "dkms_errors": [],
        "library_version": library_version,
        "nouveau_blocked": modprobe.rivals_blocked(host),
        "changed_by": None,
        "holders": [],
        "runfile": {"present": False, "version": None, "evidence": None},
    }
    if library is not None and library_version is None:
        part["library_version_reason"] = "not_supported"
    part.update(_services(host, bool(modules)))
    part.update(_optional(host, part, library))
    return {"driver": part, "secure_boot": secure_boot.read(host)}


def _services(host: Host, any_loaded: bool) -> Json:
    """The ``fabric_manager`` and ``persistence_daemon`` parts; neither lives without a module in memory."""
    present = os.path.isdir(host.path("/run/systemd/system"))
    slice_path = services.system_slice(read_text(host, "/proc/1/cgroup")) if present else None

    def active(unit: str, command: str) -> bool:
        # Without systemd every process would be looked at.
        wanted = slice_path is not None or any_loaded
        return wanted and bool(services.activity(host, slice_path, (unit,), (command,))["active"])

    installed = {
        name: host.dpkg.installed(name)
        for name in host.dpkg.names()
        if name.startswith("nvidia-fabric") and host.dpkg.installed(name)
    }
    persistence: Json = {"active": active("nvidia-persistenced", "nvidia-persiste")}
    if any_loaded and slice_path is not None and not persistence["active"]:
        persistence.update(services.why_inactive(host, "nvidia-persistenced.service"))
    return {
        "fabric_manager": {
            "version": fabric_manager_version(installed),
            "active": active("nvidia-fabricmanager", "nv-fabricmanager"),
        },
        "persistence_daemon": persistence,
    }


def _optional(host: Host, part: Json, library: Optional[str]) -> Json:
    """What needs more reading, of hosts that have something to be read only."""
    found: Json = {}
    if any(os.path.lexists(host.path(path)) for path in RUNFILE_TRACES):
        from fleet.agent.facts import runfile

        found["runfile"] = runfile.read(host, library)
    if os.path.isdir(host.path("/var/lib/dkms")):
        from fleet.agent.facts import dkms

        builds, found["dkms_errors"] = dkms.read(host)
        found["dkms"] = [build for build in builds if dkms.is_driver(build["module"])]
    if any(name.startswith("nvidia") for name in links.names_in(host, "/dev")):
        from fleet.agent.facts import gpu_holders

        found["holders"], complete = gpu_holders.holders(host)
        if not complete:
            found["holders"], found["holders_reason"] = None, "permission"
    versions = (part["loaded"] or {}).get("version"), part["library_version"]
    if None not in versions and versions[0] != versions[1]:
        from fleet.agent.facts import apt_history

        found["changed_by"] = apt_history.driver_changed_by(host)
    return found


def _line(host: Host, path: str, *, whole: bool = False) -> Optional[str]:
    """A small file's text, its first line if not ``whole``; None when it is absent or empty."""
    try:
        text = read_text(host, path, 1 << 16)
    except OSError:
        return None
    return (text if whole else text.split("\n", 1)[0]) or None
