"""A host in a folder whose GPUs are the lab's simulated ones: PCI bus, loaded driver, library, processes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.gpu_probe import parent
from fleet.lab.simulation.hardware import hardware
from tests.agent.facts.conftest import FolderHost
from tests.lab.simulation.conftest import DRIVER, Machine, machine, native_cache

__all__ = ["machine", "native_cache"]

LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
# Generous, for a busy machine: no test waits for one of these but the test of a GPU that hangs.
DEADLINES = parent.Deadlines(start=60.0, call=60.0, whole=120.0)


class GpuHost(FolderHost):
    """``gpus`` is what facts.gpus would say; ``machine`` changes what the library answers."""

    def __init__(self, root: Path, machine: Machine) -> None:
        super().__init__(str(root), state_dir=str(root / "state"), runtime_dir=str(root / "runtime"))
        self.machine = machine
        self.gpus: list[dict[str, Any]] = []

    def plug(self, address: str, driver: str | None = "nvidia", slot: str | None = None) -> None:
        self.gpus.append(
            {"address": address, "driver": driver, "numa_node": 1, "name": "NVIDIA H100 80GB HBM3"}
        )
        if slot is not None:
            self.write(f"/sys/bus/pci/slots/{slot}/address", address.partition(".")[0] + "\n")

    def module(self, version: str) -> None:
        self.write(
            "/proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n",
        )

    def library(self, file: Path, version: str = DRIVER) -> None:
        self.link(LIBRARY, "libnvidia-ml.so." + version)
        self.write(LIBRARY[: -len("1")] + version, file.read_bytes())


@pytest.fixture
def gpu_host(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> GpuHost:
    """Two H100, all well."""
    monkeypatch.setenv("FLEET_LAB_GPU_STATE", str(machine.state))
    document = hardware("h100-sxm", 2)
    machine.install(document)
    host = GpuHost(tmp_path / "root", machine)
    for gpu in document["gpus"]:
        host.plug(gpu["pci_address"].lower())
    host.module(DRIVER)
    host.library(machine.library)
    return host


@pytest.fixture(scope="session")
def fake_library(native_cache: Path) -> str:
    """A library for what the simulated one does not do: fake_nvml.c says how it is told."""
    library = native_cache / "libfake-nvml.so"
    source = Path(__file__).with_name("fake_nvml.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-o", library, source], check=True, timeout=60)
    return str(library)
