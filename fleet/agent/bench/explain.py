"""What the texts of a failed benchmark mean: each has a reason of its own, since each asks for another repair.

Texts of torch, CUDA, NCCL and the compiler are here; those of the container engine and of the driver come from
:mod:`fleet.agent.gpu_failures`. The reasons are those of schemas/benchmark.schema.json. Used by :mod:`.run`.
"""

from __future__ import annotations

import re

from fleet.agent.gpu_failures import Failure
from fleet.agent.gpu_failures import explained as explained_gpu

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, List, Optional, Sequence, Tuple

    from fleet.agent.protocol import Json


SHM_REMEDY = "give the container shared memory: docker run --shm-size=1g or --ipc=host"
COMPILER_REMEDY = "pin an image that has gcc and g++; what runs without torch.compile is not touched by it"
CUDA_REMEDY = "nvidia-smi ; dmesg | grep -i -e nvrm -e xid  # on the host: the image has a torch with CUDA"
COLLECTIVE_REMEDY = (
    "as a trial, once more with NCCL_P2P_DISABLE=1: where that helps, ACS or the IOMMU is between the GPUs"
)

# (pattern, reason, words with the pattern's groups, remedy); the first that fits.
_TEXTS: Tuple[Tuple[str, str, str, str], ...] = (
    (
        r"Call to posix_fallocate failed: No space left on device",
        "shm_too_small",
        "the shared memory of the container is too small for NCCL (the disk is not full)",
        SHM_REMEDY,
    ),
    (
        r"Error while creating shared memory segment (?:/dev/shm/)?\S+ \(size (\d+)\)",
        "shm_too_small",
        "the shared memory of the container is too small for NCCL: no room for a segment of {0} bytes",
        SHM_REMEDY,
    ),
    (
        r"insufficient shared memory|DataLoader worker \(pid[^)]*\) is killed by signal: Bus error",
        "shm_too_small",
        "the shared memory of the container is too small for the processes that load data",
        SHM_REMEDY,
    ),
    (
        (
            r"unable to (?:open|write|mmap|allocate) (?:to )?(?:file |\d+ bytes from file )?"
            r"</dev/shm/\S+>[^\n]*No space left on device|No space left on device: ['\"]?/dev/shm"
        ),
        "shm_too_small",
        "the shared memory of the container is full",
        SHM_REMEDY,
    ),
    (
        r"cannot find -lcuda\b",
        "libcuda_link_missing",
        "the linker finds no libcuda.so in the image: the driver's library is there under its version's name only",
        "pin an image with CUDA's stubs (a devel image), or one that makes the link libcuda.so",
    ),
    (
        (
            r"Failed to find C compiler|No working C compiler found|cannot execute .?cc1|InvalidCxxCompiler|"
            r"No such file or directory: ['\"](?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)['\"]"
        ),
        "no_compiler",
        "torch.compile needs a C compiler, and the image has none",
        COMPILER_REMEDY,
    ),
    (
        (
            r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|"
            r"cudaErrorMemoryAllocation"
        ),
        "out_of_memory",
        "the GPU's memory was not enough",
        "nvidia-smi  # who holds the GPU's memory; a MIG instance may be too small for the test",
    ),
    (
        r"Torch not compiled with CUDA enabled",
        "torch_cpu_build",
        "the torch in there is built without CUDA",
        "pin an image whose torch is built for CUDA",
    ),
    (
        r"No module named ['\"]torch['\"]",
        "torch_missing",
        "there is no torch",
        "pin an image with PyTorch, or name the host's Python that has it",
    ),
)

