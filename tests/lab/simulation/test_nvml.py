"""The simulated NVML library, asked through NVIDIA's own Python binding in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.lab.simulation import native
from fleet.lab.simulation.hardware import hardware
from tests.lab.simulation.conftest import DRIVER, Machine

pytest.importorskip("pynvml", reason="nvidia-ml-py is a development dependency")

# The binding looks for the library by name only, so it is handed the one under test.
_PRELUDE = """
import ctypes, json, sys
import pynvml as n
n.nvmlLib = ctypes.CDLL(sys.argv[1])
n._LoadNvmlLibrary = lambda: None
def attempt(function, *arguments):
    try:
        return function(*arguments)
    except n.NVMLError as error:
        return type(error).__name__
"""


def ask(machine: Machine, script: str, timeout: float = 60) -> Any:
    """What ``script`` prints as JSON, after initialisation when it does not do that itself."""
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + script, str(machine.library)],
        capture_output=True,
        text=True,
        env=machine.environment,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_healthy_machine_answers_every_group(machine: Machine) -> None:
    found = ask(
        machine,
        """
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(3)
pci = n.nvmlDeviceGetPciInfo(h)
v2 = n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2)
fabric = n.c_nvmlGpuFabricInfo_v3_t()
n.nvmlDeviceGetGpuFabricInfoV(h, n.byref(fabric))
field, = n.nvmlDeviceGetFieldValues(h, [n.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
print(json.dumps({
    "driver": n.nvmlSystemGetDriverVersion(), "nvml": n.nvmlSystemGetNVMLVersion(),
    "cuda": n.nvmlSystemGetCudaDriverVersion(), "count": n.nvmlDeviceGetCount(), "name": n.nvmlDeviceGetName(h),
    "address": pci.busId, "device": pci.pciDeviceId, "subsystem": pci.pciSubSystemId,
    "by_uuid": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h))),
    "by_pci": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId("0000:61:00.0")),
    "total": n.nvmlDeviceGetMemoryInfo(h).total, "reserved": v2.reserved, "free": v2.free,
    "limit": n.nvmlDeviceGetPowerManagementLimit(h), "range": n.nvmlDeviceGetPowerManagementLimitConstraints(h),
    "celsius": n.nvmlDeviceGetTemperature(h, 0), "margin": n.nvmlDeviceGetMarginTemperature(h),
    "threshold": attempt(n.nvmlDeviceGetTemperatureThreshold, h, 0),
    "sm": n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM), "ecc": n.nvmlDeviceGetEccMode(h),
    "errors": n.nvmlDeviceGetTotalEccErrors(h, 1, 1), "rows": n.nvmlDeviceGetRemappedRows(h),
    "banks": n.nvmlDeviceGetRowRemapperHistogram(h).max,
    "retired": attempt(n.nvmlDeviceGetRetiredPages, h, 0), "mig": n.nvmlDeviceGetMigMode(h),
    "links": [n.nvmlDeviceGetNvLinkState(h, link) for link in range(18)], "fabric": fabric.state,
    "capability": n.nvmlDeviceGetCudaComputeCapability(h), "recovery": field.value.uiVal,
    "gen": n.nvmlDeviceGetCurrPcieLinkGeneration(h), "width": n.nvmlDeviceGetCurrPcieLinkWidth(h),
    "processes": n.nvmlDeviceGetComputeRunningProcesses(h), "minor": n.nvmlDeviceGetMinorNumber(h),
    "architecture": n.nvmlDeviceGetArchitecture(h), "utilization": n.nvmlDeviceGetUtilizationRates(h).gpu,
}))
""",
    )
    assert found["driver"] == DRIVER
    assert found["nvml"] == f"13.{DRIVER}"
    assert (found["cuda"], found["count"], found["name"]) == (13000, 8, "NVIDIA H100 80GB HBM3")
    assert (found["address"], found["device"], found["subsystem"]) == (
        "00000000:61:00.0",
        0x233010DE,
        0x16C110DE,
    )
    assert found["by_uuid"] == found["by_pci"] == found["minor"] == 3
    assert found["total"] == 81559 * 2**20
    assert found["free"] == (81559 - 480) * 2**20
    assert (found["limit"], found["range"]) == (700000, [200000, 700000])
    assert (found["celsius"], found["margin"], found["threshold"]) == (29, 58, "NVMLError_NotSupported")
    assert (found["sm"], found["ecc"], found["errors"]) == (1980, [1, 1], 0)
    assert (found["rows"], found["banks"], found["retired"]) == ([0, 0, 0, 0], 2560, "NVMLError_NotSupported")
    assert (found["mig"], sum(found["links"]), found["capability"]) == ([0, 0], 18, [9, 0])
    assert (found["recovery"], found["gen"], found["width"], found["architecture"]) == (0, 5, 16, 9)
    assert (found["processes"], found["utilization"]) == ([], 0)


def test_the_fabric_is_up_only_with_a_manager_of_the_same_version(machine: Machine) -> None:
    script = """
