"""What the kernel log says of GPUs and drivers, as reasons. Reading the log is best effort.

nvidia-smi says "No devices were found" for a dozen causes; the kernel names each, over several lines.
:func:`explain` is pure; :func:`read` asks dmesg, or /dev/kmsg where there is none.
"""

from __future__ import annotations

import os
import re

from fleet.agent.resources.base import StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

DEADLINE_S = 15.0
_KMSG_LIMIT = 4 * 1024 * 1024

_STAMP = re.compile(r"^(?:<\d+>)?\[[^\]]*\]\s?")
_KMSG = re.compile(r"^\d+,\d+,\d+,[^;]*;")

_ADDRESS = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_LEGACY = re.compile(
    r"The (?P<gpu>NVIDIA .{1,80}?) GPU installed in this system is supported through the NVIDIA "
    r"(?P<branch>\d+)\.xx Legacy drivers.{0,160}?The (?P<found>[\d.]+\d) NVIDIA driver will ignore this GPU"
)
_NAMED = r"The NVIDIA GPU %s \(PCI ID: (?:10de:)?([0-9a-fA-F]{4})\) installed in this system " % _ADDRESS
_NO_GSP = re.compile(_NAMED + r"is not supported by open nvidia\.ko because it does not include")
_WANTS_OPEN = re.compile(_NAMED + r"requires use of the NVIDIA open kernel modules")
_UNSUPPORTED = re.compile(_NAMED + r"is not supported by the NVIDIA ([\d.]+\d) driver release")
_BOUND = re.compile(r"GPU %s is already bound to (\w+)" % _ADDRESS)
_OWNED = re.compile(r"a driver such as:? nouveau.{0,80}? obtained ownership of the NVIDIA device")
_OFF_THE_BUS = re.compile(r"GPU (?:at PCI:)?%s:? ?(?:GPU-\S+ )?.{0,40}?has fallen off the bus" % _ADDRESS)
_INIT = re.compile(r"GPU %s: (RmInitAdapter failed|rm_init_adapter failed)" % _ADDRESS)
_DRIVER_OF = {"novacore": "nova_core", "nova": "nova_core", "nova_core": "nova_core"}


def read(host: Host) -> List[str]:
    """The lines of the kernel log, oldest first; ``[]`` where nobody lets us read it."""
    try:
        result = host.run(["dmesg"], deadline_s=DEADLINE_S)
    except StepFailed:
        return _kmsg(host)
    if not result.ok or not result.stdout.strip():
        return _kmsg(host)
    return result.stdout.splitlines()


