"""Is somebody else at work on a GPU: before a group of tests, while it runs, and after it.

Three witnesses: processes that NVML lists, holders of the device files in /proc, and what several samples say of
utilisation and memory. An empty list is no proof where the agent itself sits in a container: it sees no process of
the host from there, so there the samples decide. Nothing here ends anybody's process.
"""

from __future__ import annotations

import os
import time

from fleet.agent.bench import targets
from fleet.agent.facts import gpu_holders, process_owner

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Callable, Dict, Iterable, List, Optional, Set

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


SAMPLES = 5
LOOK_EVERY_S = 0.2
LOOK_AT_MOST_S = 8.0
BUSY_PERCENT = 10  # one spike among the samples is nobody at work; two are
MEMORY_MIB = (
    1024  # that a GPU may hold with nobody on it: what the driver keeps counts as used for some drivers
)
UNIFIED_MEMORY = "/dev/nvidia-uvm"  # every program of CUDA has it open
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


class Users:
    """Who is on which GPU, by PCI address: {address: {pid: words}}."""

    def __init__(self) -> None:
        self.found: Dict[str, Dict[int, str]] = {}

    def add(self, address: str, pid: int, words: str) -> None:
        self.found.setdefault(address, {}).setdefault(pid, words)

    def words(self, address: Optional[str]) -> Optional[str]:
        """``llama-server (pid 226424)``, or None where nobody is."""
        there = self.found.get(address or "")
        return ", ".join(there[pid] for pid in sorted(there)) if there else None


class Own:
    """Tells processes of the benchmark from those of others. ``container``: the id of the running container;
    ``token``: what the environment of all the benchmark's processes holds."""

    def __init__(self, host: Host, container: Optional[str] = None, token: Optional[str] = None) -> None:
        self._host = host
        self._container = container
        self._token = token.encode("ascii") if token else None

    def is_own(self, pid: int) -> Optional[bool]:
        """Whether a process is of this benchmark; None where it has ended, or cannot be seen."""
        place = self._host.path("/proc/%d" % pid)
        try:
            if self._container is not None and self._container.encode("ascii") in _read(place + "/cgroup"):
                return True
            environment = _read(place + "/environ")
        except PermissionError:
            return False
        except OSError:
            return None
        if not environment:
            return None  # it is ending: its memory is gone already
        return self._token is not None and self._token in environment


def in_container(host: Host) -> bool:
    """Whether the agent itself runs in a container, where it sees no process of the host."""
    return any(os.path.exists(host.path(mark)) for mark in _CONTAINER_MARKS)


def look(
    host: Host, devices: List[Json], token: Optional[str] = None, settle_s: float = 0.0
) -> Dict[str, str]:
    """{address: who or what is on that GPU, in words} while no test runs; GPUs that are free are left out.

    Takes about :data:`SAMPLES` samples, after ``settle_s``: what a GPU says of its utilisation is of the second
    before. ``devices`` are the probe's, ``token`` that of the benchmark's own processes, which may still be ending.
    """
    _wait(host, settle_s)
    own = Own(host, None, token)
    users = listed(host, devices, own)
    found = samples(host)
    for sample in found:
        for pid in sample.get("processes") or []:
            command = command_of(host, pid)
            if command is not None and _counts(pid, command, own):
                users.add(str(sample["address"]), pid, _words(command, pid, None))
    busy = by_samples(found, {str(device["address"]): device for device in devices})
    said = {}
    for device in devices:
        address = str(device["address"])
        who, what = users.words(address), busy.get(address)
        if who is not None:
            said[address] = who
        elif what is not None:
            hidden = (
                "of a container or host that cannot be seen from here" if in_container(host) else "unknown"
            )
            said[address] = "a process %s: %s" % (hidden, what)
    return said


