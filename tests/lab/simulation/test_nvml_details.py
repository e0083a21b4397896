"""What a full probe asks of the simulated NVML library: numbers of boards, errors, links, the fabric, load, hangs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleet.lab.simulation.hardware import hardware
from tests.lab.simulation.conftest import Machine
from tests.lab.simulation.test_nvml import ask

pytest.importorskip("pynvml", reason="nvidia-ml-py is a development dependency")

_FIRST = """
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
def ask(name, *arguments):
    return attempt(getattr(n, name), h, *arguments)
def field(number, scope=0):
    value, = n.nvmlDeviceGetFieldValues(h, [(number, scope)])
    return value.value.siVal if value.valueType == n.NVML_VALUE_TYPE_SIGNED_INT else value.value.uiVal, value.nvmlReturn
"""


def first(machine: Machine, script: str) -> Any:
    """What ``script`` says of the first GPU, ``h``."""
    return ask(machine, _FIRST + script)


def test_a_board_has_its_numbers(machine: Machine) -> None:
    script = """
print(json.dumps([ask("nvmlDeviceGetBoardPartNumber"), ask("nvmlDeviceGetInforomImageVersion"),
    [ask("nvmlDeviceGetInforomVersion", o) for o in (0, 1, 2)], ask("nvmlDeviceGetBoardId"),
    ask("nvmlDeviceGetModuleId"), ask("nvmlDeviceGetVirtualizationMode"), ask("nvmlDeviceGetMultiGpuBoard")]))
"""
    assert first(machine, script) == [
        *("692-2G520-0200-000", "G520.0200.00.05", ["2.1", "7.16", "NVMLError_NotSupported"], 0x1B00),
        *(1, 0, 0),
    ]


def test_a_consumer_card_has_no_numbers_and_no_counters(machine: Machine) -> None:
    machine.install(hardware("rtx-4090"))
    script = """
print(json.dumps([ask("nvmlDeviceGetBoardPartNumber"), ask("nvmlDeviceGetInforomVersion", 1),
    ask("nvmlDeviceGetModuleId"), ask("nvmlDeviceGetTotalEccErrors", 1, 0),
    ask("nvmlDeviceGetMemoryErrorCounter", 1, 0, 7), ask("nvmlDeviceGetRetiredPages", 0),
    ask("nvmlDeviceGetNvLinkState", 0), ask("nvmlDeviceGetApplicationsClock", 0)]
    + [ask("nvmlDeviceGetInforomVersion", 0), ask("nvmlDeviceGetTemperatureThreshold", 1), field(82)[1], field(230)]))
"""
    assert first(machine, script) == [*["NVMLError_NotSupported"] * 8, "2.0", 97, 3, [0, 0]]


def test_errors_are_counted_by_place(machine: Machine) -> None:
    machine.fault("gpu.0.ecc_volatile_uncorrected=5", "gpu.0.ecc_volatile_sram_uncorrected=2",
                  "gpu.0.ecc_sram_threshold_exceeded=1", "gpu.0.ecc_aggregate_dram_corrected=7")  # fmt: skip
    script = """
sram = n.c_nvmlEccSramErrorStatus_v1_t()
n.nvmlDeviceGetSramEccErrorStatus(h, n.byref(sram))
print(json.dumps([[ask("nvmlDeviceGetMemoryErrorCounter", 1, 0, place) for place in (7, 2, 0)],
    ask("nvmlDeviceGetTotalEccErrors", 1, 0), ask("nvmlDeviceGetTotalEccErrors", 0, 1), field(4), field(5),
    sram.volatileUncParity, sram.bThresholdExceeded]))
"""
    assert first(machine, script) == [[2, 3, "NVMLError_NotSupported"], 5, 7, [5, 0], [7, 0], 2, 1]


def test_older_gpus_retire_pages_and_newer_ones_remap_rows(machine: Machine) -> None:
    script = """
print(json.dumps([attempt(lambda: len(n.nvmlDeviceGetRetiredPages(h, 0))),
    ask("nvmlDeviceGetRetiredPagesPendingStatus"), ask("nvmlDeviceGetRemappedRows"),
    attempt(lambda: n.nvmlDeviceGetRowRemapperHistogram(h).low)]))
"""
    machine.fault("gpu.0.remap_corrected=1", "gpu.0.remap_failure=1", "gpu.0.remap_low=2")
    refused = "NVMLError_NotSupported"
    assert first(machine, script) == [refused, refused, [1, 0, 0, 1], 2]
    machine.install(hardware("t4", 2))
    machine.fault("gpu.0.retired_single=3", "gpu.0.retired_pending=1")
    assert first(machine, script) == [3, 1, refused, refused]


def test_limits_of_heat_are_relative_on_hopper_and_absolute_on_turing(machine: Machine) -> None:
    script = """
