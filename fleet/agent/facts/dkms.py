"""What DKMS has built, for which kernel: read from its tree, without running it.

The tree is ``/var/lib/dkms/MODULE/VERSION/{source,build,KERNEL/ARCHITECTURE/module}`` and, for what is
installed, a link ``MODULE/kernel-KERNEL-ARCHITECTURE``. :func:`parse_status` reads what ``dkms status``
prints, in the shapes of version 2 and 3, for whoever has run it. Only "installed" without a remark, for the
kernel that will boot, means that the module is ready.
"""

from __future__ import annotations

import os
import re

from fleet.agent.facts import links

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


TREE = "/var/lib/dkms"
MODULES = "/lib/modules"
PLACES = ("updates/dkms", "updates", "extra", "weak-updates", "kernel/drivers/video", "misc")

ORIGINAL = "original_module exists"
DIFFERS = "WARNING! Diff between built and installed module!"
MISSING = "WARNING! Missing some built modules!"

_DRIVER = re.compile(
    r"nvidia(-(current|open|proprietary|server|srv|tesla|legacy|kernel|\d{3}(xx)?))*(-\d+[\d.]*)?"
)
_LINE = re.compile(
    r"(?P<module>[^\s,/:]+)(?:/|,\s*)(?P<version>[^\s,:]+)"
    r"(?:,\s*(?P<kernel>[^\s,]+),\s*(?P<architecture>[^\s,:]+))?"
    r":\s*(?P<state>[a-z][a-z-]*)\s*(?P<remark>.*)"
)
_STATES = ("added", "built", "installed", "broken")


def is_driver(module: str) -> bool:
    """Whether DKMS's name of a module means NVIDIA's driver: Debian says nvidia-current, others differ.

    nvidia-fs, bbswitch and their like are modules of their own.
    """
    return _DRIVER.fullmatch(module) is not None


def parse_status(text: str) -> Tuple[List[Json], List[str]]:
    """(builds, errors) of what ``dkms status`` writes, both streams; a build as in :func:`read`.

    An error of DKMS is given with the lines that belong to it; it does not hide other modules.
    """
    builds: List[Json] = []
    errors: List[str] = []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("Error!"):
            errors.append(line[len("Error!") :].strip())
            continue
        match = _LINE.fullmatch(line)
        if match is not None and match.group("state") in _STATES:
            found: Json = match.groupdict()
            found["remark"] = ", ".join(re.findall(r"\(([^()]*)\)", found["remark"])) or None
            builds.append(found)
        elif line and errors:
            errors[-1] += " " + line
    return builds, errors


def read(host: Host) -> Tuple[List[Json], List[str]]:
    """(builds, errors) of the tree, of all modules.

    A build is {"module", "version", "kernel" or None, "architecture" or None, "state": added | built |
    installed | broken, "remark" or None}; a version that was built for no kernel has one entry "added".
    """
    builds: List[Json] = []
    errors: List[str] = []
    for module in links.names_in(host, TREE):
        for version in links.names_in(host, "%s/%s" % (TREE, module)):
            place = "%s/%s/%s" % (TREE, module, version)
            if version == "original_module" or os.path.islink(host.path(place)):
                continue  # kept for uninstalling; what is installed for which kernel
            whole = links.exists(host, place + "/source/dkms.conf")
            if not whole:
                errors.append(
                    "Could not locate dkms.conf file. File: %s/source/dkms.conf does not exist." % place
                )
            targets: List[Tuple[Optional[str], Optional[str]]] = [*_targets(host, place)]
            for kernel, architecture in targets or [(None, None)]:
                build: Json = {"module": module, "version": version, "kernel": kernel}
                build.update({"architecture": architecture, "state": "added", "remark": None})
                if kernel is not None and architecture is not None:
                    build["state"], build["remark"] = _state(host, module, version, kernel, architecture)
                if not whole:
                    build["state"] = "broken"
                builds.append(build)
    return builds, errors


def _targets(host: Host, place: str) -> List[Tuple[str, str]]:
    """(kernel, architecture) of each finished build."""
    found = []
    for kernel in links.names_in(host, place):
        if kernel in ("source", "build"):
            continue
        for architecture in links.names_in(host, place + "/" + kernel):
            if links.names_in(host, "%s/%s/%s/module" % (place, kernel, architecture)):
                found.append((kernel, architecture))
    return found


def _state(
    host: Host, module: str, version: str, kernel: str, architecture: str
) -> Tuple[str, Optional[str]]:
    built = "%s/%s/%s/%s/%s/module" % (TREE, module, version, kernel, architecture)
    missing = differs = False
    for name in links.names_in(host, built):
        size = _size(host, built + "/" + name)
        installed = _installed_size(host, kernel, name)
        missing = missing or installed is None
        differs = differs or (installed is not None and installed != size)
    try:
        target = os.readlink(host.path("%s/%s/kernel-%s-%s" % (TREE, module, kernel, architecture)))
        installed_here = target.strip("/").split("/")[-3:] == [version, kernel, architecture]
    except OSError:
        installed_here = not missing  # a DKMS that keeps no link
    if not installed_here:
        return "built", None
    original = "%s/%s/original_module/%s/%s" % (TREE, module, kernel, architecture)
    remarks = [ORIGINAL] if links.is_folder(host, original) else []
    remarks += [MISSING] if missing else [DIFFERS] if differs else []
    return "installed", ", ".join(remarks) or None


def _installed_size(host: Host, kernel: str, name: str) -> Optional[int]:
    for place in PLACES:
        size = _size(host, "%s/%s/%s/%s" % (MODULES, kernel, place, name))
        if size is not None:
            return size
    return None


def _size(host: Host, path: str) -> Optional[int]:
    try:
        return os.stat(host.path(links.resolve(host, path))).st_size
    except OSError:
        return None