def _wait(host: Host, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not host.cancelled():
        time.sleep(0.05)


def samples(host: Host, wanted: int = SAMPLES) -> List[Json]:
    """Several samples of every GPU; [] where none can be had."""
    with targets.sampler(host, LOOK_EVERY_S) as sampler:
        end = time.monotonic() + LOOK_AT_MOST_S
        while time.monotonic() < end and not host.cancelled() and sampler.problem is None:
            counts: Dict[str, int] = {}
            for sample in list(sampler.samples):
                counts[sample["address"]] = counts.get(sample["address"], 0) + 1
            if counts and min(counts.values()) >= wanted:
                break
            time.sleep(0.05)
    return list(sampler.samples)


def by_samples(found: Iterable[Json], devices: Dict[str, Json]) -> Dict[str, str]:
    """{address: what says that it is in use}: utilisation in more than one sample, or memory in all of them."""
    by_address: Dict[str, List[Json]] = {}
    for sample in found:
        by_address.setdefault(str(sample["address"]), []).append(sample)
    busy = {}
    for address, of_gpu in by_address.items():
        used = [
            one["gpu_utilization_percent"] for one in of_gpu if one.get("gpu_utilization_percent") is not None
        ]
        memory = [one["memory_used_mib"] for one in of_gpu if one.get("memory_used_mib") is not None]
        at_work = [percent for percent in used if percent >= BUSY_PERCENT]
        if len(at_work) > 1:
            busy[address] = "utilisation of %s %%" % ", ".join("%d" % percent for percent in used)
        elif memory and min(memory) > MEMORY_MIB and not _of_mig(devices.get(address)):
            busy[address] = "%d MiB of memory in use" % min(memory)
    return busy


def _of_mig(device: Optional[Json]) -> bool:
    """What MIG keeps for its instances counts as used memory of the GPU."""
    return ((device or {}).get("mig") or {}).get("mode") == "enabled"


def listed(host: Host, devices: List[Json], own: Own) -> Users:
    """The processes of others that NVML or /proc know on these GPUs; services of the driver's are not counted, and
    neither is who only asks NVML how the GPU is."""
    users = Users()
    by_file = {}
    for device in devices:
        address = str(device["address"])
        if device.get("minor") is not None:
            by_file[device_file(device["minor"])] = device
        for process in device.get("processes") or []:
            command = process.get("command") or command_of(host, process["pid"]) or "a process"
            # What NVML lists is there, also where it cannot be seen from here.
            if own.is_own(int(process["pid"])) is not True and not _is_service(command):
                users.add(address, int(process["pid"]), _words(command, process["pid"], process.get("user")))
    for holder in gpu_holders.holders(host)[0]:
        for device in [by_file[name] for name in holder["devices"] if name in by_file]:
            if _works(holder, device) and _counts(holder["pid"], holder["command"], own):
                words = _words(holder["command"], holder["pid"], holder.get("user"))
                users.add(str(device["address"]), int(holder["pid"]), words)
    return users


def _works(holder: Json, device: Json) -> bool:
    """Whether who has a GPU's file open computes or draws with it. Monitors have it open, too: NVML lists no
    context of theirs, and they do not use the driver's shared memory."""
    return (
        UNIFIED_MEMORY in holder["devices"] or device.get("processes") is None or holder["kind"] == "display"
    )


def device_file(minor: int) -> str:
    """The device file of a GPU."""
    return "%s%d" % (gpu_holders.DEVICES, minor)


def _counts(pid: int, command: str, own: Own) -> bool:
    return not _is_service(command) and own.is_own(int(pid)) is False


def _is_service(command: str) -> bool:
    return gpu_holders.kind_of(os.path.basename(command)) == "service"


def _words(command: str, pid: int, user: Optional[str]) -> str:
    name = os.path.basename(command) or command
    return "%s (pid %d%s)" % (name, pid, ", user %s" % user if user else "")


def command_of(host: Host, pid: int) -> Optional[str]:
    """The name of a running process, never its arguments; None where it cannot be seen."""
    try:
        return process_owner.command_of(host, pid)
    except OSError:
        return None


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


class Watch:
    """Looks, while a group runs, at the processes in each new sample: who they are can be told only while they
    live. A context manager with its own thread; ``users`` holds the others that came."""

    EVERY_S = 1.0

    def __init__(self, host: Host, sampler_samples: Callable[[], List[Json]], own: Callable[[], Own]) -> None:
        import threading

        self.users = Users()
        self._host = host
        self._samples = sampler_samples
        self._own = own
        self._looked = 0
        self._judged: Set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            last = self._stop.wait(self.EVERY_S)
            self.look()
            if last:
                return

    def look(self) -> None:
        """Judge the samples that came since."""
        found = self._samples()
        for sample in found[self._looked :]:
            for pid in sample.get("processes") or []:
                if pid not in self._judged and self._own().is_own(pid) is False:
                    command = command_of(self._host, pid)
                    if command is not None and not _is_service(command):
                        self.users.add(str(sample["address"]), pid, _words(command, pid, None))
                elif pid not in self._judged and self._own().is_own(pid):
                    self._judged.add(pid)
        self._looked = len(found)
