"""A simulated torch: it computes nothing, and runs or fails on a simulated GPU as the real build would.

What decides is what decides for the real one, and is taken from where the real one takes it: the GPUs that
nvidia-smi shows here, the CUDA version that the driver's own library says (cuDriverGetVersion), the build's
list of architectures (build.json), and whether the fabric of a machine with NVSwitches is up. Messages are
torch's and the CUDA runtime's.

Runs in the image's Python (or a host's), 3.9 and newer; imports nothing of fleet.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

Capability = tuple[int, int]

simulated = True
_BUILD = json.loads(Path(__file__).with_name("build.json").read_text(encoding="utf-8"))
_STATE = Path(os.environ.get("FLEET_LAB_GPU_STATE") or "/var/lib/fleet-lab-gpu")
_LIBRARY = os.environ.get("FLEET_LAB_CUDA_LIBRARY") or "libcuda.so.1"

__version__ = f"{_BUILD['torch']}+cu{_BUILD['cuda'].replace('.', '')}"
version = SimpleNamespace(cuda=_BUILD["cuda"], hip=None)


def _number(cuda: str) -> int:
    """CUDA's own number of a version: 12080 of 12.8."""
    major, _, minor = cuda.partition(".")
    return int(major) * 1000 + int(minor) * 10


def _view() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("hardware", "loaded", "settings", "fabric", "faults"):
        path = _STATE / f"{name}.view"
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            found.update((key, value) for key, _, value in (line.partition("=") for line in lines))
    return found


def _driver_cuda() -> int | None:
    """What the driver's library says it can, as CUDA's number; None where there is no driver."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    number = ctypes.c_int(0)
    return number.value if library.cuDriverGetVersion(ctypes.byref(number)) == 0 else None


def _capabilities(view: dict[str, str]) -> list[Capability]:
    """Of every GPU that nvidia-smi shows here, in its order."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=uuid", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        return []
    gpus = [f"gpu.{number}" for number in range(int(view.get("gpus", 0)))]
    by_uuid = {
        view[f"{gpu}.uuid"]: (int(view[f"{gpu}.cc_major"]), int(view[f"{gpu}.cc_minor"])) for gpu in gpus
    }
    return [by_uuid[line.strip()] for line in done.stdout.splitlines() if line.strip() in by_uuid]


def _start() -> tuple[list[Capability], int]:
    """The GPUs' capabilities, and the driver's CUDA; RuntimeError in torch's words where CUDA cannot start."""
    driver, view = _driver_cuda(), _view()
    if driver is None or "loaded.version" not in view:
        raise RuntimeError(
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver "
            "from http://www.nvidia.com/Download/index.aspx"
        )
    # Within one major version of CUDA the runtime runs on the first driver of that major version.
    if driver // 1000 < _number(_BUILD["cuda"]) // 1000:
        raise RuntimeError(
            f"The NVIDIA driver on your system is too old (found version {driver}). Please update your GPU driver"
        )
    if int(view.get("nvswitches", 0)) and "fabric.version" not in view:
        raise RuntimeError(
            "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"
        )
    found = _capabilities(view)
    if not found:
        raise RuntimeError("No CUDA GPUs are available")
    return found, driver


def _launch(capability: Capability, driver: int) -> None:
    """Nothing, where a kernel of this build starts on a GPU of ``capability``; else CUDA's own error.

    Compiled code runs on its own major version from its own minor version on. PTX is compiled for anything
    newer, by a driver that is not older than the toolkit that wrote it.
    """
    compiled = [(int(name[3:-1]), int(name[-1])) for name in _BUILD["arch_list"] if name.startswith("sm_")]
    if any(major == capability[0] and minor <= capability[1] for major, minor in compiled):
        return
    ptx = [(int(name[8:-1]), int(name[-1])) for name in _BUILD["arch_list"] if name.startswith("compute_")]
    if not any(one <= capability for one in ptx):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
    if driver < _number(_BUILD["cuda"]):
        raise RuntimeError("CUDA error: the provided PTX was compiled with an unsupported toolchain.")


def _is_available() -> bool:
    return _device_count() > 0


def _device_count() -> int:
    try:
        return len(_start()[0])
    except RuntimeError:
        return 0


def _get_arch_list() -> list[str]:
    """Empty where there is no GPU, as torch's is."""
    return list(_BUILD["arch_list"]) if _is_available() else []


def _nccl_version() -> tuple[int, ...]:
    return tuple(int(part) for part in _BUILD["nccl"].split("."))


class Tensor:
    """So much of a tensor that a smoke test can be written as for a real one."""

    def __init__(self, values: list[float]) -> None:
        self._values = values

    def sum(self) -> Tensor:
        return Tensor([sum(self._values)])

    def item(self) -> float:
        return self._values[0]


def ones(count: int, device: str = "cpu") -> Tensor:
    """``count`` ones on ``device`` (``cuda:0``): the kernel that fills them has to start there."""
    kind, _, index = device.partition(":")
    if kind == "cuda":
        capabilities, driver = _start()
        number = int(index or 0)
        if number >= len(capabilities):
            raise RuntimeError("CUDA error: invalid device ordinal")
        _launch(capabilities[number], driver)
    return Tensor([1.0] * count)


cuda = SimpleNamespace(
    init=_start,
    is_available=_is_available,
    device_count=_device_count,
    get_arch_list=_get_arch_list,
    nccl=SimpleNamespace(version=_nccl_version),
)
backends = SimpleNamespace(cudnn=SimpleNamespace(version=lambda: _BUILD["cudnn"]))
_C = SimpleNamespace(_cuda_getArchFlags=lambda: " ".join(_BUILD["arch_list"]))
