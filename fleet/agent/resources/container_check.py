"""``container_check``: a container of the pinned image sees the same GPUs as the host.

The host is asked by nvidia-smi, then a container with all GPUs, then, where there are several, one with one.
The image runs by digest, with no network. What was seen is kept in ``checks/container.json`` of the state
directory, beside the key of what it depends on; while the key is equal nothing is run again. What the texts of
a failure mean: :mod:`fleet.agent.gpu_failures`. The record is read by :mod:`fleet.agent.facts.checks`.
"""

from __future__ import annotations

import os
import re

from fleet.agent.digest import sha256
from fleet.agent.engine import Engine, EngineCancelled, EngineError, EngineUnavailable, split_version
from fleet.agent.files import read_bytes, write_state
from fleet.agent.gpu_failures import Failure, explained, is_missing_hook
from fleet.agent.protocol import KNOWN_AFTER_APPLY, Json, canonical
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Resource,
    StepCancelled,
    StepFailed,
    StepPending,
    difference,
)
from fleet.agent.resources.container import LABEL, cdi_specifications, device_request, foreign, gpu_way
from fleet.agent.resources.image import engine_failure

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.resources.base import Reporter


NAME = "fleet-container-check"
RECORD = "checks/container.json"
DAEMON_JSON = "/etc/docker/daemon.json"
HOOK = "/usr/bin/nvidia-container-runtime-hook"
HOST_DEADLINE_S = 60.0
CONTAINER_DEADLINE_S = 300.0
FIELDS = ("index", "uuid", "pci.bus_id", "name", "driver_version", "memory.total")
QUERY = ["nvidia-smi", "--query-gpu=" + ",".join(FIELDS), "--format=csv,noheader,nounits"]

# Run in the container by sh: nvidia-smi's words and exit code, then what the first Python with a torch says.
SCRIPT = """\
%s 2>&1
echo "fleet:exit $?"
[ -n "$1" ] || exit 0
for python in python3 python /opt/conda/bin/python3 /opt/venv/bin/python3; do
    command -v "$python" >/dev/null 2>&1 || continue
    "$python" -c "$1" 2>&1 && break
done
exit 0
""" % " ".join(QUERY)

# Prints one line of JSON; ends with 3 where there is no torch.
PROBE = """\
import json, platform, sys
said = dict.fromkeys(("torch", "cuda", "cudnn", "nccl", "arch_list", "cuda_available", "device_count"))
said["python"] = platform.python_version()
try:
    import torch
except ImportError:
    torch = None
if torch is not None:
    said["torch"] = torch.__version__
    said["cuda"] = torch.version.cuda
    said["cudnn"] = torch.backends.cudnn.version()
    said["cuda_available"] = torch.cuda.is_available()
    said["device_count"] = torch.cuda.device_count()
    if said["cuda"]:
        # torch.cuda.get_arch_list() is empty where there is no GPU.
        said["arch_list"] = torch._C._cuda_getArchFlags().split()
        try:
            nccl = torch.cuda.nccl.version()
            said["nccl"] = ".".join(map(str, nccl)) if isinstance(nccl, tuple) else str(nccl)
        except (AttributeError, RuntimeError):
            said["nccl"] = None
        if not said["cuda_available"]:
            try:
                torch.cuda.init()
            except (RuntimeError, AssertionError) as error:
                print(error)
print("fleet:versions " + json.dumps(said))
sys.exit(0 if torch is not None else 3)
"""


