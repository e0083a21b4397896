"""Who has a GPU's device files open or mapped: what must end before the driver can be unloaded.

Found through /proc, because nvidia-smi lists nobody once the library and the module differ, and nobody in
a container. Asked only where /dev/nvidia* exists: it looks at every process of the host.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional, Set, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


DEVICES = "/dev/nvidia"

# What may be stopped for a while and started again: it works for the GPUs, not on them.
SERVICES = frozenset(
    "nvidia-persistenced nv-fabricmanager nv-hostengine nvidia-imex dcgm-exporter nvidia-device-plugin"
    " gpu-feature-discovery nvidia-cuda-mps-control nvidia-cuda-mps-server nvidia-mig-parted nvidia-topologyd"
    " nvlsm nvsm_core nvsm_api_gateway".split()
)
# A person's screen, or the login screen.
DISPLAYS = frozenset(
    "Xorg X Xwayland gnome-shell gnome-session-binary mutter kwin_x11 kwin_wayland plasmashell sddm-greeter"
    " gdm-x-session gdm-wayland-session cinnamon xfwm4 weston sway Hyprland cosmic-comp labwc".split()
)

_DEVICE_IN_MAPS = re.compile(rb" (/dev/nvidia\S*)")
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_COMM_LENGTH = 15
PROBE = "fleet-probe"  # what the child of :mod:`fleet.agent.gpu_probe` calls itself


def kind_of(command: str) -> str:
    """ "service", "display" or, of everything that nobody but its owner may end, "work"."""
    if command in SERVICES:
        return "service"
    return "display" if command in DISPLAYS else "work"


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


def holders(host: Host) -> Tuple[List[Json], bool]:
    """(the ``holders`` part by pid, whether every process could be looked at)."""
    base = base_of(host)
    found: List[Json] = []
    complete = True
    for entry in sorted(filter(str.isdigit, os.listdir(host.path("/proc"))), key=int):
        try:
            devices = _devices_of(host, entry)
        except PermissionError:
            complete = False
            continue
        except OSError:
            continue  # it ended meanwhile
        if devices and int(entry) != os.getpid():
            holder = _holder(host, entry, sorted(devices), base)
            if holder is not None:
                found.append(holder)
    return found, complete


def base_of(host: Host) -> str:
    """Where process 1's own tree of cgroups begins: "" on a machine, a path in some containers."""
    try:
        text = _read(host, "1", "cgroup").decode("utf-8", "replace")
    except OSError:
        return ""
    for line in text.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers in ("", "name=systemd") and path.endswith("/init.scope"):
            return path[: -len("/init.scope")]
    return ""


def _devices_of(host: Host, pid: str) -> Set[str]:
    folder = host.path("/proc/%s/fd" % pid)
    devices = set()
    for number in os.listdir(folder):
        try:
            target = os.readlink(folder + "/" + number)
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith(DEVICES):
            devices.add(target.replace(" (deleted)", ""))
    if not devices:  # mapped, and closed after that
        found = _DEVICE_IN_MAPS.findall(_read(host, pid, "maps"))
        devices.update(name.decode("utf-8", "replace") for name in found)
    return devices


def _holder(host: Host, pid: str, devices: List[str], base: str) -> Optional[Json]:
    """The entry of one process; None when it is fleet's own, or ended meanwhile."""
    try:
        comm = _read(host, pid, "comm").decode("utf-8", "replace").rstrip("\n")
        command = full_command(comm, _read(host, pid, "cmdline"))
        container, unit = place_of(_read(host, pid, "cgroup").decode("utf-8", "replace"), base)
        owner = os.stat(host.path("/proc/" + pid)).st_uid
    except OSError:
        return None
    if unit is not None and unit.startswith("fleet-"):
        return None  # a worker or the reporting agent of fleet's own
    if comm == PROBE and owner in (0, os.geteuid()):
        return None  # a session that reads facts at the same time
    user = host.user_name(owner)
    return {
        "pid": int(pid),
        "command": command,
        "uid": owner,
        "user": None if user == str(owner) else user,
        "container_id": container,
        "unit": unit,
        "devices": devices,
        "kind": kind_of(command),
    }


def _read(host: Host, pid: str, name: str) -> bytes:
    with open(host.path("/proc/%s/%s" % (pid, name)), "rb") as stream:
        return stream.read()
