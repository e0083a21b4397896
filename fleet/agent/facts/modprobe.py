"""modprobe.d: which files count, and what they keep from loading (modprobe.d(5))."""

from __future__ import annotations

import os
import re

from fleet.agent.facts import links, text_or_empty

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Iterable, List

    from fleet.agent.host import Host


# A file hides those of the same name further down.
DIRECTORIES = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
# Both drive NVIDIA's GPUs without NVIDIA; kernels from 6.15 on bring the second.
RIVALS = ("nouveau", "nova_core")

_FORBIDDEN = re.compile(r"blacklist\s+(\S+)(?:\s.*)?|install\s+(\S+)\s+(?:/usr)?/bin/(?:false|true)\b.*")


def files(host: Host) -> List[str]:
    """The paths of the configuration files that count, in the order in which modprobe reads them."""
    chosen = {}
    for folder in reversed(DIRECTORIES):
        for name in links.names_in(host, folder):
            if name.endswith(".conf"):
                chosen[name] = folder + "/" + name
    return [chosen[name] for name in sorted(chosen)]


def forbidden(texts: Iterable[str]) -> List[str]:
    """The modules, in the kernel's spelling, that no alias or no command loads: blacklisted ones, and those
    whose ``install`` command does nothing."""
    found = set()
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            match = _FORBIDDEN.fullmatch(line.strip())
            if match is not None:
                found.add((match.group(1) or match.group(2)).replace("-", "_"))
    return sorted(found)


def rivals_blocked(host: Host) -> bool:
    """Whether both nouveau and nova_core are kept from loading; nouveau's alone is not enough since 6.15."""
    return set(RIVALS) <= set(forbidden(text_or_empty(host, path) for path in files(host)))


def forbids_rival(host: Host, path: str) -> bool:
    """Whether this file keeps one of them from loading."""
    return not set(RIVALS).isdisjoint(forbidden([text_or_empty(host, path)]))


def newer_than(host: Host, moment_ns: int) -> List[str]:
    """Those of the files that changed after ``moment_ns``, sorted."""
    found = []
    for path in files(host):
        try:
            if os.stat(host.path(path)).st_mtime_ns > moment_ns:
                found.append(path)
        except OSError:
            continue
    return sorted(found)
