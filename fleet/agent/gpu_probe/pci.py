"""What the PCI bus says of a GPU that NVML was asked about, and which GPUs are on it and not in NVML's list."""

from __future__ import annotations

import os
import re

from fleet.agent.facts import text_or_empty
from fleet.agent.facts.gpus import DEVICES
from fleet.agent.gpu_probe.device import set_absent, set_value

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, List, Optional, Set, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

SLOTS = "/sys/bus/pci/slots"
DRIVER = "nvidia"
# GT/s of sysfs's max_link_speed -> generation.
_GENERATIONS = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32.0": 5, "64.0": 6}
_SPEED = re.compile(r"([\d.]+) GT/s")


def order(address: str) -> Tuple[int, ...]:
    """Sorts addresses as the bus has them: ``10000:01:00.0`` comes after ``0001:01:00.0``."""
    return tuple(int(part, 16) for part in re.split("[:.]", address))


def join(host: Host, device: Json, gpu: Optional[Json]) -> None:
    """NUMA node, the host's side of the link, and whether the link was looked at under load."""
    node = gpu.get("numa_node") if gpu is not None else None
    if node is not None:
        set_value(device, "numa_node", node)
    else:
        set_absent(device, "numa_node", "not_supported")  # the firmware does not say
    generation = _host_generation(host, device["address"])
    if generation is not None:
        set_value(device, "pcie.generation_max_host", generation)
    else:
        set_absent(device, "pcie.generation_max_host", "not_supported")
    device["pcie"]["sampled_under_load"] = under_load(device)


def _host_generation(host: Host, address: str) -> Optional[int]:
    """The generation that the port above a GPU can do; None where sysfs does not say (a root complex's own)."""
    folder = os.path.dirname(os.path.realpath(host.path("%s/%s" % (DEVICES, address))))
    try:
        with open(folder + "/max_link_speed", encoding="ascii", errors="replace") as stream:
            found = _SPEED.search(stream.read(64))
    except OSError:
        return None
    return _GENERATIONS.get(found.group(1)) if found is not None else None


def under_load(device: Json) -> bool:
    """Whether the GPU was at work: at rest it lets its link down, which says nothing of its health."""
    if device["gpu_utilization_percent"]:
        return True
    reasons = device["clocks_event_reasons"]
    return bool(device["processes"]) and reasons is not None and "gpu_idle" not in reasons


def missing(host: Host, on_pci: List[Json], found: Set[str]) -> List[Json]:
    """The ``missing`` part: GPUs of the bus that belong to NVIDIA's driver, and that nobody else listed.

    One bound to no driver counts while another has NVIDIA's: a GPU whose probe failed looks like that. One
    given to a virtual machine (vfio-pci) does not.
    """
    some_bound = any(gpu["driver"] == DRIVER for gpu in on_pci)
    gone = [
        gpu
        for gpu in on_pci
        if gpu["address"] not in found and (gpu["driver"] == DRIVER or (gpu["driver"] is None and some_bound))
    ]
    slots = _slots(host) if gone else {}
    return [
        {
            "address": gpu["address"],
            "slot": slots.get(gpu["address"].partition(".")[0]),
            "name": gpu.get("name"),
        }
        for gpu in gone
    ]


def _slots(host: Host) -> Dict[str, str]:
    """Address without its function -> the name of the slot, which is what is printed on the chassis."""
    try:
        names = os.listdir(host.path(SLOTS))
    except OSError:
        return {}
    found = {text_or_empty(host, "%s/%s/address" % (SLOTS, name)): name for name in sorted(names)}
    found.pop("", None)
    return found
