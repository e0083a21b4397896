"""What the running kernel, and the one of the next boot, have for the driver: headers, module, initramfs.

A host runs well until it boots a kernel that has no module. All of it is visible before, in
/lib/modules/RELEASE and /boot. modules.dep is not asked: DKMS may be about to write it. Next: :mod:`.modinfo`.
"""

from __future__ import annotations

import os
import re

from fleet.agent.facts import links, modprobe

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, List, Optional, Set

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


MODULES = "/lib/modules"
# Where modules from outside the kernel go, in the order in which modprobe prefers them (depmod.d(5)).
OUT_OF_TREE = ("updates", "extra", "weak-updates")
INITRAMFS = ("/boot/initrd.img-%s", "/boot/initramfs-%s.img", "/boot/initrd-%s")

# Debian's files are called after the branch (nvidia-current.ko); the module in them is nvidia all the same.
_NVIDIA = re.compile(r"nvidia(-(current|open|tesla|legacy|\d{3}(xx)?))*\.ko(\.xz|\.zst|\.gz)?")
_MODULE_FILE = re.compile(r"(.+)\.ko(\.xz|\.zst|\.gz)?")
# What the driver itself is made of: whether a kernel has that is said by its "modules".
_DRIVER_PARTS = frozenset("nvidia nvidia_uvm nvidia_modeset nvidia_drm".split())


def kernels(host: Host, running: str, following: Optional[str], loaded: Set[str]) -> List[Json]:
    """The ``kernels`` part: an entry for the running release, and one for the ``following`` boot's if that is
    another. ``loaded``: the names of the modules in memory."""
    entries = []
    for release in [running] if following in (None, running) else [running, str(following)]:
        entry: Json = {"release": release, "running": release == running, "next": release == following}
        entry["headers"] = links.is_folder(host, "%s/%s/build" % (MODULES, release))
        entry["modules"] = [_described(host, path) for path in driver_files(host, release)]
        entry["initramfs"] = initramfs(host, release)
        entry["out_of_tree_missing"] = missing(host, running, release, loaded)
        entries.append(entry)
    return entries


def driver_files(host: Host, release: str) -> List[str]:
    """The files of the module nvidia for this kernel; modprobe takes the first."""
    base = "%s/%s" % (MODULES, release)
    found = [path for place in OUT_OF_TREE for path in _files_under(host, base + "/" + place)]
    kernel = base + "/kernel"
    # Ubuntu's precompiled ones are in kernel/nvidia-580-open; a .run file installs among the drivers.
    folders = [kernel + "/" + name for name in links.names_in(host, kernel) if name.startswith("nvidia")]
    for folder in [*folders, kernel + "/drivers/video", base + "/misc"]:
        found += [folder + "/" + name for name in links.names_in(host, folder)]
    return [path for path in found if _NVIDIA.fullmatch(os.path.basename(path))]


def _files_under(host: Host, path: str) -> List[str]:
    """The files below ``path``, as paths of the host; links to files count, links to folders are not entered."""
    found = []
    real = host.path(path)
    for folder, _, names in os.walk(real):
        found += [path + folder[len(real) :] + "/" + name for name in names]
    return sorted(found)


def _described(host: Host, path: str) -> Json:
    from fleet.agent.facts import modinfo

    entry: Json = {"name": "nvidia", "path": path, "version": None, "flavour": None, "signer": None}
    fields = modinfo.fields_of(host, links.resolve(host, path))
    if fields is None:
        entry.update(dict.fromkeys(("version_reason", "flavour_reason", "signer_reason"), "error"))
        return entry
    entry["version"] = fields.get("version")
    entry["flavour"] = modinfo.flavour(fields.get("license"))
    entry["signer"] = fields.get("signer") or None
    for key in ("version", "flavour"):
        if entry[key] is None:
            entry[key + "_reason"] = "not_supported"
    return entry


def initramfs(host: Host, release: str) -> Json:
    """{"path" or None, "exists", "older_than": the modprobe.d files that are newer}."""
    for pattern in INITRAMFS:
        path = pattern % release
        try:
            made = os.stat(host.path(path)).st_mtime_ns
        except OSError:
            continue
        return {"path": path, "exists": True, "older_than": modprobe.newer_than(host, made)}
    return {"path": None, "exists": False, "older_than": []}


def missing(host: Host, running: str, release: str, loaded: Set[str]) -> List[str]:
    """The modules in memory that were built outside of the running kernel, and not for ``release``.

    One that the kernel brings itself (mlx5_core) counts, too, where what runs now is another's.
    """
    if release == running:
        return []
    here = loaded.intersection(_out_of_tree(host, running)) - _DRIVER_PARTS
    return sorted(here.difference(_out_of_tree(host, release))) if here else []


def _out_of_tree(host: Host, release: str) -> Dict[str, str]:
    """name in the kernel's spelling -> path of the modules built outside of a kernel."""
    found: Dict[str, str] = {}
    for place in OUT_OF_TREE:
        for path in _files_under(host, "%s/%s/%s" % (MODULES, release, place)):
            match = _MODULE_FILE.fullmatch(os.path.basename(path))
            if match is not None:
                found.setdefault(match.group(1).replace("-", "_"), path)
    return found