n.nvmlInit()
fabric = n.c_nvmlGpuFabricInfo_v2_t()
n.nvmlDeviceGetGpuFabricInfoV(n.nvmlDeviceGetHandleByIndex(0), n.byref(fabric))
print(fabric.state)
"""
    assert ask(machine, script) == 1
    machine.write("fabric.view", "fabric.version=580.105.08\n")
    assert ask(machine, script) == 2
    machine.write("fabric.view", f"fabric.version={DRIVER}\n")
    assert ask(machine, script) == 3


@pytest.mark.parametrize(
    ("loaded", "error"),
    [(None, "NVMLError_DriverNotLoaded"), ("570.211.01", "NVMLError_LibRmVersionMismatch")],
)
def test_the_library_serves_only_its_own_driver(machine: Machine, loaded: str | None, error: str) -> None:
    if loaded:
        machine.load(loaded)
    else:
        (machine.state / "loaded.view").unlink()
    assert ask(machine, "print(json.dumps(attempt(n.nvmlInit)))") == error


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("gpu.1.state=lost", "NVMLError_GpuIsLost"),
        ("gpu.1.state=unknown_error", "NVMLError_Unknown"),
    ],
)
def test_a_broken_gpu_gives_no_handle_and_leaves_the_others_alone(
    machine: Machine, fault: str, error: str
) -> None:
    machine.fault(fault)
    script = """
n.nvmlInit()
print(json.dumps([attempt(lambda i: n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(i)), i) for i in range(8)]))
"""
    assert ask(machine, script) == [*["NVIDIA H100 80GB HBM3"], error, *["NVIDIA H100 80GB HBM3"] * 6]


def test_a_gpu_lost_between_two_calls_is_lost_at_the_second(machine: Machine) -> None:
    script = f"""
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
before = n.nvmlDeviceGetTemperature(h, 0)
open({str(machine.state / "faults.view")!r}, "w").write("gpu.0.state=lost\\n")
print(json.dumps([before, attempt(n.nvmlDeviceGetTemperature, h, 0)]))
"""
    assert ask(machine, script) == [29, "NVMLError_GpuIsLost"]


def test_a_missing_gpu_is_not_counted(machine: Machine) -> None:
    machine.fault("gpu.7.state=missing")
    assert ask(machine, "n.nvmlInit(); print(n.nvmlDeviceGetCount())") == 7


def test_counters_are_switched_like_any_other_value(machine: Machine) -> None:
    machine.fault("gpu.2.remap_pending=1", "gpu.2.ecc_aggregate_uncorrected=3", "gpu.2.nvlink.5=0")
    script = """
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(2)
print(json.dumps([n.nvmlDeviceGetRemappedRows(h)[2], n.nvmlDeviceGetTotalEccErrors(h, 1, 1),
                  n.nvmlDeviceGetNvLinkState(h, 5)]))
"""
    assert ask(machine, script) == [1, 3, 0]


def test_processes_are_those_that_live(machine: Machine) -> None:
    machine.fault("gpu.0.processes=1:512,4194305:100")
    script = """
