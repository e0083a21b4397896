"""GPUs as nvidia-smi shows them, on the host and in a container of the image, and whether they are the same.

What the texts of a failure mean: :mod:`fleet.agent.gpu_failures`.
"""

from __future__ import annotations

from fleet.agent.engine import EngineError
from fleet.agent.gpu_failures import CPU_TORCH_REMEDY, Failure, explained
from fleet.agent.image_reference import split_version
from fleet.agent.pci_address import address_or_none
from fleet.agent.process import last_lines
from fleet.agent.protocol import Json
from fleet.agent.resources.base import StepFailed
from fleet.agent.resources.image import engine_failure

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List, Optional

    from fleet.agent.host import Host


HOST_DEADLINE_S = 60.0
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
        said = "nvidia-smi on the host: %s: %s" % (result.ending(), tail(result.stdout or result.stderr))
        raise failed(failure, "nvidia_smi_failed", said)
    found = rows(result.stdout)
    seen = [address_or_none(gpu["address"]) for gpu in found]
    missing = [address for address in addresses if address_or_none(address) not in seen]
    if missing:
        raise StepFailed(
            "gpu_missing: %s is on the PCI bus, and nvidia-smi does not show it" % ", ".join(missing),
            "dmesg | grep -i -e nvrm -e xid  # says why the driver does not serve it",
        )
    return found


def judge_requirement(host: Host, args: Json, gpus: List[Json]) -> None:
    """StepFailed where the image says that it does not run with this host's driver."""
    from fleet.agent import image_requirement

    try:
        image = host.docker.image(pinned(args)) or {}
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


def compare(wanted: List[Json], inside: List[Json]) -> None:
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
    from fleet.agent import strict_json

    found: Json = {}
    for line in said.splitlines():
        if line.startswith("fleet:versions "):
            try:
                told = strict_json.loads(line[len("fleet:versions ") :])
            except ValueError:
                continue
            if isinstance(told, dict):
                found = told
    return found


def judge_cuda(found: Json, said: str) -> None:
    """A torch that is built for CUDA must find the GPUs; an image without torch is not judged."""
    if found.get("torch") is None or found.get("cuda_available"):
        return
    if not found.get("cuda"):
        raise StepFailed(
            "no_cuda_in_image: torch %s in the image is built without CUDA" % found["torch"],
            CPU_TORCH_REMEDY,
        )
    raise failed(
        explained(said),
        "cuda_unavailable",
        "torch %s finds no CUDA device: %s" % (found["torch"], tail(said)),
    )


def failed(failure: Optional[Failure], reason: str, said: str) -> StepFailed:
    """The failure in known words, or what was said."""
    if failure is not None:
        return StepFailed("%s: %s" % (failure.reason, failure.words), failure.remedy)
    return StepFailed(
        "%s: %s" % (reason, said),
        "run it by hand: docker run --rm --gpus all IMAGE nvidia-smi (with CDI: --device nvidia.com/gpu=all)",
    )


def tail(text: str) -> str:
    return last_lines(line for line in text.splitlines() if not line.startswith("fleet:")) or "no output"


def pinned(args: Json) -> str:
    """The image by digest: what a tag means can change."""
    digest: Optional[str] = args.get("digest")
    return "%s@%s" % (split_version(args["reference"])[0], digest) if digest else str(args["reference"])
