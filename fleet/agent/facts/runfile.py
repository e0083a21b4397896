"""Whether a driver came by NVIDIA's .run file, past the package manager: packages over it mix two drivers."""

from __future__ import annotations

import re

from fleet.agent.facts import links, text_or_empty

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


UNINSTALLERS = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
BACKUP_LOG = "/var/lib/nvidia/log"  # what the installer would put back; its first line is the version
LOG = "/var/log/nvidia-installer.log"
_DPKG_INFO = "/var/lib/dpkg/info"
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")


def logged_version(log: str) -> Optional[str]:
    """The driver's version in the text of nvidia-installer.log."""
    match = re.search(r"^installer version: *(\d+\.\d+(?:\.\d+)?)", log, re.MULTILINE)
    return match.group(1) if match else None


def read(host: Host, library: Optional[str]) -> Json:
    """The ``runfile`` part. ``library``: the path of the driver's library, links followed, or None."""
    evidence = None
    for path in UNINSTALLERS:
        if links.exists(host, path) and not _owned(host, path):
            evidence = path
            break
    if evidence is None:
        logs = [path for path in (BACKUP_LOG, LOG) if links.exists(host, path)]
        # The logs stay after the driver is gone, or packages have taken its place.
        if not logs or library is None or _owned(host, library):
            return {"present": False, "version": None, "evidence": None}
        evidence = "%s, and no package owns %s" % (logs[0], library)
    version = _version(host)
    part: Json = {"present": True, "version": version, "evidence": evidence}
    if version is None:
        part["version_reason"] = "not_supported"
    return part


def _version(host: Host) -> Optional[str]:
    first = text_or_empty(host, BACKUP_LOG, 1 << 16).split("\n", 1)[0].strip()
    return first if _VERSION.fullmatch(first) else logged_version(text_or_empty(host, LOG, 1 << 16))


def _owned(host: Host, path: str) -> bool:
    """Whether one of NVIDIA's packages holds ``path``, by dpkg's lists; without dpkg nothing is claimed."""
    lines = {path.encode()}
    if path.startswith("/usr/lib/"):  # packages from before the merge of /usr
        lines.add(path[len("/usr") :].encode())
    for name in links.names_in(host, _DPKG_INFO):
        if not name.endswith(".list") or ("nvidia" not in name and not name.startswith("libcuda")):
            continue
        try:
            with open(host.path(_DPKG_INFO + "/" + name), "rb") as stream:
                if not lines.isdisjoint(stream.read().split(b"\n")):
                    return True
        except OSError:
            continue
    return False