print(json.dumps([[field(f) for f in (193, 194, 195, 196)],
    [ask("nvmlDeviceGetTemperatureThreshold", t) for t in (0, 1, 3)]]))
"""
    assert first(machine, script) == [[[-8, 0], [-2, 0], [0, 0], [0, 0]], ["NVMLError_NotSupported"] * 3]
    machine.install(hardware("t4"))
    assert first(machine, script) == [[[0, 3]] * 4, [96, 93, 85]]


def test_links_have_speeds_ends_and_counters(machine: Machine) -> None:
    machine.fault("gpu.0.nvlink.2=0", "gpu.0.nvlink.3.crc_flit_errors=9")
    script = """
pci = n.nvmlDeviceGetNvLinkRemotePciInfo(h, 1)
print(json.dumps([pci.busId, n.nvmlDeviceGetNvLinkRemoteDeviceType(h, 1), n.nvmlDeviceGetNvLinkVersion(h, 1),
    [field(164, link) for link in (1, 2, 18)], field(90), field(91),
    [ask("nvmlDeviceGetNvLinkState", l) for l in (2, 18)],
    [ask("nvmlDeviceGetNvLinkErrorCounter", 3, c) for c in (0, 2)], ask("nvmlDeviceGetNvLinkRemotePciInfo", 2)]))
"""
    assert first(machine, script) == [
        *("00000000:08:00.0", 2, 6, [[26562, 0], [0, 0], [0, 2]], [26562, 0], [18, 0]),
        *([0, "NVMLError_InvalidArgument"], [0, 9], "NVMLError_NotSupported"),
    ]


def test_the_fabric_has_a_status_and_a_health(machine: Machine) -> None:
    machine.write("fabric.view", "fabric.version=580.159.03\n")
    script = """
found = []
for made in (n.c_nvmlGpuFabricInfo_v2_t, n.c_nvmlGpuFabricInfo_v3_t):
    fabric = made()
    n.nvmlDeviceGetGpuFabricInfoV(h, n.byref(fabric))
    found.append([fabric.state, fabric.status, fabric.healthMask, getattr(fabric, "healthSummary", None)])
print(json.dumps(found))
"""
    well = 0b01_10_10_10_10
    assert first(machine, script) == [[3, 0, well, None], [3, 0, well, 1]]
    machine.fault("gpu.0.fabric_degraded_bandwidth=1")
    assert first(machine, script)[1] == [3, 0, 0b01_10_10_10_01, 3]
    machine.fault(
        "gpu.0.fabric_route_unhealthy=1", "gpu.0.fabric_incorrect_configuration=5", "gpu.0.fabric_status=999"
    )
    assert first(machine, script)[1] == [3, 999, 0b0101_10_01_10_10, 2]
    machine.fault("gpu.0.fabric_state=2")
    assert first(machine, script)[0][0] == 2


def test_gpus_meet_at_sockets_and_see_each_other(machine: Machine) -> None:
    script = """
o, far = n.nvmlDeviceGetHandleByIndex(1), n.nvmlDeviceGetHandleByIndex(7)
print(json.dumps([n.nvmlDeviceGetTopologyCommonAncestor(h, o), n.nvmlDeviceGetTopologyCommonAncestor(h, far),
    n.nvmlDeviceGetP2PStatus(h, o, 0), n.nvmlDeviceGetP2PStatus(h, far, 2), list(n.nvmlDeviceGetCpuAffinity(far, 2)),
    list(n.nvmlDeviceGetMemoryAffinity(far, 1, 0))]))
"""
    assert first(machine, script) == [40, 50, 0, 0, [(2**32 - 1) << 32, 0], [2]]
    machine.fault("gpu.1.p2p=4", "gpu.7.topology=20")
    assert first(machine, script)[:4] == [40, 20, 4, 0]


def test_a_narrow_and_a_slow_link_show(machine: Machine) -> None:
    machine.fault("gpu.0.pcie.width=8", "gpu.0.pcie.generation=3", "gpu.0.pcie_replays=11")
    script = """
print(json.dumps([ask("nvmlDeviceGet" + name) for name in ("CurrPcieLinkWidth", "MaxPcieLinkWidth",
    "CurrPcieLinkGeneration", "MaxPcieLinkGeneration", "GpuMaxPcieLinkGeneration", "PcieReplayCounter")]))
