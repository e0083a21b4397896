"""Who else schedules work on this host: systemd, kubelet, slurmd, the GPU Operator.

Whether a unit is active is read from its cgroup, which systemd makes and removes with it: no process, no
bus. Only why one that should be active is not takes a question to systemd (:func:`why_inactive`). Where PID 1 is
not systemd, processes are looked through instead.
"""

from __future__ import annotations

import os

from fleet.agent.facts import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional, Sequence

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("systemd", "kubelet", "slurmd", "gpu_operator")

KUBELET_UNITS = (
    "kubelet",
    "k3s",
    "k3s-agent",
    "rke2-server",
    "rke2-agent",
    "k0sworker",
    "k0scontroller",
    "snap.microk8s.daemon-kubelite",
    "snap.kubelet-eks.daemon",
)
KUBELET_COMMANDS = ("kubelet", "k3s", "k3s-agent", "kubelite", "k0s")
SLURMD_UNITS = ("slurmd",)
SLURMD_COMMANDS = ("slurmd",)

UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
DEADLINE_S = 5.0

# What the GPU Operator's containers leave on a node while they run (both on tmpfs, so gone after a boot).
GPU_OPERATOR_PATHS = ("/run/nvidia/validations", "/run/nvidia/driver/etc")


def system_slice(proc_1_cgroup: str) -> Optional[str]:
    """Where system.slice lies below the cgroup mount, from /proc/1/cgroup; None when PID 1 is elsewhere.

    ``/init.scope`` on a host; in a container with its own systemd there is a prefix before it.
    """
    for line in proc_1_cgroup.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers in ("", "name=systemd") and path.endswith("/init.scope"):
            base = path[: -len("/init.scope")]
            return ("systemd" if controllers else "") + base + "/system.slice"
    return None


def active_unit(host: Host, slice_path: str, names: Sequence[str]) -> Optional[str]:
    """The first of the services whose cgroup exists; unified, hybrid and legacy trees are looked at."""
    below = slice_path.lstrip("/")
    plain = below[len("systemd/") :] if below.startswith("systemd/") else below
    for root in (
        "/sys/fs/cgroup/" + below,
        "/sys/fs/cgroup/unified/" + plain,
        "/sys/fs/cgroup/systemd/" + plain,
    ):
        for name in names:
            if os.path.isdir(host.path("%s/%s.service" % (root, name))):
                return name + ".service"
    return None


def running(host: Host, commands: Sequence[str]) -> Optional[int]:
    """The pid of a process with one of these names (/proc/PID/comm), or None."""
    for entry in os.listdir(host.path("/proc")):
        if entry.isdigit():
            try:
                name = read_text(host, "/proc/%s/comm" % entry)
            except OSError:
                continue  # it ended meanwhile
            if name in commands:
                return int(entry)
    return None


def activity(host: Host, slice_path: Optional[str], units: Sequence[str], commands: Sequence[str]) -> Json:
    """{"active", "evidence"}."""
    if slice_path is not None:
        unit = active_unit(host, slice_path, units)
        return {"active": unit is not None, "evidence": "unit %s is active" % unit if unit else None}
    pid = running(host, commands)
    return {"active": pid is not None, "evidence": "process %d" % pid if pid is not None else None}


def why_inactive(host: Host, unit: str) -> Json:
    """{"state", "condition": "met" | "unmet" | None} of a unit that is not active; {} where it has no file here.

    A unit that systemd skipped since a condition was not met (``ConditionPathExistsGlob=/dev/nvidia*`` before the
    driver made its devices) is ``inactive``, and neither failed nor well. ``condition`` is None where systemd never
    looked at it. Costs a process, so it is asked of units only that should be active.
    """
    from fleet.agent.resources.base import StepFailed

    if not any(os.path.exists(host.path("%s/%s" % (folder, unit))) for folder in UNIT_FOLDERS):
        return {}
    properties = "ActiveState,ConditionResult,ConditionTimestampMonotonic"
    try:
        shown = host.run(["systemctl", "show", "--property=" + properties, "--", unit], deadline_s=DEADLINE_S)
    except StepFailed:
        return {}
    if not shown.ok:
        return {}
    said = dict(line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)
    condition = {"yes": "met", "no": "unmet"}.get(said.get("ConditionResult", ""))
    if said.get("ConditionTimestampMonotonic", "0") in ("", "0"):
        condition = None  # "no" is also what stands there before it was looked at
    return {"state": said.get("ActiveState") or None, "condition": condition}


def collect(host: Host) -> Json:
    """The ``systemd``, ``kubelet``, ``slurmd`` and ``gpu_operator`` parts."""
    present = os.path.isdir(host.path("/run/systemd/system"))
    slice_path = system_slice(read_text(host, "/proc/1/cgroup")) if present else None
    operator: List[str] = [path for path in GPU_OPERATOR_PATHS if os.path.exists(host.path(path))]
    # Whether it is "running" or "degraded" takes a process to ask; nothing of fleet decides by it.
    systemd = {
        "present": present,
        "state": None,
        "state_reason": "not_collected" if present else "not_supported",
    }
    return {
        "systemd": systemd,
        "kubelet": activity(host, slice_path, KUBELET_UNITS, KUBELET_COMMANDS),
        "slurmd": activity(host, slice_path, SLURMD_UNITS, SLURMD_COMMANDS),
        "gpu_operator": {"active": bool(operator), "evidence": operator[0] + " exists" if operator else None},
    }