_CUDA_ERROR = re.compile(
    r"Error (\d{1,3}): ([^\n\"]+)|CUDA error(?: (\d{1,3}))?: (initialization error|system not yet initialized|"
    r"no CUDA-capable device is detected|unknown error|invalid device ordinal|"
    r"CUDA driver version is insufficient[^\n]*|forward compatibility was attempted[^\n]*|"
    r"system has unsupported display driver[^\n]*)"
)
_NO_CUDA = re.compile(r"No CUDA GPUs are available|Found no NVIDIA driver on your system|cuda_init_failed")
_NUMBERS = {
    "initialization error": 3,
    "no CUDA-capable device is detected": 100,
    "invalid device ordinal": 101,
    "system not yet initialized": 802,
    "unknown error": 999,
}
_NO_IMAGE = re.compile(r"no kernel image is available for execution on the device")
_CAPABILITY = re.compile(r"CUDA capability (sm_\d+\w?) is not compatible")
_SUPPORTED = re.compile(r"supports CUDA capabilities ((?:(?:sm|compute)_\d+\w?[ ,]*)+)")
_WATCHDOG = re.compile(r"OpType=(\w+).{0,400}?ran for (\d+) milliseconds before timing out", re.DOTALL)
_COLLECTIVE = re.compile(
    r"[Ww]atchdog caught collective operation timeout|Timed out waiting \d+ms for \w+ operation|"
    r"DistStoreError: Timed out|collective_timeout"
)
_PEER = re.compile(
    r"P2P is disabled between connected GPUs (\d+) and (\d+)|"
    r"Could not enable P2P between dev (\d+)\S* and dev (\d+)"
)
_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)\Z")


def explained(text: str) -> Optional[Failure]:
    """What is known of a text, or None. ``reason`` is one of the record's."""
    found = _collective(text) or _architecture(text) or _listed(text) or _cuda(text)
    if found is not None:
        return found
    known = explained_gpu(text)
    if known is None:
        return None
    reason = "cuda_init_failed" if known.of_host else "container_failed"
    return Failure(reason, known.words, known.remedy, known.of_host)


def _listed(text: str) -> Optional[Failure]:
    for pattern, reason, words, remedy in _TEXTS:
        match = re.search(pattern, text)
        if match is not None:
            return Failure(reason, words.format(*match.groups()), remedy)
    return None


def _collective(text: str) -> Optional[Failure]:
    """A collective operation of several GPUs that never ended."""
    watched = _WATCHDOG.search(text)
    if watched is not None:
        words = "the collective operation %s did not end: it ran for %s ms" % watched.groups()
    elif _COLLECTIVE.search(text):
        words = "a collective operation of several GPUs did not end"
    else:
        return None
    return Failure("collective_timeout", words, COLLECTIVE_REMEDY, True)


def _architecture(text: str) -> Optional[Failure]:
    """Code that was not built for this GPU: found only when the first kernel starts."""
    capability, supported = _CAPABILITY.search(text), _SUPPORTED.search(text)
    if capability is None and _NO_IMAGE.search(text) is None:
        return None
    if capability is None:
        return mismatch(None, supported.group(1).split() if supported else [])
    return mismatch(capability.group(1), supported.group(1).replace(",", " ").split() if supported else [])


def mismatch(capability: Optional[str], architectures: Sequence[str], image: Optional[str] = None) -> Failure:
    """The failure of a GPU (``sm_89``) that a torch has no code for."""
    where = "the torch of %s" % image if image else "this torch"
    has = "it has code for %s" % " ".join(architectures) if architectures else "what it has is not known"
    return Failure(
        "arch_mismatch",
        "%s has no code for this GPU (%s); %s" % (where, capability or "of unknown architecture", has),
        "pin an image for this GPU's generation: image may differ from group to group of the inventory",
    )


