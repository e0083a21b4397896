"""Whose a process is, by /proc: its program, user, container and unit.

Used by :mod:`.gpu_holders`, by :mod:`fleet.agent.gpu_probe.processes` and by benchmarks.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("command", "uid", "user", "container_id", "unit")
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_COMM_LENGTH = 15


def owner_of(host: Host, pid: int, base: str) -> Json:
    """{"command", "uid", "user", "container_id", "unit"} of a process; ``base`` is :func:`base_of`.

    Raises OSError for one that has ended, or that this user may not look at.
    """
    command = command_of(host, pid)
    container, unit = place_of(read(host, pid, "cgroup").decode("utf-8", "replace"), base)
    uid = os.stat(host.path("/proc/%d" % pid)).st_uid
    user = host.user_name(uid)
    return {
        "command": command,
        "uid": uid,
        "user": None if user == str(uid) else user,
        "container_id": container,
        "unit": unit,
    }


def command_of(host: Host, pid: int) -> str:
    """The program's name, never its arguments. Raises OSError as :func:`owner_of` does."""
    comm = read(host, pid, "comm").decode("utf-8", "replace").rstrip("\n")
    return full_command(comm, read(host, pid, "cmdline"))


def full_command(comm: str, command_line: bytes) -> str:
    """The program's name: the kernel's, which ends after 15 characters, made whole by the command line's.

    Never the arguments: they are other people's, and may hold their secrets.
    """
    if len(comm) < _COMM_LENGTH:
        return comm
    first = command_line.split(b"\0", 1)[0].decode("utf-8", "replace").split(" ", 1)[0]
    name = os.path.basename(first)
    return name if name.startswith(comm) else comm


def place_of(cgroup: str, base: str) -> Tuple[Optional[str], Optional[str]]:
    """(container id, unit) of the text of /proc/PID/cgroup; ``base`` is where this host's own tree begins.

    The unit is the innermost service or scope of systemd's; that of a container is its engine's business.
    """
    for line in cgroup.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers not in ("", "name=systemd"):
            continue
        if base and path.startswith(base + "/"):
            path = path[len(base) :]
        container = _CONTAINER.search(path)
        if container is not None:
            return container.group(), None
        units = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
        if units:
            return None, units[-1]
    return None, None


def base_of(host: Host) -> str:
    """Where process 1's own tree of cgroups begins: "" on a machine, a path in some containers."""
    try:
        text = read(host, 1, "cgroup").decode("utf-8", "replace")
    except OSError:
        return ""
    for line in text.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers in ("", "name=systemd") and path.endswith("/init.scope"):
            return path[: -len("/init.scope")]
    return ""


def read(host: Host, pid: int, name: str) -> bytes:
    """A file of a process's folder in /proc. Raises OSError."""
    with open(host.path("/proc/%d/%s" % (pid, name)), "rb") as stream:
        return stream.read()