def _kmsg(host: Host) -> List[str]:
    try:
        fd = os.open(host.path("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    data = b""
    try:
        while len(data) < _KMSG_LIMIT:
            piece = os.read(fd, 8192)  # one record at a time
            if not piece:
                break
            data += piece
    except OSError:
        pass  # EAGAIN: that was the last one
    finally:
        os.close(fd)
    return data.decode("utf-8", "replace").replace("\\x0a", "\n").splitlines()


def since(before: List[str], after: List[str]) -> List[str]:
    """The lines of ``after`` that came after those of ``before``; the log's oldest lines may have gone."""
    if not before:
        return after
    for place in range(len(after) - 1, -1, -1):
        if after[place] == before[-1]:
            return after[place + 1 :]
    return after


def text_of(lines: List[str]) -> str:
    """The messages as one line: without time stamps, the tag NVRM of every line, and line breaks."""
    bare = (_KMSG.sub("", _STAMP.sub("", line)) for line in lines)
    return " ".join(" ".join(bare).replace("NVRM:", " ").split())


def explain(lines: List[str], gpus: List[Json]) -> Optional[Json]:
    """The first known cause in the log, as {"reason", "what", "remedy", …}; None when none is known.

    ``gpus`` are the host's (address, device_id, driver). Reasons: legacy_branch (branch, found),
    wrong_flavour (wanted, address, device_id), bound_to (driver, address), hardware (address),
    unsupported_gpu (address, device_id, found), initialisation_failed (address).
    """
    text = text_of(lines)
    for recognise in (_bound, _legacy, _flavour, _unsupported, _broken):
        problem = recognise(text, gpus)
        if problem is not None:
            return problem
    return None


def _problem(reason: str, what: str, remedy: str, **more: Any) -> Json:
    return dict(more, reason=reason, what=what, remedy=remedy)


def _bound(text: str, gpus: List[Json]) -> Optional[Json]:
    match = _BOUND.search(text)
    if match is not None:
        driver = _DRIVER_OF.get(match.group(2).lower(), match.group(2))
        return bound_to(driver, match.group(1))
    if _OWNED.search(text) is None:
        return None
    other = next((gpu for gpu in gpus if gpu.get("driver") not in (None, "nvidia")), None)
    return bound_to(other["driver"], other["address"]) if other else bound_to("nouveau", None)


def bound_to(driver: str, address: Optional[str]) -> Json:
    """Another driver has the GPU."""
    whose = "the GPU %s" % address if address else "a GPU"
    return _problem(
        "bound_to",
        "%s is bound to %s, so the nvidia driver cannot have it" % (whose, driver),
        "blacklist %s in /etc/modprobe.d, rebuild the initramfs of the kernel that boots, then reboot"
        % driver,
        driver=driver,
        address=address,
    )


def _legacy(text: str, gpus: List[Json]) -> Optional[Json]:
    match = _LEGACY.search(text)
    if match is None:
        return None
    branch, found = match.group("branch"), match.group("found")
    return _problem(
        "legacy_branch",
        "%s needs driver branch %s; the driver here is %s, which ignores it"
        % (match.group("gpu"), branch, found),
        "set the driver's branch to %s and run again" % branch,
        branch=branch,
        found=found,
        gpu=match.group("gpu"),
    )


def _flavour(text: str, gpus: List[Json]) -> Optional[Json]:
    for pattern, wanted, other in ((_NO_GSP, "proprietary", "open"), (_WANTS_OPEN, "open", "proprietary")):
        match = pattern.search(text)
        if match is not None:
            address, device = match.group(1), match.group(2).lower()
            return _problem(
                "wrong_flavour",
                "the GPU 10de:%s at %s needs the %s kernel modules; those here are %s"
                % (device, address, wanted, other),
                "set the driver's modules to %s and run again" % wanted,
                wanted=wanted,
                address=address,
                device_id=device,
            )
    return None


def _unsupported(text: str, gpus: List[Json]) -> Optional[Json]:
    """A GPU that the driver does not know; where equal ones work, it is the GPU that is broken."""
    complaints: Dict[str, Any] = {match.group(1).lower(): match for match in _UNSUPPORTED.finditer(text)}
    for match in complaints.values():
        device, found = match.group(2).lower(), match.group(3)
        works = [
            gpu
            for gpu in gpus
            if gpu["device_id"].lower() == device
            and gpu["address"].lower() not in complaints
            and gpu.get("driver") == "nvidia"
        ]
        if works:
            return hardware(
                match.group(1), "%d equal GPUs (10de:%s) work with this driver" % (len(works), device)
            )
        return _problem(
            "unsupported_gpu",
            "driver %s does not know the GPU 10de:%s at %s" % (found, device, match.group(1)),
            "choose a branch that serves this GPU: fleet catalogue shows which",
            address=match.group(1),
            device_id=device,
            found=found,
        )
    return None


def _broken(text: str, gpus: List[Json]) -> Optional[Json]:
    match = _OFF_THE_BUS.search(text)
    if match is not None:
        return hardware(match.group(1), "it has fallen off the bus")
    match = _INIT.search(text)
    if match is None:
        return None
    return _problem(
        "initialisation_failed",
        "the driver cannot initialise the GPU at %s (%s)" % (match.group(1), match.group(2)),
        "check that the firmware package is of the driver's version; else power the host off and on",
        address=match.group(1),
    )


def hardware(address: str, evidence: str) -> Json:
    """One GPU is broken; the driver is right."""
    return _problem(
        "hardware",
        "the GPU at %s has a hardware fault: %s" % (address, evidence),
        "power the host off and on; if it stays, have that GPU looked at: nvidia-bug-report.sh",
        address=address,
    )
