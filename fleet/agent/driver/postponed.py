"""A change of driver that only a reboot can finish: planned once, and never again when it did not help."""

from __future__ import annotations

import os

from fleet.agent import files
from fleet.agent.driver import seen
from fleet.agent.protocol import canonical
from fleet.agent.resources.base import StepFailed
from fleet.agent.resources.reboot import REQUIRED

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json
    from fleet.agent.resources.base import Difference

PACKAGE_LINE = "nvidia driver"


def plan_reboot(host: Host, differences: List[Difference], why: str) -> Json:
    """Mark the host as one to be rebooted; the extras of the step's result.

    StepFailed where a reboot was planned for these very differences before, took place, and left the host
    as it was: a second would do no better.
    """
    now = _signature(host, differences)
    before = _read(host)
    if before and before.get("boot_id") != now["boot_id"] and before.get("wants") == now["wants"]:
        raise StepFailed(
            "the host was rebooted for this, and it is as before: %s" % why,
            "look at what loads at boot: lsmod | grep -e nvidia -e nouveau -e nova; the initramfs of the kernel "
            "that boots must hold the blacklist (lsinitramfs); change that, then run again",
        )
    _mark(host)
    files.write_state(host, _path(host), canonical(now))
    return {"reason": "reboot needed: " + why, "registered": {"reboot_required": True}}


def forget(host: Host) -> None:
    """The driver is as wanted."""
    if os.path.exists(_path(host)):
        os.unlink(_path(host))


def _mark(host: Host) -> None:
    """The distribution's own sign that a reboot is due, and for what."""
    os.makedirs(os.path.dirname(host.path(REQUIRED)), exist_ok=True)
    with open(host.path(REQUIRED), "a", encoding="utf-8") as file:
        os.chmod(file.fileno(), 0o644)  # whatever the umask is: others read it, too
        if file.tell() == 0:
            file.write("*** System restart required ***\n")
    with open(host.path(REQUIRED + ".pkgs"), "a+", encoding="utf-8") as file:
        os.chmod(file.fileno(), 0o644)
        file.seek(0)
        if PACKAGE_LINE not in file.read().splitlines():
            file.write(PACKAGE_LINE + "\n")


def _signature(host: Host, differences: List[Difference]) -> Json:
    """What would have to change for a second reboot to make sense: the aim, the kernel, its initramfs."""
    release = seen.running_kernel(host)
    images = [
        files.changed_at(host, path % release) for path in ("/boot/initrd.img-%s", "/boot/initramfs-%s.img")
    ]
    wants = {
        "differences": [[entry["path"], entry["before"], entry["after"]] for entry in differences],
        "kernel": release,
        "initramfs": [image for image in images if image],
        "modules": files.changed_at(host, "/etc/modprobe.d"),
    }
    return {"boot_id": seen.boot_id(host), "wants": wants}


def _read(host: Host) -> Json:
    from fleet.agent import strict_json

    try:
        found = strict_json.load(_path(host))
    except (OSError, ValueError):
        return {}  # none planned, or cut short by a crash: then this one is the first
    return found if isinstance(found, dict) else {}


def _path(host: Host) -> str:
    return os.path.join(host.state_dir, "driver-reboot.json")
