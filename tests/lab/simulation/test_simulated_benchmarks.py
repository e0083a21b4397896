"""The backend of benchmarks in the lab's torch image: its devices, its rates, its faults; no torch is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fleet.lab.simulation import image
from fleet.lab.simulation.hardware import hardware, models
from fleet.lab.simulation.image import fleet_lab_benchmark as backend
from tests.lab.simulation.conftest import Machine


@pytest.fixture
def container(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """Inside a container that was given the GPUs 2 and 5 of eight H200."""
    machine.install(hardware("h200", 8))
    visible = tmp_path / "visible"
    visible.mkdir()
    for gpu in (2, 5):
        (visible / str(gpu)).touch()
    for name, value in {**machine.environment, "FLEET_LAB_GPU_VISIBLE": str(visible)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{machine.tools}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for gpu in range(8):
        (machine.working / f"gpu.{gpu}").touch()
    return machine


def measured(test: str, gpus: Sequence[backend.Gpu], amount: float = 1e12) -> float | None:
    """The median rate; ``amount`` over the seconds, as for a test whose unit is 1."""
    made = backend.Simulated(gpus, lambda test, amount, rate: amount / rate)
    seconds = made.measure(lambda: None, amount, test, 5, 1, [gpu.uuid for gpu in gpus])
    return amount / sorted(seconds)[2] if seconds else None


def test_the_devices_are_those_of_the_container(container: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = backend.visible_gpus()
    uuids = [gpu["uuid"] for gpu in hardware("h200", 8)["gpus"]]
    assert [(gpu.uuid, gpu.number) for gpu in gpus] == [(uuids[2], 2), (uuids[5], 5)]
    made = backend.Simulated(gpus, lambda test, amount, rate: 0.0)
    assert made.devices()[1] == {
        "uuid": uuids[5], "name": "NVIDIA H200", "compute_capability": "9.0", "memory_total_mib": 143771,
    }  # fmt: skip
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuids[5])
    assert [device["uuid"] for device in made.devices()] == [uuids[5]]
    container.fault("gpu.2.state=lost")
    assert [gpu.number for gpu in backend.visible_gpus()] == [5]


def test_without_a_driver_there_is_no_backend(container: Machine) -> None:
    (container.state / "loaded.view").unlink()
    assert backend.open_backend() is None


def test_rates_are_the_models_with_a_small_spread_that_stays(container: Machine) -> None:
    gpus = backend.visible_gpus()
    expected = models()["h200"]["benchmarks"]
    for test in ("matrix_product.bf16", "memory.copy", "host_link.to_device", "transformer.amp"):
        rates = [backend.rate_of(backend.read_view(), gpu, test) for gpu in gpus]
        assert rates == [backend.rate_of(backend.read_view(), gpu, test) for gpu in gpus]
        assert rates[0] != rates[1]
        assert rates == pytest.approx([expected[test]] * 2, rel=0.01)
    assert measured("matrix_product.bf16", gpus[:1]) == pytest.approx(753, rel=0.012)


def test_a_test_without_a_rate_has_no_samples(container: Machine) -> None:
    container.install(hardware("t4", 8))
    gpus = backend.visible_gpus()
    assert measured("matrix_product.bf16", gpus[:1]) is None
    assert measured("matrix_product.fp16", gpus[:1]) is not None


@pytest.mark.parametrize(
    ("fault", "test", "share"),
    [
        ("gpu.2.benchmark_percent=70", "matrix_product.fp8", 0.7),
        ("gpu.2.benchmark.memory.copy=50", "memory.copy", 0.5),
        ("gpu.2.benchmark.memory.copy=50", "memory.triad", 1.0),
        ("gpu.2.clock_sm_mhz=990", "resnet50.amp", 0.5),
        ("gpu.2.pcie.width=8", "host_link.to_device", 0.5),
        ("gpu.2.pcie.load_generation=3", "host_link.from_device", 0.25),
        ("gpu.2.nvlink.0=0", "peer.copy", 17 / 18),
        ("gpu.5.benchmark_percent=10", "memory.copy", 1.0),
    ],
)
def test_faults_make_a_gpu_slower(container: Machine, fault: str, test: str, share: float) -> None:
    gpu = backend.visible_gpus()[0]
    before = backend.rate_of(backend.read_view(), gpu, test)
    container.fault(fault)
    after = backend.rate_of(backend.read_view(), gpu, test)
    assert before is not None
    assert after == pytest.approx(before * share)


def test_the_slowest_decides_together_and_ddp_counts_everybody(container: Machine) -> None:
    gpus = backend.visible_gpus()
    alone = measured("ddp.resnet50", gpus[:1])
    assert alone is not None
    assert measured("ddp.resnet50", gpus) == pytest.approx(2 * alone, rel=0.02)
    container.fault("gpu.5.benchmark_percent=40")
    assert measured("nccl.all_reduce", gpus) == pytest.approx(0.4 * 470, rel=0.02)


_MEASURE = """
import sys
sys.path.insert(0, sys.argv[1])
import fleet_lab_benchmark as backend
gpus = backend.visible_gpus()[:1]
made = backend.Simulated(gpus, lambda test, amount, rate: 0.0)
made.measure(lambda: None, 1.0, "memory.copy", 1, 1, [gpus[0].uuid])
print("measured", flush=True)
sys.stdin.read()
"""


def test_a_gpu_is_at_work_while_its_process_measures(container: Machine) -> None:
    argv = [sys.executable, "-c", _MEASURE, str(Path(backend.__file__).parent)]
    query = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "measured\n"
        assert container.smi(*query).stdout.split() == ["98", "0"]
        process.stdin.close()
        process.wait(timeout=60)
    assert container.smi(*query).stdout.split() == ["0", "0"]


def test_a_mig_device_has_its_share(container: Machine) -> None:
    container.install(hardware("h200", 8, mig=["3g.71gb", "1g.18gb"]))
    gpus = backend.visible_gpus()
    assert [(gpu.number, gpu.name) for gpu in gpus] == [
        (2, "NVIDIA H200 MIG 3g.71gb"), (2, "NVIDIA H200 MIG 1g.18gb"),
        (5, "NVIDIA H200 MIG 3g.71gb"), (5, "NVIDIA H200 MIG 1g.18gb"),
    ]  # fmt: skip
    assert backend.rate_of(backend.read_view(), gpus[0], "matrix_product.bf16") == pytest.approx(
        753 * 3 / 7, rel=0.01
    )


def test_the_distribution_offers_the_backend_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.metadata

    for path, text in image.distribution().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    points: Any = importlib.metadata.entry_points(group="fleet.benchmark_backend")
    assert [point.name for point in points] == ["simulated"]
    assert points["simulated"].load().__name__ == "open_backend"