class ContainerCheck(Resource):
    """See the module. ``args``: reference, digest (None: not pinned), request "auto" | "gpus" | "cdi",
    ``gpus`` ("all", or a list of indexes and UUIDs), ``addresses`` (PCI addresses that the host must show),
    ``go_on`` (the command that gives leave to restart the engine, where it needs leave; else None),
    deadline_s, and ``reflects``: files that the check pass takes to change its outcome."""

    kind = "container_check"

    def read(self, host: Host, args: Json) -> Json:
        """{"key": what the outcome depends on now, "record": what was found last or None}."""
        try:
            image = host.docker.image(_pinned(args))
            info = host.docker.info()
        except EngineError as error:
            raise engine_failure(error, "cannot ask for the image %s" % args["reference"]) from None
        if image is None:
            raise StepFailed(
                "the image %s is not on this host" % _pinned(args), "put an image task for it before this one"
            )
        return {"key": key(host, args, image, info), "record": record(host)}

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """One difference: the check has not passed, or not with what it depends on as it is now."""
        now, last = state["key"], state["record"]
        if last is None:
            return [difference("container check", None, "passed")]
        if not last.get("passed"):
            return [difference("container check", "failed: %s" % last.get("reason"), "passed")]
        before = last.get("key") or {}
        changed = [name for name in now if before.get(name) != now[name]]
        if not changed:
            return []
        return [difference("container check", "passed with another %s" % ", ".join(changed), "passed")]

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """Look, compare, keep what was seen. Raises StepFailed with the reason first."""
        found: Json = {"key": self.read(host, args)["key"], "passed": False, "reason": None}
        found.update(reference=args["reference"], digest=args.get("digest"), simulated=_simulated(host))
        try:
            self._look(host, args, found, report)
        except StepCancelled:
            raise
        except StepFailed as failure:
            found["reason"] = failure.what
            _keep(host, found)
            raise
        found["passed"] = True
        _keep(host, found)
        return {"registered": {"container_check": found}}

    def _look(self, host: Host, args: Json, found: Json, report: Reporter) -> None:
        report.progress("asking the host for its GPUs")
        gpus = host_gpus(host, args.get("addresses") or [])
        wanted = chosen(gpus, args.get("gpus") or "all")
        found["gpus"] = wanted
        _judge_requirement(host, args, gpus)
        checked = _Checked(host, args)
        found["request"] = checked.by
        report.progress("running %s with %d GPU(s)" % (args["reference"], len(wanted)))
        inside, said = checked.run(args.get("gpus") or "all", PROBE)
        found["versions"] = versions(said)
        found["container_gpus"] = [gpu["uuid"] for gpu in inside]
        _compare(wanted, inside)
        if not found["simulated"]:
            _judge_cuda(found["versions"], said)
        if len(wanted) > 1:
            report.progress("running %s with one GPU" % args["reference"])
            one, _ = checked.run([wanted[0]["index"]], "")
            _compare(wanted[:1], one)
            found["one_gpu"] = one[0]["uuid"]

    def requires(self, args: Json) -> Provides:
        return Provides(engine=True, images=[args["reference"]])

    def forecast(self, args: Json, provided: Provides) -> str:
        """What an earlier step changes, this one judges anew."""
        return KNOWN_AFTER_APPLY


class _Checked:
    """Containers of the pinned image, one after the other, each removed at once."""

    def __init__(self, host: Host, args: Json) -> None:
        self._host = host
        self._args = args
        self._docker: Engine = host.docker
        request = args.get("request") or "auto"
        self.by = gpu_way(host, self._docker) if request == "auto" else request

    def run(self, gpus: Any, probe: str) -> Tuple[List[Json], str]:
        """(GPUs that nvidia-smi shows inside, everything that was printed)."""
        try:
            self._remove_left_over()
            self._docker.create_container(NAME, self._configuration(gpus, probe))
            try:
                text = self._output()
            finally:
                self._docker.remove_container(NAME, force=True)
        except EngineCancelled:
            raise StepCancelled("the container check was cancelled") from None
        except EngineError as error:
            raise self._refused(error) from None
        shown, _, rest = text.partition("fleet:exit ")
        if not rest:
            raise _failed(explained(text), "container_failed", "sh did not run in it: " + _tail(text))
        failure = explained(shown)
        if failure is not None or not rest.startswith("0"):
            said = "nvidia-smi in the container ended with %s: %s" % (rest.split()[0], _tail(shown))
            raise _failed(failure, "container_failed", said)
        return rows(shown), rest

    def _output(self) -> str:
        self._docker.start_container(NAME)
        deadline_s = float(self._args.get("deadline_s") or CONTAINER_DEADLINE_S)
        try:
            self._docker.wait_container(NAME, deadline_s, self._host.cancelled)
        except EngineUnavailable as error:
            if error.reason != "timeout":
                raise
            raise StepFailed(
                "container_timeout: the container did not end within %d s: %s"
                % (deadline_s, _tail(self._docker.logs(NAME, None))),
                "run it by hand: docker run --rm --gpus all %s nvidia-smi" % self._args["reference"],
            ) from None
        return self._docker.logs(NAME, None)

    def _remove_left_over(self) -> None:
        """A worker that died leaves its container behind."""
        there = self._docker.container(NAME)
        if there is None:
            return
        if LABEL not in ((there.get("Config") or {}).get("Labels") or {}):
            raise foreign({"name": NAME}, there)
        self._docker.remove_container(NAME, force=True)

    def _configuration(self, gpus: Any, probe: str) -> Json:
        return {
            "Image": _pinned(self._args),
            "Entrypoint": ["/bin/sh"],
            "Cmd": ["-c", SCRIPT, "sh", probe],
            "Labels": {LABEL: "container_check"},
            "HostConfig": {"NetworkMode": "none", "DeviceRequests": [device_request(gpus, self.by)]},
        }

    def _refused(self, error: EngineError) -> StepFailed:
        """The engine's or the hook's refusal. An engine that is older than the hook waits for leave."""
        go_on = self._args.get("go_on")
        if go_on and is_missing_hook(error.message) and os.path.exists(self._host.path(HOOK)):
            what = "needs leave to restart Docker: it was started before the container toolkit was installed"
            return StepPending(what, go_on)
        failure = explained(error.message)
        if failure is None:
            return engine_failure(error, "container_failed: the check of %s" % self._args["reference"])
        return _failed(failure, "", "")


