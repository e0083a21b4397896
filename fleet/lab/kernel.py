"""What a lab needs of this machine's kernel, beyond Docker: enough inotify instances.

Every lab host's systemd, dbus and engine watch files; Linux gives all of root's processes together 128
inotify instances by default, which about 25 hosts use up. A host over the limit dies as it starts,
without a word.
"""

from __future__ import annotations

from pathlib import Path

from fleet.core.errors import RefusedError
from fleet.lab.engine import Progress

LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH = 1024
PER_HOST = 8
OTHERS = 64


def ensure_inotify(hosts: int, progress: Progress, limit: Path = LIMIT) -> None:
    """Have room for ``hosts`` hosts; raise the limit where this process may. RefusedError where not."""
    try:
        allowed = int(limit.read_text())
    except (OSError, ValueError):
        return  # not told: a host that dies of it will say so by not coming up
    wanted = hosts * PER_HOST + OTHERS
    if allowed >= wanted:
        return
    raised = max(ENOUGH, wanted)
    try:
        limit.write_text(f"{raised}\n")
    except OSError:
        raise RefusedError(
            f"{hosts} lab hosts need about {wanted} inotify instances; this machine allows {allowed}",
            remedy=f"sudo sysctl fs.inotify.max_user_instances={raised}",
        ) from None
    progress(f"raised fs.inotify.max_user_instances from {allowed} to {raised}, until the next reboot")
