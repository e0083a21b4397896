"""The lab's torch image runs the benchmarks of fleet's agent on simulated GPUs, as a host's containers do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fleet
from fleet.lab.engine import Engine
from fleet.lab.images import Images
from fleet.lab.simulation.hardware import hardware, models
from tests.lab.simulation.conftest import Machine

pytestmark = pytest.mark.lab
pytest.importorskip("fleet.agent.bench.torch_side.backend", reason="the agent's benchmarks are not there")

_FLEET = Path(fleet.__file__).parent


@pytest.fixture(scope="module")
def image(lab_tools: None) -> str:
    """The tag of the image, which is made if it is missing."""
    return Images(Engine(), lambda line: None).ensure_pytorch()


def results(
    machine: Machine, image: str, group: str, gpu: int, parameters: dict[str, Any]
) -> list[dict[str, Any]]:
    """What a container with the GPU number ``gpu`` says of ``group``."""
    visible = machine.state.with_name("visible.d")
    visible.mkdir(exist_ok=True)
    (visible / str(gpu)).touch()
    for number in range(2):
        (machine.working / f"gpu.{number}").touch()
    libraries = "/usr/lib/x86_64-linux-gnu"
    mounts = {
        f"{machine.tools}/nvidia-smi": "/usr/bin/nvidia-smi",
        f"{machine.library.resolve()}": f"{libraries}/libnvidia-ml.so.1",
        f"{machine.state}": "/var/lib/fleet-lab-gpu",
        f"{visible}": "/run/fleet-lab-gpu/visible.d",
        f"{machine.working}": "/run/fleet-lab-gpu/load",
        f"{_FLEET}": "/agent/fleet",
    }
    uuid = hardware("h200", 2)["gpus"][gpu]["uuid"]
    request = {"group": group, "suite": "quick", "gpu_uuids": [uuid], "parameters": parameters}
    argv = ["docker", "run", "--rm", "--network", "none", "--env", "PYTHONPATH=/agent"]
    for source, target in mounts.items():
        argv += ["--volume", f"{source}:{target}:ro"]
    argv += [image, "python3", "-m", "fleet.agent.bench.torch_side", json.dumps(request)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    found = [json.loads(line[13:]) for line in done.stdout.splitlines() if line.startswith("fleet:result ")]
    assert found, done.stdout + done.stderr
    return found


def test_rates_are_those_of_the_hardware_file_and_of_the_faults(machine: Machine, image: str) -> None:
    machine.install(hardware("h200", 2))
    machine.fault("gpu.1.benchmark.memory.copy=60", "gpu.0.benchmark_percent=10")
    found = {one["test"]: one for one in results(machine, image, "compute", 1, {})}
    rates = models()["h200"]["benchmarks"]
    for test, share in {"matrix_product.bf16": 1.0, "memory.copy": 0.6, "host_link.to_device": 1.0}.items():
        assert found[test]["status"] == "measured"
        assert found[test]["value"] == pytest.approx(rates[test] * share, rel=0.015)
        assert found[test]["gpus"] == [hardware("h200", 2)["gpus"][1]["uuid"]]


def test_a_gpu_that_computes_wrongly_is_caught(machine: Machine, image: str) -> None:
    machine.install(hardware("h200", 2))
    machine.fault("gpu.1.benchmark_wrong=matrix_product.bf16")
    found = {one["test"]: one for one in results(machine, image, "compute", 1, {})}
    assert found["matrix_product.bf16"]["status"] != "measured"
    assert found["matrix_product.bf16"]["reason"] == "wrong_result"
    assert found["matrix_product.fp32"]["status"] == "measured"
