"""What data takes between GPUs, network adapters and hosts: RDMA ports, their software, IOMMU and ACS.

From sysfs, /proc and the package database; nothing is started and no adapter's tool is asked. Where GPUs and
adapters talk to each other directly, an IOMMU that translates or a bridge that redirects sends all of it
through the processor: :mod:`.pci_bridges` looks at the bridges.
"""

from __future__ import annotations

import os
import re

from fleet.agent.facts import gpus, links, read_text, reason_of, text_or_empty
from fleet.agent.pci_address import IN_SYSFS

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Callable, Dict, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("interconnect",)

INFINIBAND = "/sys/class/infiniband"
SYS_MODULE = "/sys/module"
COMMAND_LINE_LIMIT = 4096

# What goes wrong on a link, of the many counters there are; the second folder is the adapter's own.
ERROR_COUNTERS = (
    ("counters", "symbol_error"),
    ("counters", "link_error_recovery"),
    ("counters", "link_downed"),
    ("counters", "port_rcv_errors"),
    ("counters", "port_rcv_remote_physical_errors"),
    ("counters", "port_rcv_switch_relay_errors"),
    ("counters", "port_rcv_constraint_errors"),
    ("counters", "port_xmit_discards"),
    ("counters", "port_xmit_constraint_errors"),
    ("counters", "local_link_integrity_errors"),
    ("counters", "excessive_buffer_overrun_errors"),
    ("counters", "VL15_dropped"),
    ("hw_counters", "out_of_sequence"),
    ("hw_counters", "packet_seq_err"),
    ("hw_counters", "local_ack_timeout_err"),
    ("hw_counters", "rx_icrc_encapsulated"),
)

# A package of each, the one that names the release best first.
OFED_PACKAGES = (
    "mlnx-ofed-kernel-utils",
    "mlnx-ofed-kernel-dkms",
    "mlnx-ofed-kernel-modules",
    "mlnx-ofa_kernel",
)
DOCA_PACKAGES = ("doca-ofed", "doca-all", "doca-networking", "doca-host")

# Compiled where they are used: most hosts have no adapter.
_NUMBER = r"\d+(?:\.\d+)?"
_VERSION = r"\d+(?:\.\d+)+(?:-\d+(?:\.\d+)*)?"
_OFED = r"(?:MLNX_OFED_LINUX|OFED-internal)-(\d+\.\d+(?:-\d+(?:\.\d+)*)?)"
# As NVIDIA numbers it; the kernel's own module says 5.0-0 or nothing.
_OFED_MODULE = r"\d+\.\d+-\d+\.\d+\.\d+(?:\.\d+)?"


def word(text: str) -> str:
    """``active`` for ``4: ACTIVE``, ``link_up`` for ``5: LinkUp``: sysfs's word without its number."""
    bare = text.partition(":")[2].strip() or text.strip()
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", bare).lower()


def gbit_per_s(text: str) -> Optional[float]:
    """100.0 for ``100 Gb/sec (4X EDR)``; None for what begins with no number."""
    match = re.match(_NUMBER, text.strip())
    return float(match.group()) if match is not None else None


def ofed_of(script: str) -> Optional[str]:
    """``24.10-1.1.4`` of the text of ``ofed_info``, a script that has its version written in it."""
    match = re.search(_OFED, script)
    return match.group(1) if match is not None else None


def collect(host: Host) -> Json:
    """The ``interconnect`` part."""
    nvidia = gpus.nvidia_functions(host)
    part: Json = {"ports": _ports(host)}
    versions = {
        "ofed_version": _ofed(host),
        "doca_version": _packaged(host, DOCA_PACKAGES),
        "nvidia_fs_version": _nvidia_fs(host),
        "gdrcopy_version": _module_version(host, "gdrdrv"),
    }
    for name, version in versions.items():
        part[name] = version
        if version is None:
            part[name + "_reason"] = "not_supported"
    part["gpu_direct"] = _gpu_direct(host)
    part["iommu"] = _iommu(host, nvidia)
    part.update(_acs(host, nvidia))
    part["kernel_command_line"] = text_or_empty(host, "/proc/cmdline")[:COMMAND_LINE_LIMIT]
    return {"interconnect": part}


