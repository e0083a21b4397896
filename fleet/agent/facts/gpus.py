"""Which NVIDIA GPUs and NVSwitches are on the PCI bus, and which driver has each.

From sysfs, so it holds without any driver. A graphics card has functions for sound, USB and serial that
are NVIDIA's too: a GPU is a function of class 0300 or 0302, an NVSwitch a bridge of class 0680. What only
the loaded driver knows (UUID, name, minor) comes from /proc/driver/nvidia. Next: :mod:`.driver`.
"""

from __future__ import annotations

import os

from fleet.agent.facts import read_text, reason_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, List, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("gpus", "nvswitches")
DEVICES = "/sys/bus/pci/devices"
PROC_GPUS = "/proc/driver/nvidia/gpus"

VENDOR = "10de"
GPU_CLASSES = ("0300", "0302")
NVSWITCH_CLASS = "0680"

# Words of /proc/driver/nvidia/gpus/ADDRESS/information.
_INFORMATION = {"GPU UUID": "uuid", "Model": "name", "Device Minor": "minor"}


def hex_number(text: str) -> str:
    """``10de`` for sysfs's ``0x10de``."""
    text = text.strip().lower()
    return text[2:] if text.startswith("0x") else text


def parse_information(text: str) -> Dict[str, str]:
    """{"uuid", "name", "minor"} as texts, those that are there, of a GPU's ``information`` file.

    Until a program opens the GPU for the first time its UUID is written in question marks.
    """
    found: Dict[str, str] = {}
    for line in text.splitlines():
        label, _, value = line.partition(":")
        key = _INFORMATION.get(label.strip())
        if key is not None and value.strip():
            found[key] = value.strip()
    return found


def collect(host: Host) -> Json:
    """The ``gpus`` and ``nvswitches`` parts; a machine without a PCI bus has none of either."""
    gpus: List[Json] = []
    switches: List[Json] = []
    for address in nvidia_functions(host):
        place = DEVICES + "/" + address
        kind = hex_number(read_text(host, place + "/class"))[:4]
        if kind in GPU_CLASSES:
            gpus.append(_gpu(host, address, kind))
        elif kind == NVSWITCH_CLASS:
            device = hex_number(read_text(host, place + "/device"))
            switches.append({"address": address, "device_id": device, "driver": bound_driver(host, address)})
    return {"gpus": gpus, "nvswitches": switches}


def nvidia_functions(host: Host) -> List[str]:
    """The addresses of all of NVIDIA's functions, in order: sysfs writes them with leading zeros."""
    try:
        addresses = sorted(os.listdir(host.path(DEVICES)))
    except FileNotFoundError:
        return []
    found = []
    for address in addresses:
        try:
            # One file for all but NVIDIA's: servers have hundreds of functions.
            with open(host.path(DEVICES + "/" + address + "/vendor"), "rb", buffering=0) as stream:
                vendor = stream.read(16)
        except OSError:
            continue  # unplugged meanwhile
        if hex_number(vendor.decode("ascii", "replace")) == VENDOR:
            found.append(address)
    return found


def bound_driver(host: Host, address: str) -> Optional[str]:
    """The name of the kernel driver that has a PCI function; None when none has."""
    try:
        name = os.path.basename(os.readlink(host.path(DEVICES + "/" + address + "/driver")))
    except OSError:
        return None
    # The module nova_core registers its PCI driver under another spelling.
    return "nova_core" if name.lower().replace("-", "_") in ("novacore", "nova_core") else name


def _gpu(host: Host, address: str, kind: str) -> Json:
    place = DEVICES + "/" + address
    part: Json = {"address": address, "vendor_id": VENDOR}
    for key, name in (
        ("device_id", "device"),
        ("subsystem_vendor_id", "subsystem_vendor"),
        ("subsystem_id", "subsystem_device"),
    ):
        part[key] = hex_number(read_text(host, place + "/" + name))
    part["class"] = kind
    part["driver"] = bound_driver(host, address)
    part.update(_numa_node(host, place))
    part.update(_from_driver(host, address, part["driver"]))
    return part


def _numa_node(host: Host, place: str) -> Json:
    try:
        node = int(read_text(host, place + "/numa_node"))
    except (OSError, ValueError):
        node = -1
    # -1: the firmware does not say, as on machines with one node.
    return {"numa_node": node} if node >= 0 else {"numa_node": None, "numa_node_reason": "not_supported"}


def _from_driver(host: Host, address: str, driver: Optional[str]) -> Json:
    reason = "not_supported" if driver != "nvidia" else "error"
    known: Dict[str, str] = {}
    try:
        known = parse_information(read_text(host, "%s/%s/information" % (PROC_GPUS, address)))
    except FileNotFoundError:
        pass  # the reason says it
    except OSError as error:
        reason = reason_of(error)
    part: Json = {
        "uuid": known.get("uuid"),
        "name": known.get("name"),
        "minor": int(known["minor"]) if known.get("minor", "").isdigit() else None,
    }
    if part["uuid"] is not None and "?" in part["uuid"]:
        part["uuid"], part["uuid_reason"] = None, "not_collected"
    for key in ("uuid", "name", "minor"):
        if part[key] is None:
            part.setdefault(key + "_reason", reason)
    return part
