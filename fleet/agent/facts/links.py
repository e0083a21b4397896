"""Where a path of the host leads when links are followed, also for a host that is a folder.

A driver library, a kernel's headers and DKMS's sources are reached by links, often absolute ones.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List

    from fleet.agent.host import Host


_MOST_LINKS = 40  # the kernel's own limit


def resolve(host: Host, path: str) -> str:
    """``path`` of the host without links, as a path of the host; a loop or a dead end is left as it is."""
    if host.root == "/":
        return os.path.realpath(path)
    found = ""
    left = _parts(path)
    links = 0
    while left:
        part = left.pop(0)
        if part == "..":
            found = os.path.dirname(found)
            continue
        here = found + "/" + part
        try:
            target = os.readlink(host.path(here))
        except OSError:
            found = here
            continue
        links += 1
        if links > _MOST_LINKS:
            return path
        if target.startswith("/"):
            found = ""
        left = _parts(target) + left
    return found or "/"


def _parts(path: str) -> List[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def is_folder(host: Host, path: str) -> bool:
    """Whether ``path``, links followed, is a folder."""
    return os.path.isdir(host.path(resolve(host, path)))


def exists(host: Host, path: str) -> bool:
    """Whether ``path``, links followed, is there."""
    return os.path.exists(host.path(resolve(host, path)))


def names_in(host: Host, path: str) -> List[str]:
    """The sorted names in a folder; [] where there is none or it may not be read."""
    try:
        return sorted(os.listdir(host.path(resolve(host, path))))
    except OSError:
        return []