def complete(part: Json, installed: Dict[str, str]) -> None:
    """Fill in what only rpm knows: ``installed`` (name -> version) is what the packages group was told."""
    for name, packages in (("ofed_version", OFED_PACKAGES), ("doca_version", DOCA_PACKAGES)):
        version = _first(installed.get, packages)
        if part[name] is None and version is not None:
            part[name] = version
            del part[name + "_reason"]


# -- ports ------------------------------------------------------------------------------------------------


def _ports(host: Host) -> List[Json]:
    found = []
    for device in links.names_in(host, INFINIBAND):
        place = links.resolve(host, "%s/%s" % (INFINIBAND, device))
        numbers = [name for name in links.names_in(host, place + "/ports") if name.isdigit()]
        for number in sorted(numbers, key=int):
            found.append(_port(host, device, place, int(number)))
    return found


def _port(host: Host, device: str, place: str, number: int) -> Json:
    folder = "%s/ports/%d" % (place, number)
    function = links.resolve(host, place + "/device")
    address = os.path.basename(function)
    node = text_or_empty(host, function + "/numa_node")
    physical = text_or_empty(host, folder + "/phys_state")
    port: Json = {
        "device": device,
        "port": number,
        "address": address if re.fullmatch(IN_SYSFS, address) else None,
        "link_layer": text_or_empty(host, folder + "/link_layer").lower() or "unknown",
        "state": word(text_or_empty(host, folder + "/state")) or "unknown",
        "physical_state": word(physical) or None,
        "rate_gbit_s": gbit_per_s(text_or_empty(host, folder + "/rate")),
        "firmware": text_or_empty(host, place + "/fw_ver") or None,
        "netdev": _netdev(host, folder, function, number),
        # -1: the firmware does not say, as on machines with one node.
        "numa_node": int(node) if node.isdigit() else None,
        "errors": _errors(host, folder),
    }
    for name in ("address", "physical_state", "rate_gbit_s", "firmware", "netdev", "numa_node"):
        if port[name] is None:
            port[name + "_reason"] = "not_supported"
    return port


def _netdev(host: Host, folder: str, function: str, number: int) -> Optional[str]:
    """The network interface of a port: RoCE's by its address table, else by the function they share."""
    named = text_or_empty(host, folder + "/gid_attrs/ndevs/0")
    if named:
        return named
    names = links.names_in(host, function + "/net")
    if len(names) == 1:
        return names[0]
    own = [
        name
        for name in names
        if text_or_empty(host, "%s/net/%s/dev_port" % (function, name)) == str(number - 1)
    ]
    return own[0] if len(own) == 1 else None


def _errors(host: Host, folder: str) -> Dict[str, int]:
    found = {}
    for kind, name in ERROR_COUNTERS:
        # A port that is not managed answers EINVAL, or words.
        value = text_or_empty(host, "%s/%s/%s" % (folder, kind, name))
        if value.isdigit():
            found[name] = int(value)
    return found


# -- software ---------------------------------------------------------------------------------------------


def _ofed(host: Host) -> Optional[str]:
    script = text_or_empty(host, links.resolve(host, "/usr/bin/ofed_info"), 1 << 16)
    found = ofed_of(script) if script else None
    if found is not None:
        return found
    module = _module_version(host, "mlx5_core")
    if module is not None and re.fullmatch(_OFED_MODULE, module) is not None:
        return module
    return _packaged(host, OFED_PACKAGES)


def _packaged(host: Host, names: Tuple[str, ...]) -> Optional[str]:
    """The version of the first of some packages that dpkg has installed."""

    def version(name: str) -> Optional[str]:
        state = host.dpkg.get(name)
        return state.version if state is not None and state.installed else None

    if not os.path.exists(host.path("/var/lib/dpkg/status")):
        return None
    return _first(version, names)


def _first(version: Callable[[str], Optional[str]], names: Tuple[str, ...]) -> Optional[str]:
    """The upstream version of the first of some packages that has one."""
    for name in names:
        found = version(name)
        if found is not None:
            return found.rpartition(":")[2]
    return None


