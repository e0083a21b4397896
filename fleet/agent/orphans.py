"""Commands that outlived their worker: a killed worker leaves them running, on purpose.

A command's output goes to files under the runtime folder (:mod:`fleet.agent.process`), which its worker
removes when the command has ended. So a process that still has such a file open, by name, belongs to
a command that nobody waited for; doing its step again beside it would do it twice at once.
"""

from __future__ import annotations

import os


def running(folder: str) -> list[int]:
    """The leaders of commands that write to files in ``folder``; what they left in the background is not."""
    prefix = os.path.realpath(folder) + "/"
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and _writes_below(name, prefix):
            found.append(int(name))
    return [pid for pid in found if _leads_its_session(pid)]


def forget(folder: str) -> None:
    """Remove the output files of commands that have ended since."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        os.unlink(folder + "/" + name)


def _writes_below(pid: str, prefix: str) -> bool:
    place = "/proc/%s/fd/" % pid
    try:
        targets = [os.readlink(place + name) for name in os.listdir(place)]
    except OSError:
        return False  # it ended while we looked, or is not ours to look into
    return any(target.startswith(prefix) and not target.endswith(" (deleted)") for target in targets)


def _leads_its_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False
