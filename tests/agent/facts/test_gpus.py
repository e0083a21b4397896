"""GPUs are told from their other functions, from NVSwitches and from other vendors' cards, by sysfs alone."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent import facts
from fleet.agent.facts import gpus

from .test_facts_document import check

INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 411
GPU UUID: \t GPU-0a1b2c3d-0000-4000-8000-000000000001
Video BIOS: \t 96.00.99.00.01
Bus Type: \t PCIe
Bus Location: \t 0000:05:00.0
Device Minor: \t 3
GPU Firmware: \t 580.159.03
"""


def function(host: Any, address: str, vendor: str, device: str, kind: str, driver: str | None = None) -> None:
    """A PCI function as sysfs shows it."""
    place = f"/sys/bus/pci/devices/{address}/"
    for name, value in (
        ("vendor", vendor),
        ("device", device),
        ("class", kind),
        ("subsystem_vendor", "10de"),
        ("subsystem_device", "16c1"),
    ):
        host.write(place + name, f"0x{value}\n")
    host.write(place + "numa_node", "1\n")
    if driver:
        host.link(place + "driver", f"../../../../bus/pci/drivers/{driver}")


def collect(host: Any) -> dict[str, Any]:
    document = facts.collect(host, ["gpus"])
    check(document)
    return document


def test_only_display_and_compute_functions_of_nvidia_are_gpus(host: Any) -> None:
    function(host, "0000:01:00.0", "10de", "22a3", "068000", "nvidia-nvswitch")
    function(host, "0000:05:00.0", "10de", "2330", "030200", "nvidia")
    function(host, "0000:06:00.0", "10de", "ffff", "030200")  # a device nobody has a name for
    function(host, "0000:3d:00.0", "10de", "1e30", "030000")
    function(host, "0000:3d:00.1", "10de", "10f7", "040300")
    function(host, "0000:3d:00.2", "10de", "1ad6", "0c0330")
    function(host, "0000:3d:00.3", "10de", "1ad7", "0c8000")
    function(host, "0000:c3:00.0", "1a03", "2000", "030000")
    function(host, "000a:00:00.0", "10de", "2330", "030200")
    document = collect(host)
    assert [gpu["address"] for gpu in document["gpus"]] == [
        "0000:05:00.0",
        "0000:06:00.0",
        "0000:3d:00.0",
        "000a:00:00.0",
    ]
    assert document["nvswitches"] == [
        {"address": "0000:01:00.0", "device_id": "22a3", "driver": "nvidia-nvswitch"}
    ]


def test_what_the_driver_knows_of_a_gpu(host: Any) -> None:
    function(host, "0000:05:00.0", "10de", "2330", "030200", "nvidia")
    host.write("/proc/driver/nvidia/gpus/0000:05:00.0/information", INFORMATION)
    (gpu,) = collect(host)["gpus"]
    assert gpu == {
        "address": "0000:05:00.0",
        "vendor_id": "10de",
        "device_id": "2330",
        "subsystem_vendor_id": "10de",
        "subsystem_id": "16c1",
        "class": "0302",
        "driver": "nvidia",
        "numa_node": 1,
        "uuid": "GPU-0a1b2c3d-0000-4000-8000-000000000001",
        "name": "NVIDIA H100 80GB HBM3",
        "minor": 3,
    }


def test_the_uuid_of_a_gpu_that_nobody_opened_yet_is_not_known(host: Any) -> None:
    function(host, "0000:05:00.0", "10de", "2330", "030200", "nvidia")
    unopened = INFORMATION.replace(
        "GPU-0a1b2c3d-0000-4000-8000-000000000001", "GPU-????????-????-????-????-????????????"
    )
    host.write("/proc/driver/nvidia/gpus/0000:05:00.0/information", unopened)
    (gpu,) = collect(host)["gpus"]
    assert (gpu["uuid"], gpu["uuid_reason"], gpu["minor"]) == (None, "not_collected", 3)


@pytest.mark.parametrize(
    ("bound", "driver"),
    [
        ("nouveau", "nouveau"),
        ("NovaCore", "nova_core"),
        ("nova_core", "nova_core"),
        ("vfio-pci", "vfio-pci"),
        (None, None),
    ],
)
def test_the_bound_driver_is_that_of_each_gpu(host: Any, bound: str | None, driver: str | None) -> None:
    function(host, "0000:05:00.0", "10de", "2330", "030200", bound)
    function(host, "0000:06:00.0", "10de", "2330", "030200", "nvidia")
    first, second = collect(host)["gpus"]
    assert (first["driver"], first["uuid_reason"]) == (driver, "not_supported")
    assert (second["driver"], second["uuid_reason"]) == ("nvidia", "error")  # bound, and yet it says nothing


def test_an_unknown_numa_node_is_null(host: Any) -> None:
    function(host, "0000:05:00.0", "10de", "2330", "030200")
    host.write("/sys/bus/pci/devices/0000:05:00.0/numa_node", "-1\n")
    (gpu,) = collect(host)["gpus"]
    assert (gpu["numa_node"], gpu["numa_node_reason"]) == (None, "not_supported")


def test_a_machine_without_a_pci_bus_has_no_gpus(host: Any) -> None:
    assert gpus.collect(host) == {"gpus": [], "nvswitches": []}
