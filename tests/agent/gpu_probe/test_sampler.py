"""Samples while something runs: they come, they stay when the library hangs, and nothing is left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fleet.agent.gpu_probe.sampler import Sampler
from fleet.agent.host import Host
from tests.agent.gpu_probe.conftest import GpuHost
from tests.agent.gpu_probe.test_parent import children


def wait_for(sampler: Sampler, count: int) -> None:
    ends = time.monotonic() + 60
    while len(sampler.samples) < count:
        assert time.monotonic() < ends, sampler.problem
        time.sleep(0.01)


def test_every_gpu_is_sampled_until_the_end(gpu_host: GpuHost) -> None:
    before = len(os.listdir("/proc/self/fd")), children()
    gpu_host.machine.fault(
        f"gpu.1.processes={os.getpid()}:64", "gpu.1.utilization_gpu=97", "gpu.1.memory_used_mib=64"
    )
    with Sampler(gpu_host, 0.02) as sampler:
        wait_for(sampler, 6)
    samples = sampler.samples
    assert (len(os.listdir("/proc/self/fd")), children()) == before
    assert {sample["address"] for sample in samples} == {"0000:01:00.0", "0000:02:00.0"}
    at = [sample["at_s"] for sample in samples]
    assert at == sorted(at)
    assert at[0] > 0
    busy = next(sample for sample in samples if sample["address"] == "0000:02:00.0")
    assert {key: busy[key] for key in busy if key != "at_s"} == {
        "address": "0000:02:00.0",
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "power_draw_w": 69.0,
        "temperature_c": 29,
        "memory_temperature_c": 37,
        "clocks_event_reasons": busy["clocks_event_reasons"],
        "gpu_utilization_percent": 97,
        "memory_used_mib": 64,
        "pcie_generation": 5,
        "pcie_width": 16,
        "processes": [os.getpid()],
    }
    assert sampler.problem is None


def test_a_library_that_hangs_ends_at_stop_and_leaves_what_was_seen(
    gpu_host: GpuHost, fake_library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML", "nvmlDeviceGetMemoryInfo.1=hang")
    monkeypatch.setenv("FAKE_NVML_GPUS", "2")
    gpu_host.library(Path(fake_library))
    before = children()
    with Sampler(gpu_host, 0.01) as sampler:
        wait_for(sampler, 1)
    assert children() == before
    assert {sample["address"] for sample in sampler.samples} == {"0000:01:00.0"}
    assert sampler.samples[0]["sm_clock_mhz"] is None


def test_without_a_driver_there_is_no_child_and_a_reason(tmp_path: Path) -> None:
    before = children()
    with Sampler(Host(str(tmp_path)), 0.1) as sampler:
        assert children() == before
    assert sampler.samples == []
    assert sampler.problem == "no NVIDIA kernel module is loaded"


def test_a_library_that_does_not_open_is_the_reason(gpu_host: GpuHost) -> None:
    gpu_host.machine.load("570.211.01")
    with Sampler(gpu_host, 0.02) as sampler:
        ends = time.monotonic() + 60
        while sampler.problem is None:
            assert time.monotonic() < ends
            time.sleep(0.01)
    assert "mismatch" in (sampler.problem or "").lower()
    assert sampler.samples == []


def test_a_library_that_crashes_is_the_reason_and_what_was_seen_stays(
    gpu_host: GpuHost, fake_library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NVML", "nvmlDeviceGetMemoryInfo.1=crash")
    monkeypatch.setenv("FAKE_NVML_GPUS", "2")
    gpu_host.library(Path(fake_library))
    with Sampler(gpu_host, 0.02) as sampler:
        ends = time.monotonic() + 60
        while sampler.problem is None:
            assert time.monotonic() < ends
            time.sleep(0.01)
    assert "SIGSEGV" in (sampler.problem or "")
    assert len(sampler.samples) == 1