"""
    assert first(machine, script) == [8, 16, 3, 5, 5, 11]


_AT_WORK = """
print(json.dumps([ask("nvmlDeviceGetCurrPcieLinkGeneration"), n.nvmlDeviceGetUtilizationRates(h).gpu,
    ask("nvmlDeviceGetClockInfo", 1), ask("nvmlDeviceGetPowerUsage") // 1000, ask("nvmlDeviceGetTemperature", 0),
    ask("nvmlDeviceGetPerformanceState"), ask("nvmlDeviceGetCurrentClocksEventReasons")]))
"""


def test_a_gpu_at_work_shows_it_and_rests_afterwards(machine: Machine) -> None:
    machine.install(hardware("rtx-4090", 2))
    idle = [1, 0, 210, 21, 34, 8, 1]
    assert first(machine, _AT_WORK) == idle
    with machine.busy(0):
        assert first(machine, _AT_WORK) == [4, 98, 3105, 396, 64, 0, 0]
        machine.fault(
            "gpu.0.pcie.load_generation=1", "gpu.0.clock_sm_mhz=800", "gpu.0.clocks_event_reasons=64"
        )
        assert first(machine, _AT_WORK) == [1, 98, 800, 396, 64, 0, 64]
    machine.fault()
    with machine.busy(1):
        assert first(machine, _AT_WORK) == idle
    assert first(machine, _AT_WORK) == idle


def test_one_function_hangs_and_the_others_answer(machine: Machine) -> None:
    machine.fault("gpu.0.hang_in=nvmlDeviceGetUtilizationRates")
    assert first(machine, 'print(ask("nvmlDeviceGetTemperature", 0))') == 29
    other = "n.nvmlInit(); print(n.nvmlDeviceGetUtilizationRates(n.nvmlDeviceGetHandleByIndex(1)).gpu)"
    assert ask(machine, other) == 0
    with pytest.raises(subprocess.TimeoutExpired):
        ask(machine, other.replace("(1)", "(0)"), timeout=2)
    # Named without its version, the function hangs in all of its versions.
    machine.fault("hang_in=nvmlDeviceGetMemoryInfo")
    with pytest.raises(subprocess.TimeoutExpired):
        ask(machine, _FIRST + "n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2)", timeout=2)


def test_mps_and_graphics_have_lists_of_their_own(machine: Machine) -> None:
    machine.fault("gpu.0.processes=1:100", "gpu.0.mps_processes=1:30", "gpu.0.graphics_processes=1:7")
    script = """
print(json.dumps([[p.usedGpuMemory >> 20 for p in f(h)] for f in (n.nvmlDeviceGetComputeRunningProcesses,
    n.nvmlDeviceGetMPSComputeRunningProcesses, n.nvmlDeviceGetGraphicsRunningProcesses)]))
"""
    assert first(machine, script) == [[100], [30], [7]]


@pytest.mark.parametrize(
    ("driver", "lacking"),
    [
        ("418.226.00", ["Architecture", "MigMode", "RemappedRows", "ComputeRunningProcesses_v3", "MemoryInfo_v2",
                        "GpuMaxPcieLinkGeneration", "GpuFabricInfo", "GspFirmwareVersion", "ModuleId"]),
        ("535.309.01", ["GpuFabricInfoV", "SramEccErrorStatus", "MarginTemperature", "TemperatureV"]),
        ("580.159.03", []),
    ],
)  # fmt: skip
def test_a_library_lacks_what_came_later(
    machine: Machine, native_cache: Path, driver: str, lacking: list[str]
) -> None:
    machine.use(driver, native_cache)
    every = ["Architecture", "MigMode", "RemappedRows", "ComputeRunningProcesses_v3", "MemoryInfo_v2",
             "GpuMaxPcieLinkGeneration", "GpuFabricInfo", "GspFirmwareVersion", "ModuleId", "GpuFabricInfoV",
             "SramEccErrorStatus", "MarginTemperature", "TemperatureV"]  # fmt: skip
    script = f"""
print(json.dumps([name for name in {every!r} if not hasattr(n.nvmlLib, "nvmlDeviceGet" + name)]))
"""
    found = ask(machine, script)
    assert set(found) >= set(lacking)
    assert bool(found) == bool(lacking)


def test_the_first_kind_of_process_entries_is_shorter(machine: Machine, native_cache: Path) -> None:
    machine.install(hardware("t4"))
    machine.use("418.226.00", native_cache, "proprietary")
    machine.fault("gpu.0.processes=1:64")
    script = """
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]
n.nvmlInit()
h, count, room = n.nvmlDeviceGetHandleByIndex(0), ctypes.c_uint(4), (Process * 4)()
assert n.nvmlLib.nvmlDeviceGetComputeRunningProcesses(h, ctypes.byref(count), room) == 0
print(json.dumps([count.value, room[0].pid, room[0].memory >> 20]))
"""
    assert ask(machine, script) == [1, 1, 64]