def key(host: Host, args: Json, image: Json, info: Json) -> Json:
    """What the outcome depends on: boot, driver, image, toolkit, engine and their configuration."""
    way = cdi_specifications(host)
    return {
        "boot": _line(host, "/proc/sys/kernel/random/boot_id"),
        "driver": loaded_driver(host),
        "image": args.get("digest") or image.get("Id"),
        "toolkit": _toolkit(host),
        "engine": info.get("ServerVersion"),
        "daemon_json": _digest(host, DAEMON_JSON),
        "cdi": [[path, _digest(host, path)] for path in way],
        "request": [args.get("request") or "auto", args.get("gpus") or "all"],
        "addresses": list(args.get("addresses") or []),
    }


def record(host: Host) -> Optional[Json]:
    """What was found last on this host; None where there is nothing, or nothing readable."""
    import json

    try:
        with open(os.path.join(host.state_dir, RECORD), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _keep(host: Host, found: Json) -> None:
    import time

    found["checked_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    write_state(host, os.path.join(host.state_dir, RECORD), canonical(found))


# -- the host ------------------------------------------------------------------------------------------


def _linker(host: Host) -> Optional[Dict[str, str]]:
    """nvidia-smi looks for the driver's library where the dynamic linker does; a mounted one lies elsewhere."""
    from fleet.agent.facts import driver

    mounted = str(driver.library_name(host)).startswith(driver.MOUNTED + "/")
    return {"LD_LIBRARY_PATH": driver.MOUNTED} if mounted else None


def host_gpus(host: Host, addresses: List[str]) -> List[Json]:
    """The GPUs that nvidia-smi shows on the host, by index; all of ``addresses`` must be among them."""
    if host.which("nvidia-smi") is None:
        raise StepFailed(
            "tool_missing: there is no nvidia-smi on this host",
            "install the driver: the nvidia_driver module",
        )
    result = host.run(QUERY, deadline_s=HOST_DEADLINE_S, env=_linker(host))
    failure = explained(result.stdout + "\n" + result.stderr)
    if failure is not None or not result.ok:
        said = "nvidia-smi on the host: %s: %s" % (result.ending(), _tail(result.stdout or result.stderr))
        raise _failed(failure, "nvidia_smi_failed", said)
    found = rows(result.stdout)
    seen = [address_of(gpu["address"]) for gpu in found]
    missing = [address for address in addresses if address_of(address) not in seen]
    if missing:
        raise StepFailed(
            "gpu_missing: %s is on the PCI bus, and nvidia-smi does not show it" % ", ".join(missing),
            "dmesg | grep -i -e nvrm -e xid  # says why the driver does not serve it",
        )
    return found


def _judge_requirement(host: Host, args: Json, gpus: List[Json]) -> None:
    """StepFailed where the image says that it does not run with this host's driver."""
    from fleet.agent import image_requirement

    try:
        image = host.docker.image(_pinned(args)) or {}
    except EngineError as error:
        raise engine_failure(error, "cannot ask for the image %s" % args["reference"]) from None
    asked = image_requirement.required((image.get("Config") or {}).get("Env") or [])
    if not asked:
        return
    driver = next((gpu["driver_version"] for gpu in gpus), None)
    cuda = image_requirement.cuda_of(host.run(["nvidia-smi"], deadline_s=HOST_DEADLINE_S).stdout)
    for text in asked:
        unmet = image_requirement.unmet(text, {"cuda": cuda, "driver": driver})
        if unmet is not None:
            raise StepFailed(
                "driver_too_old: the image needs %s; this host has driver %s with CUDA %s"
                % (unmet, driver or "of unknown version", cuda or "of unknown version"),
                "install a newer driver (fleet catalogue show cuda), or pin an image for an earlier CUDA",
            )


def loaded_driver(host: Host) -> Optional[str]:
    """The version of the loaded kernel module, or None."""
    text = _line(host, "/proc/driver/nvidia/version") or ""
    match = re.search(r"\b(\d{2,4}\.\d+(?:\.\d+)?)\b", text)
    return match.group(1) if match is not None else _line(host, "/sys/module/nvidia/version")


def _toolkit(host: Host) -> Optional[str]:
    """The toolkit package's version; on a host without dpkg, the size and time of its program."""
    found = host.dpkg.installed("nvidia-container-toolkit")
    if found is not None:
        return str(found)
    path = host.which("nvidia-ctk")
    if path is None:
        return None
    status = os.stat(host.path(path))
    return "%d:%d" % (status.st_size, status.st_mtime_ns)


def _simulated(host: Host) -> bool:
    from fleet.agent.facts import LAB_MARKER

    return os.path.exists(host.path(LAB_MARKER))


def _line(host: Host, path: str) -> Optional[str]:
    try:
        with open(host.path(path), encoding="utf-8", errors="replace") as file:
            return file.readline(4096).strip() or None
    except OSError:
        return None


def _digest(host: Host, path: str) -> Optional[str]:
    data = read_bytes(host, path)
    return None if data is None else sha256(data).hex()


# -- reading and comparing, pure -------------------------------------------------------------------------


def rows(text: str) -> List[Json]:
    """GPUs of nvidia-smi's CSV. A value in brackets is none; a line that is no row is passed over."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(FIELDS) or not cells[0].isdigit():
            continue
        index, uuid, address, name, driver, memory = (
            None if cell.startswith("[") else cell for cell in cells
        )
        found.append(
            {
                "index": int(index or 0),
                "uuid": uuid,
                "address": address,
                "name": name,
                "driver_version": driver,
                "memory_total_mib": int(memory) if memory and memory.isdigit() else None,
            }
        )
    return found


def address_of(text: Optional[str]) -> str:
    """A PCI address for comparing: nvidia-smi writes ``00000000:1B:00.0`` for ``0000:1b:00.0``."""
    domain, _, rest = (text or "").lower().partition(":")
    return "%s:%s" % (domain.lstrip("0").rjust(4, "0"), rest)


def chosen(gpus: List[Json], wanted: Any) -> List[Json]:
    """Those of the host's GPUs that a container is to see."""
    if wanted == "all":
        return gpus
    names = [str(name) for name in wanted] if isinstance(wanted, list) else list(map(str, range(int(wanted))))
    found = [gpu for gpu in gpus if str(gpu["index"]) in names or gpu["uuid"] in names]
    if len(found) != len(names):
        raise StepFailed(
            "count_differs: of the GPUs %s this host has %d" % (", ".join(names), len(found)),
            "nvidia-smi -L  # lists those that there are",
        )
    return found


def _compare(wanted: List[Json], inside: List[Json]) -> None:
    """The container sees exactly these GPUs, by UUID."""
    host, container = [gpu["uuid"] for gpu in wanted], [gpu["uuid"] for gpu in inside]
    if sorted(map(str, host)) == sorted(map(str, container)):
        return
    missing = [str(uuid) for uuid in host if uuid not in container]
    strange = [str(uuid) for uuid in container if uuid not in host]
    words = ["it lacks " + ", ".join(missing)] if missing else []
    words += ["it also sees " + ", ".join(strange)] if strange else []
    raise StepFailed(
        "count_differs: the container sees %d GPUs where %d were given: %s"
        % (len(container), len(host), "; ".join(words)),
        "nvidia-smi -L  # on the host; where its list is right, renew the CDI specification or the toolkit",
    )


def versions(said: str) -> Json:
    """What Python in the image said of itself; {} where there is none."""
    import json

    found: Json = {}
    for line in said.splitlines():
        if line.startswith("fleet:versions "):
            try:
                found = json.loads(line[len("fleet:versions ") :])
            except ValueError:
                continue
    return found


def _judge_cuda(found: Json, said: str) -> None:
    """A torch that is built for CUDA must find the GPUs; an image without torch is not judged."""
    if found.get("torch") is None or found.get("cuda_available"):
        return
    if not found.get("cuda"):
        raise StepFailed(
            "no_cuda_in_image: torch %s in the image is built without CUDA" % found["torch"],
            "pin an image whose torch is built for CUDA",
        )
    raise _failed(
        explained(said),
        "cuda_unavailable",
        "torch %s finds no CUDA device: %s" % (found["torch"], _tail(said)),
    )


def _failed(failure: Optional[Failure], reason: str, said: str) -> StepFailed:
    """The failure in known words, or what was said."""
    if failure is not None:
        return StepFailed("%s: %s" % (failure.reason, failure.words), failure.remedy)
    return StepFailed(
        "%s: %s" % (reason, said), "run it by hand: docker run --rm --gpus all IMAGE nvidia-smi"
    )


def _tail(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("fleet:")]
    return " / ".join(lines[-3:]) or "no output"


def _pinned(args: Json) -> str:
    """The image by digest: what a tag means can change."""
    digest: Optional[str] = args.get("digest")
    return "%s@%s" % (split_version(args["reference"])[0], digest) if digest else str(args["reference"])


RESOURCE = ContainerCheck()