n.nvmlInit()
found = n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(0))
print(json.dumps([[p.pid, p.usedGpuMemory] for p in found]))
"""
    assert ask(machine, script) == [[1, 512 * 2**20]]


def test_a_hang_hangs_the_gpu_it_is_set_for(machine: Machine) -> None:
    machine.fault("gpu.0.hang=1")
    read = "n.nvmlInit(); print(n.nvmlDeviceGetTemperature(n.nvmlDeviceGetHandleByIndex(%d), 0))"
    assert ask(machine, read % 1) == 29
    with pytest.raises(subprocess.TimeoutExpired):
        ask(machine, read % 0, timeout=2)


@pytest.mark.parametrize(
    ("model", "version", "flavour", "count"),
    [
        ("v100-sxm2", DRIVER, "open", 0),
        ("v100-sxm2", DRIVER, "proprietary", 2),
        ("b200-sxm", DRIVER, "proprietary", 0),
        ("b200-sxm", DRIVER, "open", 2),
    ],
)
def test_a_driver_that_cannot_serve_a_gpu_does_not_show_it(
    machine: Machine, model: str, version: str, flavour: str, count: int
) -> None:
    machine.install(hardware(model, 2))
    machine.load(version, flavour)
    assert ask(machine, "n.nvmlInit(); print(n.nvmlDeviceGetCount())") == count


def test_a_consumer_card_lacks_what_it_lacks(machine: Machine) -> None:
    machine.install(hardware("rtx-4090"))
    script = """
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
print(json.dumps([attempt(f, h) for f in (n.nvmlDeviceGetSerial, n.nvmlDeviceGetEccMode, n.nvmlDeviceGetMigMode)]
    + [attempt(n.nvmlDeviceGetNvLinkState, h, 0), n.nvmlDeviceGetFanSpeed(h)]))
"""
    assert ask(machine, script) == ["NVMLError_NotSupported"] * 4 + [0]


def test_mig_devices_are_found_below_their_gpu_and_by_their_uuid(machine: Machine) -> None:
    document = hardware("h100-sxm", 1, mig=["3g.40gb", "1g.10gb"])
    machine.install(document)
    uuids = [device["uuid"] for device in document["gpus"][0]["mig_devices"]]
    script = """
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
mig = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1)
same = n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(mig))
print(json.dumps({
    "uuids": [n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i)) for i in (0, 1)],
    "third": attempt(n.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 2), "mode": n.nvmlDeviceGetMigMode(gpu),
    "name": n.nvmlDeviceGetName(mig), "memory": n.nvmlDeviceGetMemoryInfo(same).total >> 20,
    "ids": [n.nvmlDeviceGetGpuInstanceId(mig), n.nvmlDeviceGetComputeInstanceId(mig)],
    "parent": n.nvmlDeviceGetUUID(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)),
    "is": [getattr(f, "value", f) for f in map(n.nvmlDeviceIsMigDeviceHandle, (gpu, same))],
    "power": attempt(n.nvmlDeviceGetPowerUsage, mig)}))
"""
    assert ask(machine, script) == {
        "uuids": uuids,
        "third": "NVMLError_NotFound",
        "mode": [1, 1],
        "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "memory": 9984,
        "ids": [7, 0],
        "parent": document["gpus"][0]["uuid"],
        "is": [0, 1],
        "power": "NVMLError_NotSupported",
    }


def test_hosts_older_than_this_machine_can_load_it(machine: Machine) -> None:
    """Debian 11 has glibc 2.31: no newer symbol may be asked for."""
    symbols = subprocess.run(
        ["objdump", "-T", machine.library.resolve()], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", symbols)}
    assert max(versions) <= (2, 31)


def test_what_is_compiled_once_is_kept(native_cache: Path) -> None:
    first = native.build(DRIVER, native_cache)
    written = (first / "nvidia-smi").stat().st_mtime_ns
    assert native.build(DRIVER, native_cache) == first
    assert (first / "nvidia-smi").stat().st_mtime_ns == written
