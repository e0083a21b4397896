"""The independent check of the probe, run over the simulated library: it agrees, and sees what is made wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.gpu_probe import document
from tests.agent.gpu_probe.conftest import DEADLINES, GpuHost

SCRIPT = Path(__file__).parents[3] / "scripts/real-gpu/nvml_fields.py"


def check(
    host: GpuHost, probe: dict[str, Any], tmp_path: Path, library: str | None = None
) -> tuple[int, str]:
    file = tmp_path / "probe.json"
    file.write_text(json.dumps({"facts": {"gpu_probe": probe}}))
    command = [sys.executable, "-I", SCRIPT, file, "--library", library or str(host.machine.library)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_it_agrees_with_the_probe_on_every_field(gpu_host: GpuHost, tmp_path: Path) -> None:
    gpu_host.machine.fault(
        "gpu.0.mig=1", "gpu.0.mig_devices=1", "gpu.0.mig.0.uuid=MIG-1", "gpu.0.mig.0.profile=3g.40gb",
        "gpu.0.mig.0.gpu_instance=2", "gpu.0.mig.0.memory_mib=40448", "gpu.1.remap_pending=1",
    )  # fmt: skip
    code, said = check(gpu_host, document.probe(gpu_host, gpu_host.gpus, DEADLINES), tmp_path)
    assert (code, said.count("\n")) == (0, 1), said
    assert "0 differences" in said


def test_it_agrees_where_the_library_has_hardly_any_function(
    gpu_host: GpuHost, fake_library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML", "nvmlDeviceGetSerial.0=999 nvmlDeviceGetHandleByIndex_v2.1=15")
    monkeypatch.setenv("FAKE_NVML_GPUS", "2")
    gpu_host.library(Path(fake_library))
    code, said = check(gpu_host, document.probe(gpu_host, gpu_host.gpus, DEADLINES), tmp_path, fake_library)
    assert code == 0, said


def test_it_sees_values_made_up_left_out_and_badly_explained(gpu_host: GpuHost, tmp_path: Path) -> None:
    probe = document.probe(gpu_host, gpu_host.gpus, DEADLINES)
    one, other = probe["devices"]
    one["fan_speed_percent"] = 0
    one["serial"] = None
    other["absent"]["retired_pages.pending"]["nvml_error"] = 999
    other["nvlinks"][3]["active"] = False
    other["power_limit_w"] = 699.0
    code, said = check(gpu_host, probe, tmp_path)
    assert code == 1
    wrong = [line.split("  ")[:2] for line in said.splitlines()[:-1]]
    assert wrong == [
        ["0000:01:00.0", "serial"],
        ["0000:01:00.0", "fan_speed_percent"],
        ["0000:02:00.0", "power_limit_w"],
        ["0000:02:00.0", "retired_pages.pending"],
        ["0000:02:00.0", "nvlinks.3.active"],
    ]
