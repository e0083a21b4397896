"""Who has a GPU's device files open or mapped: what must end before the driver can be unloaded.

Found through /proc, because nvidia-smi lists nobody once the library and the module differ, and nobody in
a container. Asked only where /dev/nvidia* exists: it looks at every process of the host.
"""

from __future__ import annotations

import os
import re

from fleet.agent.facts import process_owner

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
PROBE = "fleet-probe"  # what the child of :mod:`fleet.agent.gpu_probe` calls itself


def kind_of(command: str) -> str:
    """ "service", "display" or, of everything that nobody but its owner may end, "work"."""
    if command in SERVICES:
        return "service"
    return "display" if command in DISPLAYS else "work"


def holders(host: Host) -> Tuple[List[Json], bool]:
    """(the ``holders`` part by pid, whether every process could be looked at)."""
    base = process_owner.base_of(host)
    found: List[Json] = []
    complete = True
    for pid in sorted(map(int, filter(str.isdigit, os.listdir(host.path("/proc"))))):
        try:
            devices = _devices_of(host, pid)
        except PermissionError:
            complete = False
            continue
        except OSError:
            continue  # it ended meanwhile
        if devices and pid != os.getpid():
            holder = _holder(host, pid, sorted(devices), base)
            if holder is not None:
                found.append(holder)
    return found, complete


def _devices_of(host: Host, pid: int) -> Set[str]:
    folder = host.path("/proc/%d/fd" % pid)
    devices = set()
    for number in os.listdir(folder):
        try:
            target = os.readlink(folder + "/" + number)
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith(DEVICES):
            devices.add(target.replace(" (deleted)", ""))
    if not devices:  # mapped, and closed after that
        found = _DEVICE_IN_MAPS.findall(process_owner.read(host, pid, "maps"))
        devices.update(name.decode("utf-8", "replace") for name in found)
    return devices


def _holder(host: Host, pid: int, devices: List[str], base: str) -> Optional[Json]:
    """The entry of one process; None when it is fleet's own, or ended meanwhile."""
    try:
        owner = process_owner.owner_of(host, pid, base)
    except OSError:
        return None
    if owner["unit"] is not None and owner["unit"].startswith("fleet-"):
        return None  # a worker or the reporting agent of fleet's own
    if owner["command"] == PROBE and owner["uid"] in (0, os.geteuid()):
        return None  # a session that reads facts at the same time
    return {"pid": pid, **owner, "devices": devices, "kind": kind_of(owner["command"])}
