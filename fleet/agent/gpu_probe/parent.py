"""Runs the child that asks NVML, keeps its deadlines, and goes on behind a GPU that hangs or kills it.

:func:`ask` gives what the children said, raw; :mod:`.document` makes the probe's document of it. How long is
waited, and why:

- Until NVML is open (:func:`start_deadline_s`): 10 s, and where no persistence daemon keeps the GPUs awake 5 s
  more per GPU: the driver then starts every GPU at the first question, which takes 1 to 4 s each.
- A GPU that is silent for :data:`CALL_DEADLINE_S` is given up. All its questions take some ten milliseconds. Where
  nothing keeps it awake it gets as long again to start, and the first one as long as all of them, since libraries
  differ in when they start which.
- GPUs are asked at once. Where that ends badly and more than one was being asked, they are asked one after the other:
  only then is it sure which one it was.
- The whole of it (:func:`whole_deadline_s`) ends within 90 s: whoever asks for facts waits for 120.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from fleet.agent import strict_json
from fleet.agent.gpu_probe.child import FUNCTION_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    import subprocess
    from typing import Dict, List, Optional, Set, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

CALL_DEADLINE_S = 5.0
START_DEADLINE_S = 10.0
START_PER_GPU_S = 5.0
WHOLE_LIMIT_S = 90.0
REAP_S = 1.0  # how long a killed child may take to go: one in an uninterruptible call may stay
PERSISTENCE_DAEMON = "/run/nvidia-persistenced"
LINE_LIMIT = 4 * 1024 * 1024

# Neither -m nor the environment: the folder or archive the agent runs from comes first, then the binding's.
_BOOT = (
    "import sys;sys.path[:0]=[sys.argv[1]];sys.path+=sys.argv[2:-1];"
    "from fleet.agent.gpu_probe.child import main;sys.exit(main())"
)


def start_deadline_s(gpus: int, persistent: bool) -> float:
    """Seconds until NVML must be open on a host with so many GPUs."""
    return START_DEADLINE_S + (0.0 if persistent else START_PER_GPU_S * gpus)


def whole_deadline_s(gpus: int, persistent: bool) -> float:
    """Seconds for all of a probe: each GPU may hang once, and several of them together before."""
    turns = gpus + 1 if gpus > 1 else gpus
    return min(WHOLE_LIMIT_S, start_deadline_s(gpus, persistent) + (CALL_DEADLINE_S + 1.0) * turns)


class Deadlines:
    """``start``: until NVML is open; ``first``: until the first GPU has a handle; ``call``: one GPU's silence;
    ``whole``: everything. Seconds."""

    __slots__ = ("call", "first", "start", "whole")

    def __init__(self, start: float, call: float, whole: float, first: Optional[float] = None) -> None:
        self.start = start
        self.call = call
        self.whole = whole
        self.first = call if first is None else first

    @classmethod
    def of(cls, host: Host, gpus: int) -> Deadlines:
        persistent = os.path.exists(host.path(PERSISTENCE_DAEMON))
        start, whole = start_deadline_s(gpus, persistent), whole_deadline_s(gpus, persistent)
        if persistent:
            return cls(start, CALL_DEADLINE_S, whole)
        return cls(start, CALL_DEADLINE_S + START_PER_GPU_S, whole, first=start)


class Asked:
    """What the children said.

    ``system``: the ``system`` or ``failed`` line, None where not even that came (then ``problem`` is the
    word ``timeout`` or ``error`` and ``message`` says more). ``devices`` by index: Device. ``refused`` by
    index: {"nvml_error", "text"} or {"status", "message"}. ``addresses`` by index, as far as seen.
    """

    def __init__(self) -> None:
        self.system: Optional[Json] = None
        self.devices: Dict[int, Json] = {}
        self.refused: Dict[int, Json] = {}
        self.addresses: Dict[int, str] = {}
        self.silent_later: Set[int] = set()  # answered one child, and not the next
        self.pairs: Optional[List[Json]] = None
        self.problem: Optional[str] = None
        self.message: Optional[str] = None


def ask(host: Host, library: Optional[str], deadlines: Deadlines) -> Asked:
    """Ask NVML for every GPU; ``library`` is the file to open where the linker does not find it by name."""
    asked = Asked()
    ends = time.monotonic() + deadlines.whole
    together = True
    while _one_child(host, library, deadlines, ends, asked, together):
        together = False
    return asked


def _one_child(
    host: Host, library: Optional[str], deadlines: Deadlines, ends: float, asked: Asked, together: bool
) -> bool:
    """Hear one child out; True when another one must go on with the GPUs that are left."""
    options = {
        "library": library,
        "by_name": host.root == "/",
        "skip": sorted(asked.silent_later.union(asked.refused)),
        "again": sorted(asked.devices),
        "together": together,
        "topology": True,
    }
    child = Child(options)
    asking: Set[int] = set()
    try:
        limit = min(ends, time.monotonic() + deadlines.start)
        while True:
            line = child.line(limit)
            if line is None:
                break
            _take(line, asked, asking)
            silence = deadlines.call if asked.addresses or asked.refused else deadlines.first
            limit = min(ends, time.monotonic() + silence)
            if line["kind"] in ("failed", "end"):
                return False
        ended, ending = child.stop()
        current = min(asking) if len(asking) == 1 else None
        function = child.function(current)
    finally:
        child.close()
    if len(asking) > 1:
        return _ask_singly(asked, asking, ending, ends)
    return _blame(asked, current, ended, ending, function, ends)


def _ask_singly(asked: Asked, asking: Set[int], ending: str, ends: float) -> bool:
    """Several were being asked: which one it was shows when they are asked one after the other, if there is time."""
    if time.monotonic() < ends:
        return True
    message = "the whole probe took too long; NVML did not answer for %d GPUs; %s" % (len(asking), ending)
    for index in asking.difference(asked.devices):
        asked.refused[index] = {"status": "timeout", "message": message}
    asked.problem, asked.message = "timeout", message
    return False


def _take(line: Json, asked: Asked, asking: Set[int]) -> None:
    """Keep what a line says, and which GPUs are being asked after it."""
    kind = line["kind"]
    if kind in ("system", "failed"):
        asked.system = line
    elif kind == "asking":
        asking.add(line["index"])
    elif kind == "seen":
        asked.addresses[line["index"]] = line["address"]
        if line["index"] in asked.devices:  # of one known already, the handle is all
            asking.discard(line["index"])
    elif kind == "refused":
        asked.refused[line["index"]] = {"nvml_error": line["nvml_error"], "text": line["text"]}
    elif kind == "device":
        asked.devices[line["index"]] = line["device"]
    elif kind == "topology":
        asked.pairs = line["pairs"]
    if kind in ("refused", "device"):
        asking.discard(line["index"])


def _blame(
    asked: Asked, current: Optional[int], ended: bool, ending: str, function: Optional[str], ends: float
) -> bool:
    """Say which GPU the child stopped at; True when there is more to ask and time to do it."""
    status = "error" if ended else "timeout"
    where = " in %s" % function if function else ""
    if ended:
        message = "the process that asked NVML ended%s: %s" % (where, ending)
    else:
        message = "NVML did not answer in time%s; %s" % (where, ending)
    if current is None:
        if asked.system is None or not asked.devices:
            asked.problem, asked.message = status, message
        return False  # before the first GPU, or at the topology: nothing that could be left out
    if current in asked.devices:  # what it said before stands; only the topology lacks it
        asked.silent_later.add(current)
    else:
        asked.refused[current] = {"status": status, "message": message}
    if time.monotonic() < ends:
        return True
    asked.problem, asked.message = "timeout", "the whole probe took too long; " + message
    return False


# -- the process ------------------------------------------------------------------------------------


class Child:
    """One child: started with options, heard line by line, ended whatever it does. Close it in the end.

    With ``output`` its lines go into that file, and :meth:`line` cannot be asked.
    """

    def __init__(self, options: Json, output: Optional[int] = None) -> None:
        import subprocess

        from fleet.agent.bundle import running_from

        self._function = os.memfd_create("function", os.MFD_CLOEXEC)
        self._errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        place = running_from()
        inherited: Set[int] = {self._function}
        if place.startswith("/proc/self/fd/"):  # from memory: the child gets the archive's descriptor
            inherited.add(int(place.rpartition("/")[2]))
        told = dict(options, function_descriptor=self._function, parent=os.getpid())
        self._buffer = bytearray()
        self._stopped: Optional[Tuple[bool, str]] = None
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [*_python(), place, *binding_folders(place), json.dumps(told)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if output is None else output,
                stderr=self._errors,
                cwd="/",
                pass_fds=sorted(inherited),
                start_new_session=True,
                bufsize=0,
            )
        except OSError:
            self._close_files()
            raise
        self._out = self._process.stdout
        self._poll = select.poll()
        if self._out is not None:
            self._poll.register(self._out, select.POLLIN)

    def line(self, until: float) -> Optional[Json]:
        """The next line; None when there is none until ``until`` (monotonic), or ever."""
        while True:
            raw, mark, rest = bytes(self._buffer).partition(b"\n")
            if mark:
                self._buffer = bytearray(rest)
                return _object(raw)
            left = until - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1000):
                return None
            assert self._out is not None
            data = os.read(self._out.fileno(), 1 << 16)
            if not data or len(self._buffer) > LINE_LIMIT:
                return None
            self._buffer += data

    def stop(self) -> Tuple[bool, str]:
        """Kill it unless it has ended: (whether it had ended by itself, how it ended in words)."""
        if self._stopped is None:
            self._stopped = self._stop()
        return self._stopped

    def _stop(self) -> Tuple[bool, str]:
        if self._wait(0.0 if self._poll_open() else REAP_S):
            return True, self._ending()
        self._process.send_signal(signal.SIGKILL)
        if self._wait(REAP_S):
            return False, "it was killed"
        return False, "it cannot be killed: process %d waits in the driver" % self._process.pid

    def _poll_open(self) -> bool:
        """Whether its output is still open: a child whose output ended is about to end."""
        return not any(event & (select.POLLHUP | select.POLLERR) for _, event in self._poll.poll(0))

    def _wait(self, seconds: float) -> bool:
        ends = time.monotonic() + seconds
        pause = 0.001
        while self._process.poll() is None:
            if time.monotonic() >= ends:
                return False
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
        return True

    def ending(self) -> Optional[str]:
        """How it ended by itself; None while it runs."""
        return None if self._process.poll() is None else self._ending()

    def _ending(self) -> str:
        code = self._process.returncode
        if code < 0:
            return _signal_name(-code)
        said = os.pread(self._errors, 1 << 16, 0).decode("utf-8", "replace").strip().splitlines()
        return "exit code %d%s" % (code, ": " + said[-1][:300] if said else "")

    def function(self, index: Optional[int] = None) -> Optional[str]:
        """The function that it was calling last, for one GPU or for none (:class:`.child.Output`)."""
        offset = 0 if index is None else (index + 1) * FUNCTION_BYTES
        name = os.pread(self._function, FUNCTION_BYTES, offset)
        return name.decode("ascii", "replace").strip(" \0") or None

    def close(self) -> None:
        """Leave neither a process nor a file behind."""
        self.stop()
        if self._out is not None:
            self._out.close()
        if self._process.returncode is None:
            self._process.returncode = 0  # it waits in the driver and cannot be reaped; Popen need not warn
        self._close_files()

    def _close_files(self) -> None:
        for descriptor in (self._function, self._errors):
            os.close(descriptor)


def _python() -> List[str]:
    return [sys.executable or "/usr/bin/python3", "-I", "-S", "-c", _BOOT]


def _object(raw: bytes) -> Json:
    found = strict_json.loads(raw.decode("utf-8"))
    if not isinstance(found, dict):
        raise ValueError("the child wrote %r" % raw[:80])
    return found


def _signal_name(number: int) -> str:
    try:
        return "killed by %s" % signal.Signals(number).name
    except ValueError:
        return "killed by signal %d" % number


def binding_folders(place: str) -> List[str]:
    """Where the child finds the binding, besides ``place``: nowhere else, but of a checkout.

    A bundle brings it; a checkout's own interpreter has it installed.
    """
    if os.path.isfile(place) or os.path.exists(place + "/pynvml.py"):
        return []
    from importlib.util import find_spec

    spec = find_spec("pynvml")
    return [os.path.dirname(spec.origin)] if spec is not None and spec.origin else []
