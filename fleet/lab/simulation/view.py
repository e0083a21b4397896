"""The hardware file as lines of ``key=value``, for the programs on the host that are C and shell.

A simulated host reads, in this order, the files below :data:`FOLDER`; of a key given twice the last
value counts. So a fault is nothing but a line that overrides one of the hardware's.

=================  =========================================================================
hardware.view      from the hardware file; never changes while the host runs
loaded.view        which driver is loaded (``loaded.version``, ``loaded.flavour``); by modprobe
settings.view      what nvidia-smi and nvidia-persistenced set; gone when the driver is unloaded
fabric.view        written by a running fabric manager
benchmarks.view    rates of benchmarks, read by the lab's torch image only
mok.view           that a key was enrolled at a boot
faults.view        faults, switched at run time; kept over reboots
=================  =========================================================================

Inside a container, /run/fleet-lab-gpu/visible.d has a file for each GPU (``3``) or MIG device (``3.1``) that
was given to it. ``/run/fleet-lab-gpu/load/gpu.N`` is locked (fcntl) by whoever runs a simulated benchmark on
GPU N, in a container or not: as long as the lock is held, NVML shows the GPU at work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleet.core.errors import InputError

FOLDER = "/var/lib/fleet-lab-gpu"

# Fields of a GPU that go into the view under their own name when they are there.
_PLAIN = (
    "name", "brand", "architecture", "uuid", "serial", "module_id", "vbios", "temperature_celsius",
    "memory_temperature_celsius", "temperature_margin_celsius", "shutdown_celsius", "slowdown_celsius",
    "fan_percent", "performance_state", "numa_node", "cores", "first_driver", "last_branch", "modules",
    "memory_mib", "memory_reserved_mib", "bar1_mib", "board_part_number", "gpu_part_number",
    "max_operating_celsius", "memory_max_celsius", "target_celsius", "memory_bus_bits", "virtualization_mode",
)  # fmt: skip


def hardware_view(hardware: Mapping[str, Any]) -> str:
    """Text of ``hardware.view``. Power is in milliwatts there, memory in MiB."""
    lines = [f"gpus={len(hardware['gpus'])}", f"nvswitches={len(hardware.get('nvswitches', []))}"]
    lines += [f"kernel={hardware['kernel']['release']}"]
    lines += [f"secure_boot={hardware.get('secure_boot', 'disabled')}"]
    lines += [f"nouveau={int(hardware.get('nouveau', False))}"]
    for index, switch in enumerate(hardware.get("nvswitches", [])):
        lines.append(f"nvswitch.{index}.pci_address={switch['pci_address']}")
    for index, gpu in enumerate(hardware["gpus"]):
        for key, value in _gpu(gpu):
            if "\n" in str(value):
                raise InputError(f"GPU {index}: {key} must not have a line break in it")
            lines.append(f"gpu.{index}.{key}={value}")
    return "\n".join(lines) + "\n"


def benchmarks_view(hardware: Mapping[str, Any]) -> str:
    """Text of ``benchmarks.view``: ``gpu.N.rate.TEST=RATE`` in the test's unit, for simulated benchmarks."""
    return "".join(
        f"gpu.{index}.rate.{test}={rate}\n"
        for index, gpu in enumerate(hardware["gpus"])
        for test, rate in gpu.get("benchmarks", {}).items()
    )


def _gpu(gpu: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield from ((key, gpu[key]) for key in _PLAIN if gpu.get(key) is not None)
    major, _, minor = gpu["compute_capability"].partition(".")
    yield from (("cc_major", major), ("cc_minor", minor), ("pci_address", gpu["pci_address"]))
    yield "pci_device_id", f"{gpu['device']}{gpu['vendor']}"
    yield "pci_subsystem_id", f"{gpu['subsystem_device']}{gpu['subsystem_vendor']}"
    yield "pci_class", gpu["class"]
    for key in ("limit", "min", "max", "draw"):
        if f"power_{key}_w" in gpu:
            yield f"power_{key}_mw", int(gpu[f"power_{key}_w"] * 1000)
    for kind, clocks in (("clock", gpu.get("clocks_mhz", {})), ("max_clock", gpu.get("max_clocks_mhz", {}))):
        yield from ((f"{kind}_{name}_mhz", value) for name, value in clocks.items())
    yield from ((f"inforom_{name}", value) for name, value in gpu.get("inforom", {}).items())
    yield from ((f"tlimit_{name}_celsius", value) for name, value in gpu.get("tlimit_celsius", {}).items())
    pcie = gpu["pcie"]
    yield from (("pcie_gen", pcie["idle_generation"]), ("pcie_max_gen", pcie["generation"]))
    yield from (("pcie_gpu_gen", pcie["generation"]), ("multi_gpu_board", 0))
    yield from (("pcie_width", pcie["width"]), ("pcie_max_width", pcie["width"]))
    yield from (("utilization_gpu", 0), ("utilization_memory", 0), ("memory_used_mib", 0))
    yield from (("utilization_encoder", 0), ("utilization_decoder", 0))
    yield from _reliability(gpu)
    if "nvlink" in gpu:
        link = gpu["nvlink"]
        yield from (("nvlink_links", link["links"]), ("nvlink_version", link["version"]))
        yield "nvlink_speed_mbps", link["speed_mbps"]


def _reliability(gpu: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    if gpu.get("sram_split"):
        yield "sram_split", 1
    if gpu.get("ecc"):
        yield from (("ecc", 1), ("ecc_pending", 1))
        for counter in ("volatile", "aggregate"):
            yield from ((f"ecc_{counter}_{kind}", 0) for kind in ("corrected", "uncorrected"))
    if "rows" in gpu:
        yield "remap_banks", gpu["rows"]["banks"]
        yield from ((f"remap_{key}", 0) for key in ("corrected", "uncorrected", "pending", "failure"))
    if gpu.get("retired_pages"):
        yield from (("retired_single", 0), ("retired_double", 0), ("retired_pending", 0))
    if gpu.get("mig"):
        devices = gpu.get("mig_devices", [])
        yield from (("mig", int(bool(devices))), ("mig_pending", int(bool(devices))))
        yield from mig_view(devices)


def mig_view(devices: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, object]]:
    """Keys, below ``gpu.N.``, of MIG devices as :func:`fleet.lab.simulation.hardware.mig_devices` makes them."""
    yield "mig_devices", len(devices)
    for number, device in enumerate(devices):
        yield from ((f"mig.{number}.{key}", value) for key, value in device.items())