def _nvidia_fs(host: Host) -> Optional[str]:
    text = text_or_empty(host, "/proc/driver/nvidia-fs/version")
    match = re.search(_VERSION, text) if text else None
    return match.group() if match is not None else _module_version(host, "nvidia_fs")


def _module_version(host: Host, name: str) -> Optional[str]:
    return text_or_empty(host, "%s/%s/version" % (SYS_MODULE, name)) or None


def _loaded(host: Host, name: str) -> bool:
    return os.path.exists(host.path("%s/%s/initstate" % (SYS_MODULE, name)))


# -- the direct path between GPU and adapter ---------------------------------------------------------------


def _gpu_direct(host: Host) -> Json:
    # The module's name before it came with the driver.
    part: Json = {"nvidia_peermem": _loaded(host, "nvidia_peermem") or _loaded(host, "nv_peer_mem")}
    part["dma_buf"], reason = _dma_buf(host)
    if part["dma_buf"] is None:
        part["dma_buf_reason"] = reason
    return part


def _dma_buf(host: Host) -> Tuple[Optional[bool], str]:
    """Whether an adapter can take GPU memory by dma-buf: open kernel modules, Linux 5.12, its support built in.

    https://docs.nvidia.com/cuda/gpudirect-rdma and NVIDIA's network operator name these three.
    """
    from fleet.agent.facts import driver

    loaded = driver.parse_version(text_or_empty(host, driver.PROC_VERSION))
    if loaded is None:
        return None, "not_supported"
    if loaded["flavour"] != "open":
        return False, ""
    release = text_or_empty(host, "/proc/sys/kernel/osrelease")
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers is None:
        return None, "error"
    if (int(numbers.group(1)), int(numbers.group(2))) < (5, 12):
        # Enterprise kernels take over what newer ones have, under their old number.
        return (None, "not_supported") if ".el" in release else (False, "")
    try:
        config = read_text(host, "/boot/config-" + release)
    except OSError as error:
        return None, reason_of(error)
    return re.search(r"^CONFIG_DMA_SHARED_BUFFER=y$", config, re.MULTILINE) is not None, ""


def _iommu(host: Host, nvidia: List[str]) -> Json:
    """Groups there are, and whether the IOMMU translates for NVIDIA's functions (without any: for others).

    With ``iommu=pt`` there are groups too, and nothing is translated: a group's type says it.
    """
    groups = links.names_in(host, "/sys/kernel/iommu_groups")
    part: Json = {"groups": len(groups), "translating": None}
    if not groups:
        part["translating"] = False
        return part
    own = {
        os.path.basename(links.resolve(host, "%s/%s/iommu_group" % (gpus.DEVICES, address)))
        for address in nvidia
    }
    types = set()
    for group in sorted(own & set(groups)) or groups:
        types.add(text_or_empty(host, "/sys/kernel/iommu_groups/%s/type" % group))
    if any(kind.startswith("DMA") for kind in types):
        part["translating"] = True
    elif types <= {"identity"}:
        part["translating"] = False
    else:  # given to virtual machines, or a kernel that does not say
        part["translating_reason"] = "not_supported"
    return part


def _acs(host: Host, nvidia: List[str]) -> Json:
    """``acs_redirect``: the bridges above GPUs that send traffic between their children upwards."""
    addresses = [one for one in nvidia if _class(host, one) in gpus.GPU_CLASSES]
    if not addresses:
        return {"acs_redirect": None, "acs_redirect_reason": "not_supported"}
    from fleet.agent.facts import pci_bridges

    try:
        bridges = pci_bridges.above(host, addresses)
        return {"acs_redirect": [one for one in bridges if pci_bridges.redirects(host, one)]}
    except (OSError, ValueError) as error:
        return {"acs_redirect": None, "acs_redirect_reason": reason_of(error)}


def _class(host: Host, address: str) -> str:
    return gpus.hex_number(text_or_empty(host, "%s/%s/class" % (gpus.DEVICES, address)))[:4]