def runs_on(capability: str, architectures: Sequence[str]) -> bool:
    """Whether a torch with code for ``architectures`` (sm_86, compute_90, sm_90a) runs on a GPU of ``capability``
    ("8.9"): code for the same major version and no higher minor one, or PTX of no higher version."""
    major, _, minor = capability.partition(".")
    wanted = (int(major), int(minor or 0))
    for name in architectures:
        match = _ARCHITECTURE.match(name.strip())
        if match is None:
            continue
        kind, has, special = match.group(1), (int(match.group(2)), int(match.group(3))), match.group(4)
        if special == "a":
            fits = has == wanted
        elif kind == "sm" or special == "f":
            fits = has[0] == wanted[0] and has[1] <= wanted[1]
        else:
            fits = has <= wanted
        if fits:
            return True
    return False


def _cuda(text: str) -> Optional[Failure]:
    """CUDA that does not come up, with the error's number."""
    match = _CUDA_ERROR.search(text)
    if match is None:
        if _NO_CUDA.search(text) is None:
            return None
        return Failure("cuda_init_failed", "CUDA finds no GPU", CUDA_REMEDY, True)
    said = (match.group(2) or match.group(4)).strip()
    number = match.group(1) or match.group(3) or _NUMBERS.get(said)
    known = explained_gpu("Error %s" % number) if number is not None else None
    words = "CUDA does not start: error %s, %s" % ("of unknown number" if number is None else number, said)
    if known is not None:
        return Failure("cuda_init_failed", "%s: %s" % (words, known.words), known.remedy, True)
    return Failure("cuda_init_failed", words, CUDA_REMEDY, True)


def torch_failure(
    torch: Optional[str], cuda: Optional[str], available: bool, gpus: int, error: str = ""
) -> Optional[Failure]:
    """Why a torch serves no GPU, of what it says of itself; None where it does.

    ``cuda`` is the CUDA that it was built for, ``gpus`` how many GPUs the host has, ``error`` CUDA's own words.
    """
    if gpus == 0:
        return Failure("no_gpus", "there is no GPU to measure", "nothing: only a host with GPUs has figures")
    if torch is None:
        return _listed("No module named 'torch'")
    if cuda is None:
        failure = _listed("Torch not compiled with CUDA enabled")
        return failure and Failure(failure.reason, "%s (torch %s)" % (failure.words, torch), failure.remedy)
    if available:
        return None
    return _cuda(error) or Failure(
        "cuda_init_failed", "torch %s finds no GPU where the host has %d" % (torch, gpus), CUDA_REMEDY, True
    )


def peer_pairs(text: str) -> List[Tuple[int, int]]:
    """The pairs of GPUs that NCCL says cannot reach each other's memory, each once, the lower number first."""
    found = set()
    for match in _PEER.finditer(text):
        first, second = (int(number) for number in match.groups() if number is not None)
        found.add((min(first, second), max(first, second)))
    return sorted(found)


def peer_notes(text: str) -> List[str]:
    """One note for each of those pairs."""
    return [
        "GPUs %d and %d cannot reach each other's memory (P2P is disabled)" % pair
        for pair in peer_pairs(text)
    ]


def nccl_lines(lines: Sequence[str], most: int = 10) -> List[str]:
    """The last lines that NCCL or torch's watchdog wrote."""
    return [line for line in lines if "NCCL" in line or "[rank" in line.lower()][-most:]


def free_shared_memory(text: str) -> Optional[int]:
    """Bytes that are free in /dev/shm, of what ``df -kP`` or ``df -m`` prints; None where it says nothing."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    for place, row in enumerate(rows):
        if row[-1] == "/dev/shm" and len(row) >= 6 and row[-3].isdigit():
            unit = 1024 * 1024 if place and rows[0][1:2] == ["1M-blocks"] else 1024
            return int(row[-3]) * unit
    return None


def first_words(said: Any) -> str:
    """The last lines of an output in one, for a message."""
    lines = [line.strip() for line in said if line.strip()]
    return " / ".join(lines[-3:])[:600] or "no output"


def as_result(failure: Failure) -> Json:
    """{"reason", "message"} of a result or GPU."""
    return {"reason": failure.reason, "message": "%s; %s" % (failure.words, failure.remedy)}
