"""One group of tests with the host's own Python: a session of its own, ended for certain.

At the deadline its processes get TERM and then KILL. What moved to another session (the compiler's workers do) is
found by a token in its environment, and ended too: when a group is over, no process of it is left.
"""

from __future__ import annotations

import json
import os
import signal
import time

from fleet.agent import process
from fleet.agent.bench.container import MODULE, TOKEN, environment, new_token, token_prefix
from fleet.agent.bench.ending import CANCELLED, DEADLINE, ENDED, Ending
from fleet.agent.resources.base import StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional, Set, Tuple

    from fleet.agent.bench.output import Output
    from fleet.agent.bench.source import Folders
    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


PLACES = (
    "python3",
    "/opt/conda/bin/python3",
    "/opt/venv/bin/python3",
    "/usr/local/bin/python3",
    "/opt/miniconda3/bin/python3",
    "/opt/anaconda3/bin/python3",
)
QUESTION_DEADLINE_S = 60.0
KILL_GRACE_S = 10.0

# Prints torch's version without importing it, which takes seconds.
QUESTION = """\
import importlib.util, sys
if importlib.util.find_spec("torch") is None:
    sys.exit(3)
try:
    from importlib.metadata import version
    print(version("torch"))
except Exception:
    print("unknown")
"""


def find(host: Host, wanted: Optional[str]) -> Tuple[str, str]:
    """(path of the Python that has torch, torch's version). StepFailed where there is none."""
    places = [wanted] if wanted else list(PLACES)
    for place in places:
        path = host.which(place)
        if path is None:
            continue
        result = host.run([path, "-c", QUESTION], deadline_s=QUESTION_DEADLINE_S)
        if result.ok:
            return path, result.stdout.strip()
    looked = ", ".join(places)
    raise StepFailed(
        "torch_missing: no Python of this host has torch (looked at %s)" % looked,
        "name the one that has it (python:), or measure in a container of the pinned image (where: container)",
    )


class Processes:
    """Runs groups with ``python``, a path of the host. ``more``: variables that the site adds."""

    where = "host"
    container: Optional[str] = None

    def __init__(self, host: Host, python: str, folders: Folders, more: Optional[Json] = None) -> None:
        self._host = host
        self._more = more
        self._python = python
        self._folders = folders
        self.token = new_token(host)
        end_all(host, token_prefix(host))  # what a worker that died may have left
        # A cache of compiled code holds libraries, which cannot be used from a file system mounted noexec.
        self._cache = os.path.join(host.state_dir, "bench-cache")

    def run(self, group: Json, request: Json, gpus: List[Json], deadline_s: float, output: Output) -> Ending:
        """One group to its end; ``gpus`` are named in ``request``."""
        lock = os.path.join(self._folders.shared, "lock")
        variables = environment(self._folders.code, lock, self.token, self._more)
        variables["TORCHINDUCTOR_CACHE_DIR"] = variables["TRITON_CACHE_DIR"] = self._cache
        try:
            # Not by Host.run: its output files have names, and a later worker would wait for whoever writes there.
            result = process.run(
                [self._python, "-m", MODULE, json.dumps(request)],
                deadline_s=deadline_s,
                env=variables,
                cancelled=self._host.cancelled,
                on_output=lambda text, stream: output.feed(text),
            )
        except OSError as error:
            raise StepFailed(
                "cannot run %s: %s" % (self._python, error.strerror or error),
                "look at that Python on the host",
            ) from None
        finally:
            output.close()
            left = end_all(self._host, self.token)
            self._forget_cache()
        note = "%d process(es) that it left were ended" % left if left else None
        if result.cancelled:
            return Ending(CANCELLED, note=note)
        if result.timed_out:
            return Ending(DEADLINE, note=note)
        return Ending(ENDED, code=result.exit_code, note=note)

    def _forget_cache(self) -> None:
        from fleet.agent.runs import remove_folder

        remove_folder(self._cache)


def end_all(host: Host, token: str) -> int:
    """Kill every process whose environment holds the token; how many there were. StepFailed where one stays."""
    killed: Set[int] = set()
    end = time.monotonic() + KILL_GRACE_S
    while True:
        there = having(host, token)
        if not there:
            return len(killed)
        if time.monotonic() > end:
            raise StepFailed(
                "process %d of the benchmark does not end, not even by SIGKILL" % there[0],
                "dmesg | tail  # it waits for a GPU in the kernel; a reboot ends it",
            )
        for pid in there:
            killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def having(host: Host, token: str) -> List[int]:
    """The living processes whose environment holds a token that begins so; not those in containers."""
    wanted = ("%s=%s" % (TOKEN, token)).encode("ascii")
    found = []
    for name in os.listdir(host.path("/proc")):
        if not name.isdigit():
            continue
        place = host.path("/proc/" + name)
        try:
            with open(place + "/environ", "rb") as stream:
                has_it = any(part.startswith(wanted) for part in stream.read().split(b"\0"))
            if has_it and os.readlink(place + "/ns/pid") == os.readlink(host.path("/proc/self/ns/pid")):
                found.append(int(name))
        except OSError:
            continue  # it ended, or is another user's
    return found
