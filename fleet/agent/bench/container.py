"""One group of tests in a container of the pinned image: made, followed, and removed whatever happens.

It gets the chosen GPUs, shared memory of its own (so that a container that is killed leaves nothing in the host's),
the agent's sources read-only, a folder for the lock, and no network. A container is killed at its deadline and when
the run is cancelled; what it had printed stays.
"""

from __future__ import annotations

import json
import os
import time

from fleet.agent.bench import explain
from fleet.agent.bench.ending import CANCELLED, DEADLINE, ENDED, Ending
from fleet.agent.container_check.seen import pinned
from fleet.agent.engine import EngineCancelled, EngineError, EngineUnavailable
from fleet.agent.facts import cdi
from fleet.agent.gpu_failures import Failure
from fleet.agent.resources.base import StepFailed
from fleet.agent.resources.container import LABEL, device_request, gpu_way
from fleet.agent.resources.image import engine_failure

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional, Tuple

    from fleet.agent.bench.output import Output
    from fleet.agent.bench.source import Folders
    from fleet.agent.engine import Engine
    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


NAME = "fleet-benchmark"
OWNER = "fleet.benchmark"  # the label by which this agent knows its own
CODE = "/fleet-agent"
SHARED = "/fleet-shared"
LOCK = SHARED + "/lock"
SHM_AT_LEAST = 1 << 30
LIMITS = [
    {"Name": "memlock", "Soft": -1, "Hard": -1},
    {"Name": "stack", "Soft": 64 << 20, "Hard": 64 << 20},
]
NO_LIMITS = "the engine may not raise the limits on locked memory and stack of a container"
TOKEN = "FLEET_BENCH_TOKEN"
MODULE = "fleet.agent.bench.torch_side"
NO_TORCH = "fleet:no_torch"
SHM_SHORT = "fleet:shm_too_small"

# $1: the request, $2: KiB of shared memory that are needed. The first Python that has a torch takes over.
SCRIPT = """\
free=$(df -kP /dev/shm 2>/dev/null | tail -n 1)
set -- "$1" "$2" $free
if [ "${6:-0}" -lt "$2" ]; then
    echo "%s ${6:-0}"
    exit 4
fi
for python in python3 python /opt/conda/bin/python3 /opt/venv/bin/python3; do
    command -v "$python" >/dev/null 2>&1 || continue
    "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' || continue
    exec "$python" -m %s "$1"
done
echo "%s"
exit 3
""" % (SHM_SHORT, MODULE, NO_TORCH)


