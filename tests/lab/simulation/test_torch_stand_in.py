"""A simulated torch runs or fails as the real build would, for each reason there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.core.errors import InputError
from fleet.lab.simulation import torch_image
from fleet.lab.simulation.hardware import hardware
from tests.lab.simulation.conftest import Machine

_SMOKE = """
import torch
torch.cuda.init()
for gpu in range(torch.cuda.device_count()):
    assert torch.ones(4, device=f"cuda:{gpu}").sum().item() == 4
print("computed", torch.cuda.device_count())
"""
_TOO_OLD = "driver on your system is too old (found version 12020)"
_NO_CODE = "no kernel image is available for execution on the device"


def said(machine: Machine, folder: Path, build: str, script: str = _SMOKE) -> str:
    """What a Python with the simulated torch of ``build`` prints, on both streams."""
    for path, text in torch_image.files(build).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    environment = {
        **machine.environment,
        "FLEET_LAB_CUDA_LIBRARY": str(machine.tools / "libcuda.so.1"),
        "PYTHONPATH": str(folder),
        "PATH": f"{machine.tools}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("model", "driver", "flavour", "build", "words"),
    [
        ("t4", "535.309.01", "open", "2.7.0-cuda12.8", "computed 2"),
        ("rtx-4090", "535.309.01", "open", "2.7.0-cuda12.8", "computed 2"),
        ("rtx-4090", "535.309.01", "open", "2.9.1-cuda13.0", _TOO_OLD),
        ("gtx-1080-ti", "580.159.03", "proprietary", "2.7.0-cuda12.6", "computed 2"),
        ("gtx-1080-ti", "580.159.03", "proprietary", "2.7.0-cuda12.8", _NO_CODE),
        ("gtx-1080-ti", "580.159.03", "open", "2.7.0-cuda12.6", "No CUDA GPUs are available"),
        ("rtx-5090", "580.159.03", "open", "2.7.0-cuda12.8", "computed 2"),
        ("rtx-5090", "580.159.03", "open", "2.7.0-cuda12.6", _NO_CODE),
    ],
)
def test_architecture_and_driver_decide(
    machine: Machine,
    native_cache: Path,
    tmp_path: Path,
    model: str,
    driver: str,
    flavour: str,
    build: str,
    words: str,
) -> None:
    machine.install(hardware(model, 2))
    machine.use(driver, native_cache, flavour)
    assert words in said(machine, tmp_path / "site", build)


@pytest.mark.parametrize(
    ("driver", "words"),
    [("580.159.03", "computed 1"), ("570.211.01", "compiled with an unsupported toolchain")],
)
def test_ptx_is_compiled_by_a_driver_of_the_images_cuda_only(
    machine: Machine, native_cache: Path, tmp_path: Path, driver: str, words: str
) -> None:
    """A GPU newer than the image has no code in it, and PTX of 12.0. CUDA 12.9 is newer than branch 570's own."""
    document = hardware("rtx-5090")
    document["gpus"][0]["compute_capability"] = "13.0"
    machine.install(document)
    machine.use(driver, native_cache)
    assert words in said(machine, tmp_path / "site", "2.8.0-cuda12.9")


def test_without_a_driver_and_without_the_fabric_cuda_does_not_start(
    machine: Machine, tmp_path: Path
) -> None:
    assert "Error 802" in said(machine, tmp_path / "site", "2.7.0-cuda12.8")
    machine.write("fabric.view", "fabric.version=580.159.03\n")
    assert "computed 8" in said(machine, tmp_path / "site", "2.7.0-cuda12.8")
    (machine.state / "loaded.view").unlink()
    assert "Found no NVIDIA driver" in said(machine, tmp_path / "site", "2.7.0-cuda12.8")


def test_it_says_what_fleets_container_check_asks_of_torch(machine: Machine, tmp_path: Path) -> None:
    from fleet.agent.container_check.seen import PROBE, versions

    machine.write("fabric.view", "fabric.version=580.159.03\n")
    found = versions(said(machine, tmp_path / "site", "2.7.0-cuda12.8", PROBE))
    assert (found["torch"], found["cuda"], found["cudnn"], found["nccl"]) == (
        *("2.7.0+cu128", "12.8", 90701, "2.26.2"),
    )
    assert (found["cuda_available"], found["device_count"]) == (True, 8)
    assert found["arch_list"][-1] == "compute_120"


def test_a_build_that_nobody_described_is_refused() -> None:
    with pytest.raises(InputError, match=r"no stand-in of torch 9\.0\.0-cuda12\.8; it has 2\.11-cuda12\.8"):
        torch_image.files("9.0.0-cuda12.8")
