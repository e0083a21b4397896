"""apt's own log of its transactions: who changed the driver's libraries, and when."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, Iterator, List, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


CURRENT = "/var/log/apt/history.log"
ROTATED = "/var/log/apt/history.log.1.gz"

_DRIVER = ("libnvidia", "libcuda1", "nvidia-")
_CONTAINERS = ("libnvidia-container", "nvidia-container", "nvidia-docker")
_LIBRARY = re.compile(r"libnvidia.*|libcuda1|nvidia-\d+.*")  # nvidia-390 had the libraries in it
_PACKAGE = re.compile(r"(?P<name>[^\s:,()]+)(?::[^\s()]+)? \((?P<versions>[^()]*)\)")
_ACTIONS = ("Install", "Upgrade", "Downgrade", "Reinstall", "Remove", "Purge")


def parse(text: str) -> Iterator[Dict[str, str]]:
    """The transactions of a log, oldest first, as field -> text."""
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.strip().splitlines() if ": " in line)
        if "Start-Date" in fields:
            yield fields


def driver_changes(fields: Dict[str, str]) -> List[Json]:
    """[{"name", "before" or None, "after" or None}] of the driver's packages in one transaction, by name."""
    found: List[Json] = []
    for action in _ACTIONS:
        for match in _PACKAGE.finditer(fields.get(action, "")):
            name = match.group("name")
            if not name.startswith(_DRIVER) or name.startswith(_CONTAINERS):
                continue
            versions = [version.strip() for version in match.group("versions").split(",")]
            versions = [version for version in versions if version and version != "automatic"]
            change: Json = {"name": name, "before": None, "after": None}
            if action in ("Remove", "Purge"):
                change["before"] = versions[0] if versions else None
            elif action in ("Install", "Reinstall"):
                change["after"] = versions[0] if versions else None
            else:
                change["before"], change["after"] = [*versions, None, None][:2]
            found.append(change)
    return sorted(found, key=lambda change: str(change["name"]))


def last_change(text: str) -> Optional[Json]:
    """{"command", "at", "packages"} of the last transaction that changed driver libraries; None without one.

    ``at`` is the host's local time, as apt writes it: ``2025-04-24T06:50:54``.
    """
    for fields in reversed(list(parse(text))):
        packages = driver_changes(fields)
        if any(_LIBRARY.fullmatch(change["name"]) for change in packages):
            at = "T".join(fields["Start-Date"].split()) or None
            return {"command": fields.get("Commandline"), "at": at, "packages": packages}
    return None


def driver_changed_by(host: Host) -> Optional[Json]:
    """:func:`last_change` of this host's log and, where that says nothing, of the last one rotated away."""
    try:
        with open(host.path(CURRENT), encoding="utf-8", errors="replace") as stream:
            found = last_change(stream.read())
    except OSError:
        found = None
    return found or last_change(_rotated(host))


def _rotated(host: Host) -> str:
    import gzip
    import zlib

    try:
        with gzip.open(host.path(ROTATED), "rb") as stream:
            return stream.read(1 << 26).decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error):
        return ""
