"""Memory and processors."""

from __future__ import annotations

import os

from fleet.agent.facts import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict

    from fleet.agent.host import Host


KEYS = ("memory_bytes", "cpus")


def total_bytes(meminfo: str) -> int:
    """MemTotal of /proc/meminfo; ValueError when it is not there."""
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise ValueError("/proc/meminfo has no MemTotal")


def collect(host: Host) -> Dict[str, Any]:
    """The ``memory_bytes`` and ``cpus`` parts (logical processors online)."""
    return {"memory_bytes": total_bytes(read_text(host, "/proc/meminfo")), "cpus": os.cpu_count()}
