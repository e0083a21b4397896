"""Compiles the simulated NVML library, nvidia-smi, an empty libcuda and the daemons, once per driver version.

Needs gcc and the C library's headers on the machine that runs the lab, not on its hosts. Results are
kept in a folder named by what they were made from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from fleet.core.errors import FleetError, RefusedError

SOURCES = Path(__file__).parent / "native"
_COMMON = ("-O1", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-U_FORTIFY_SOURCE", "-I", str(SOURCES))
_STATIC = ("-static", "-s")
# CUDA version that nvidia-smi and NVML of a driver branch say, in CUDA's own number (12.8 is 12080).
CUDA_VERSIONS = {
    418: 10010,
    470: 11040,
    515: 11070,
    525: 12000,
    535: 12020,
    550: 12040,
    570: 12080,
    580: 13000,
    590: 13010,
    595: 13020,
    610: 13030,
}


def cuda_version(driver: str) -> int:
    """CUDA's number for the branch of ``driver``, or for the next older branch that is known."""
    branch = int(driver.partition(".")[0])
    return CUDA_VERSIONS[max((known for known in CUDA_VERSIONS if known <= branch), default=418)]


def build(driver: str, cache: Path) -> Path:
    """Folder with ``libnvidia-ml.so.1``, ``libcuda.so.1``, ``daemon``, ``nvidia-smi`` of ``driver``, below ``cache``.

    It is made if it is missing. Raises RefusedError where there is no compiler, FleetError where it fails.
    """
    folder = _folder(cache, driver)
    if (folder / "nvidia-smi").exists():
        return folder
    common = [*_COMMON]
    common += [f'-DDRIVER_VERSION="{driver}"', f"-DCUDA_VERSION={cuda_version(driver)}"]
    common += [f"-DDRIVER_BRANCH={driver.partition('.')[0]}"]
    library = ["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libnvidia-ml.so.1"]
    _compile([*common, *library, str(SOURCES / "nvml.c")], folder / "libnvidia-ml.so.1")
    driver_api = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    _compile([*common, *driver_api, str(SOURCES / "cuda.c")], folder / "libcuda.so.1")
    _compile([*_COMMON, *_STATIC, str(SOURCES / "daemon.c")], folder / "daemon")
    _compile([*common, *_STATIC, str(SOURCES / "nvidia-smi.c")], folder / "nvidia-smi")
    return folder


def build_references(cache: Path) -> Path:
    """The program that counts open device files, below ``cache``; made if it is missing. Raises as :func:`build`."""
    program = _folder(cache, "references") / "references"
    if not program.exists():
        _compile([*_COMMON, *_STATIC, str(SOURCES / "references.c")], program)
    return program


def _folder(cache: Path, name: str) -> Path:
    made_from = hashlib.sha256(name.encode())
    for source in sorted(SOURCES.iterdir()):
        made_from.update(source.read_bytes())
    return cache / f"{name}-{made_from.hexdigest()[:12]}"


def _compile(arguments: list[str], target: Path) -> None:
    if shutil.which("gcc") is None:
        raise RefusedError(
            "the simulated GPUs' library is compiled with gcc, which is not on this machine",
            remedy="apt-get install gcc libc6-dev",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and moved: a second builder, or one that was killed, leaves no half of a file.
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    done = subprocess.run(
        ["gcc", *arguments, "-o", str(partial)], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise FleetError(f"gcc could not make {target.name}: {done.stderr[-2000:]}")
    partial.replace(target)