class Containers:
    """Runs groups. ``request``: "auto" | "gpus" | "cdi"."""

    where = "container"

    def __init__(self, host: Host, args: Json, folders: Folders) -> None:
        self._host = host
        self._args = args
        self._folders = folders
        self._docker: Engine = host.docker
        self.container: Optional[str] = None  # the id of the one that runs
        self.token = new_token(host)
        self._raise_limits = True
        asked = args.get("request") or "auto"
        try:
            self._by = gpu_way(host, self._docker) if asked == "auto" else asked
            specified = cdi.of_gpus(host) if self._by == "cdi" else []
            self._devices = [name for one in specified for name in one["devices"]]
            self.remove_left_over()
        except EngineError as error:
            raise engine_failure(error, "cannot run benchmarks") from None

    def remove_left_over(self) -> None:
        """A worker that died leaves its container behind."""
        for found in self._docker.containers():
            if (found.get("Labels") or {}).get(OWNER) == token_prefix(self._host):
                stays = self._remove(str(found["Id"]))
                if stays is not None:
                    raise StepFailed(*stays)

    def run(self, group: Json, request: Json, gpus: List[Json], deadline_s: float, output: Output) -> Ending:
        """One group to its end. StepFailed where the engine itself is gone."""
        name = "%s-%s-%s" % (NAME, group["group"], self.token[-8:])
        stays, raised = None, self._raise_limits
        try:
            self._start(name, group, request, gpus)
            ending = self._followed(name, deadline_s, output)
        except EngineCancelled:
            ending = Ending(CANCELLED)
        except EngineUnavailable as error:
            raise engine_failure(error, "the engine went away while %s ran" % name) from None
        except EngineError as error:
            ending = Ending(ENDED, refused=error.message)
        finally:
            output.close()
            made, self.container = self.container, None
            if made is not None:
                stays = self._remove(name)
        notes = [NO_LIMITS] if raised and not self._raise_limits else []
        notes += ["; ".join(stays)] if stays is not None else []
        ending.note = "; ".join(notes) or None
        return ending

    def _start(self, name: str, group: Json, request: Json, gpus: List[Json]) -> None:
        """Make and start it; without higher limits where the engine itself may not raise them."""
        self.container = self._docker.create_container(name, self.configuration(group, request, gpus))
        try:
            self._docker.start_container(name)
        except EngineError as error:
            if not (self._raise_limits and "rlimit" in error.message):
                raise
            self._raise_limits = False
            self._docker.remove_container(name, force=True)
            self.container = self._docker.create_container(name, self.configuration(group, request, gpus))
            self._docker.start_container(name)

    def _followed(self, name: str, deadline_s: float, output: Output) -> Ending:
        """Read to the end, and ask how it ended."""
        import codecs

        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        ends = time.monotonic() + deadline_s
        try:
            for piece in self._docker.follow(name, deadline_s, self._host.cancelled):
                output.feed(decoder.decode(piece))
            left = max(1.0, ends - time.monotonic())
            code = self._docker.wait_container(name, left, self._host.cancelled)
        except EngineUnavailable as error:
            if error.reason != "timeout":
                raise
            return Ending(DEADLINE)
        state = (self._docker.container(name) or {}).get("State") or {}
        return Ending(ENDED, code=code, out_of_host_memory=bool(state.get("OOMKilled")))

    def _remove(self, name: str) -> Optional[Tuple[str, str]]:
        """Kill and remove; (what is wrong, what to do) of a container that cannot be."""
        try:
            self._docker.remove_container(name, force=True)
        except EngineError as error:
            if error.status == 404 or "already in progress" in error.message:
                return None
            return (
                "the benchmark's container %s cannot be removed: %s" % (name, error.message),
                "docker rm -f %s ; dmesg | tail  # a process that waits for a GPU for ever needs a reboot"
                % name,
            )
        return None

    def configuration(self, group: Json, request: Json, gpus: List[Json]) -> Json:
        """The body of POST /containers/create."""
        shared = max(SHM_AT_LEAST, 2 * int(group.get("needs_shm_bytes") or 0))
        host_config: Json = {
            "NetworkMode": "none",
            "LogConfig": {"Type": "json-file", "Config": {}},  # its output is read; not every driver can be
            "ShmSize": shared,
            "Ulimits": LIMITS if self._raise_limits else [],
            "Mounts": [
                {"Type": "bind", "Source": self._folders.code, "Target": CODE, "ReadOnly": True},
                {"Type": "bind", "Source": self._folders.shared, "Target": SHARED},
            ],
            "DeviceRequests": [self._device_request(gpus)] if gpus else [],
        }
        needed = int(group.get("needs_shm_bytes") or 0) // 1024
        return {
            "Image": pinned(self._args),
            "Entrypoint": ["/bin/sh"],
            "Cmd": ["-c", SCRIPT, "sh", json.dumps(request), str(needed)],
            "User": "0:0",
            "WorkingDir": "/",
            "Env": ["%s=%s" % pair for pair in sorted(self._environment().items())],
            "Labels": {LABEL: "benchmark", OWNER: token_prefix(self._host)},
            "HostConfig": host_config,
        }

    def _environment(self) -> Dict[str, str]:
        return environment(CODE, LOCK, self.token, self._args.get("environment"))

    def _device_request(self, gpus: List[Json]) -> Any:
        if self._by != "cdi":
            return device_request([gpu["uuid"] for gpu in gpus], self._by)
        names = [self._cdi_name(gpu) for gpu in gpus]
        return device_request(names, self._by)

    def _cdi_name(self, gpu: Json) -> str:
        """By UUID where the specification has it: an index may mean another GPU after a change of hardware."""
        if gpu["uuid"] in self._devices or gpu["mig_profile"] is not None or gpu["index"] is None:
            return str(gpu["uuid"])
        return str(gpu["index"])


def new_token(host: Host) -> str:
    """What tells the processes of this benchmark from all others. Its beginning is that of this agent's runs."""
    return "%s-%s" % (token_prefix(host), os.urandom(16).hex())


def token_prefix(host: Host) -> str:
    """How the tokens of this agent begin, so that what a dead worker left is known again."""
    from fleet.agent.digest import sha256

    return sha256(host.state_dir.encode("utf-8", "surrogateescape")).hex()[:16]


def environment(code: str, lock: str, token: str, more: Optional[Json] = None) -> Dict[str, str]:
    """What the torch side runs with, in a container and on the host; ``more`` is what the site adds."""
    return {
        "NCCL_DEBUG": "INFO",
        **{str(name): str(value) for name, value in (more or {}).items()},
        "PYTHONPATH": code,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "FLEET_BENCH_LOCK": lock,
        TOKEN: token,
    }


def said(output: Output) -> Optional[Failure]:
    """What the script itself found wrong before torch began; None where nothing."""
    for line in output.lines:
        if line.startswith(SHM_SHORT):
            free = line[len(SHM_SHORT) :].strip() or "0"
            words = "the container has %s KiB of shared memory" % free
            return Failure("shm_too_small", words, explain.SHM_REMEDY)
        if line.startswith(NO_TORCH):
            return explain.explained("No module named 'torch'")
    return None
