"""The PCI devices of a machine as files: what is mounted over /sys/bus/pci/devices on a lab host.

Each device is a directory named by its address with the files a driver-independent reader looks at.
A real one is a symbolic link into /sys/devices; readers follow it, so a plain directory will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# GT/s by PCI Express generation, in the kernel's own words.
LINK_SPEEDS = {
    1: "2.5 GT/s PCIe",
    2: "5.0 GT/s PCIe",
    3: "8.0 GT/s PCIe",
    4: "16.0 GT/s PCIe",
    5: "32.0 GT/s PCIe",
    6: "64.0 GT/s PCIe",
}
# What any machine has beside its GPUs, so that nobody learns to take every device for one.
_OTHERS: tuple[Mapping[str, Any], ...] = (
    {"pci_address": "0000:00:00.0", "vendor": "8086", "device": "09a2", "class": "088000"},
    {"pci_address": "0000:00:1f.0", "vendor": "8086", "device": "1b81", "class": "060100"},
    {"pci_address": "0000:02:00.0", "vendor": "1a03", "device": "2000", "class": "030000"},
    {"pci_address": "0000:03:00.0", "vendor": "15b3", "device": "1021", "class": "020700"},
)


def pci_files(hardware: Mapping[str, Any]) -> dict[str, str]:
    """Content by path (``0000:1b:00.0/vendor``) of every PCI device file of ``hardware``."""
    files: dict[str, str] = {}
    taken = {device["pci_address"] for device in [*hardware["gpus"], *hardware.get("nvswitches", [])]}
    others = [device for device in _OTHERS if device["pci_address"] not in taken]
    for device in [*others, *hardware.get("nvswitches", []), *hardware["gpus"]]:
        for name, content in _device_files(device):
            files[f"{device['pci_address']}/{name}"] = f"{content}\n"
    return files


def slot_files(hardware: Mapping[str, Any]) -> dict[str, str]:
    """Content by path (``3/address``) below /sys/bus/pci/slots: one slot for each GPU, in order from 1."""
    return {
        f"{number}/address": f"{gpu['pci_address'].rpartition('.')[0]}\n"
        for number, gpu in enumerate(hardware["gpus"], 1)
    }


def _device_files(device: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "vendor", f"0x{device['vendor']}"
    yield "device", f"0x{device['device']}"
    yield "subsystem_vendor", f"0x{device.get('subsystem_vendor', '0000')}"
    yield "subsystem_device", f"0x{device.get('subsystem_device', '0000')}"
    yield "class", f"0x{device['class']}"
    yield "revision", "0xa1"
    yield "numa_node", str(device.get("numa_node", -1))
    yield "enable", "1"
    yield "modalias", _modalias(device)
    pcie = device.get("pcie", {"generation": 3, "idle_generation": 3, "width": 8})
    yield "current_link_speed", LINK_SPEEDS[pcie["idle_generation"]]
    yield "max_link_speed", LINK_SPEEDS[pcie["generation"]]
    yield "current_link_width", str(pcie["width"])
    yield "max_link_width", str(pcie["width"])


def _modalias(device: Mapping[str, Any]) -> str:
    kind = device["class"].upper()
    return (
        f"pci:v0000{device['vendor'].upper()}d0000{device['device'].upper()}"
        f"sv0000{device.get('subsystem_vendor', '0000').upper()}"
        f"sd0000{device.get('subsystem_device', '0000').upper()}"
        f"bc{kind[:2]}sc{kind[2:4]}i{kind[4:]}"
    )
