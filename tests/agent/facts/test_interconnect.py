"""RDMA ports, their software and what stands between GPUs and adapters, from trees as sysfs has them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from fleet.agent import facts
from fleet.agent.facts import interconnect, pci_bridges

from .test_facts_document import check
from .test_gpus import function

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Thu Oct  6 21:38:55 UTC 2022\n"


def collect(host: Any, *groups: str) -> dict[str, Any]:
    document = facts.collect(host, [*groups, "interconnect"])
    check(document)
    part = document["interconnect"]
    assert isinstance(part, dict), document["errors"]
    return part


def adapter(host: Any, device: str, address: str, *, netdev: str | None = None, **port: str) -> None:
    """An RDMA device of one port, with sysfs's links."""
    place = f"/sys/devices/pci0000:00/0000:00:01.0/{address}"
    values = {
        "state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand",
        "counters/symbol_error": "0", "counters/link_downed": "3", "counters/port_xmit_discards": "N/A (no PMA)",
        "hw_counters/out_of_sequence": "17",
    } | {name.replace("__", "/"): value for name, value in port.items()}  # fmt: skip
    for name, value in values.items():
        host.write(f"{place}/infiniband/{device}/ports/1/{name}", value + "\n")
    host.write(f"{place}/infiniband/{device}/fw_ver", "28.39.1002\n")
    host.link(f"{place}/infiniband/{device}/device", "../..")
    host.link(
        f"/sys/class/infiniband/{device}",
        f"../../devices/pci0000:00/0000:00:01.0/{address}/infiniband/{device}",
    )
    host.write(f"{place}/numa_node", "1\n")
    if netdev:
        host.write(f"{place}/net/{netdev}/dev_port", "0\n")


def test_an_infiniband_port(host: Any) -> None:
    adapter(host, "mlx5_0", "0000:1a:00.0", netdev="ib0")
    (port,) = collect(host)["ports"]
    assert port == {
        "device": "mlx5_0",
        "port": 1,
        "address": "0000:1a:00.0",
        "link_layer": "infiniband",
        "state": "active",
        "physical_state": "link_up",
        "rate_gbit_s": 400.0,
        "firmware": "28.39.1002",
        "netdev": "ib0",
        "numa_node": 1,
        "errors": {"symbol_error": 0, "link_downed": 3, "out_of_sequence": 17},
    }


def test_a_port_that_is_down_and_says_little(host: Any) -> None:
    adapter(
        host,
        "mlx5_1",
        "0000:1b:00.0",
        state="1: DOWN",
        phys_state="3: Disabled",
        link_layer="Ethernet",
        rate="",
    )
    (port,) = collect(host)["ports"]
    assert (port["state"], port["physical_state"], port["link_layer"]) == ("down", "disabled", "ethernet")
    assert (port["rate_gbit_s"], port["rate_gbit_s_reason"]) == (None, "not_supported")
    assert port["netdev_reason"] == "not_supported"


def test_the_interface_of_a_port_among_several(host: Any) -> None:
    adapter(host, "mlx5_2", "0000:1c:00.0", netdev="eth7")
    place = "/sys/devices/pci0000:00/0000:00:01.0/0000:1c:00.0"
    host.write(f"{place}/net/eth8/dev_port", "1\n")
    assert collect(host)["ports"][0]["netdev"] == "eth7"
    host.write(f"{place}/infiniband/mlx5_2/ports/1/gid_attrs/ndevs/0", "bond0\n")
    assert collect(host)["ports"][0]["netdev"] == "bond0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4: ACTIVE", "active"), ("2: INIT", "init"), ("5: LinkUp", "link_up"), ("", ""),
     ("4: PortConfigurationTraining", "port_configuration_training")],
)  # fmt: skip
def test_words_of_sysfs(text: str, expected: str) -> None:
    assert interconnect.word(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if [ x$1 = x-s ]; then echo MLNX_OFED_LINUX-24.10-1.1.4.0:; fi", "24.10-1.1.4.0"),
        ("OFED-internal-24.10-0.7.0:", "24.10-0.7.0"),
        ("MLNX_OFED_LINUX-5.6-1.0.3.3-rhel8.5-x86_64", "5.6-1.0.3.3"),
        ("no version", None),
    ],
)
def test_the_version_in_ofed_info(text: str, expected: str | None) -> None:
    assert interconnect.ofed_of(text) == expected


def test_without_any_of_it_everything_is_null_with_a_reason(host: Any) -> None:
    part = collect(host)
    assert part["ports"] == []
    for name in ("ofed_version", "doca_version", "nvidia_fs_version", "gdrcopy_version", "acs_redirect"):
        assert (part[name], part[name + "_reason"]) == (None, "not_supported")
    assert part["gpu_direct"] == {"nvidia_peermem": False, "dma_buf": None, "dma_buf_reason": "not_supported"}
    assert part["iommu"] == {"groups": 0, "translating": False}


def install(host: Any, package: str, version: str) -> None:
    fields = f"Package: {package}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\n"
    host.write("/var/lib/dpkg/status", fields)


def test_versions_of_modules_and_packages(host: Any) -> None:
    host.write("/sys/module/mlx5_core/version", "24.10-1.1.4\n")
    host.write("/proc/driver/nvidia-fs/version", "version: 2.24.2\n")
    host.write("/sys/module/gdrdrv/version", "2.4\n")
    install(host, "doca-ofed", "1:2.9.1-0.1")
    part = collect(host)
    assert part["ofed_version"] == "24.10-1.1.4"
    assert part["doca_version"] == "2.9.1-0.1"
    assert (part["nvidia_fs_version"], part["gdrcopy_version"]) == ("2.24.2", "2.4")


def test_the_module_of_the_kernel_is_no_ofed(host: Any) -> None:
    host.write("/sys/module/mlx5_core/version", "5.0-0\n")
    install(host, "mlnx-ofed-kernel-utils", "24.01.OFED.24.01.0.3.3.1-1")
    assert collect(host)["ofed_version"] == "24.01.OFED.24.01.0.3.3.1-1"


def test_where_dnf_rules_the_list_of_packages_completes_it(host: Any) -> None:
    part = collect(host)
    interconnect.complete(part, {"doca-ofed": "2.9.1-0.1.el9", "mlnx-ofa_kernel": "24.10-OFED.24.10.1.1.4.1"})
    assert part["doca_version"] == "2.9.1-0.1.el9"
    assert "doca_version_reason" not in part
    assert part["ofed_version"] == "24.10-OFED.24.10.1.1.4.1"


@pytest.mark.parametrize(
    ("driver", "release", "config", "expected"),
    [
        (OPEN, "6.8.0-45-generic", "CONFIG_X=y\nCONFIG_DMA_SHARED_BUFFER=y\n", True),
        (OPEN, "6.8.0-45-generic", "# CONFIG_DMA_SHARED_BUFFER is not set\n", False),
        (OPEN, "6.8.0-45-generic", None, None),
        (OPEN, "5.4.0-200-generic", None, False),
        (OPEN, "4.18.0-553.el8_10.x86_64", None, None),
        (CLOSED, "6.8.0-45-generic", "CONFIG_DMA_SHARED_BUFFER=y\n", False),
        (None, "6.8.0-45-generic", "CONFIG_DMA_SHARED_BUFFER=y\n", None),
    ],
)
def test_whether_dma_buf_is_possible(
    host: Any, driver: str | None, release: str, config: str | None, expected: bool | None
) -> None:
    host.write("/proc/sys/kernel/osrelease", release + "\n")
    if driver:
        host.write("/proc/driver/nvidia/version", driver)
    if config:
        host.write(f"/boot/config-{release}", config)
    part = collect(host)["gpu_direct"]
    assert part["dma_buf"] is expected
    assert ("dma_buf_reason" in part) is (expected is None)


@pytest.mark.parametrize("name", ["nvidia_peermem", "nv_peer_mem"])
def test_the_module_for_peers(host: Any, name: str) -> None:
    host.write(f"/sys/module/{name}/initstate", "live\n")
    assert collect(host)["gpu_direct"]["nvidia_peermem"] is True


def group(host: Any, number: int, kind: str | None, *addresses: str) -> None:
    host.write(f"/sys/kernel/iommu_groups/{number}/reserved_regions", "")
    if kind is not None:
        host.write(f"/sys/kernel/iommu_groups/{number}/type", kind + "\n")
    for address in addresses:
        host.link(f"/sys/bus/pci/devices/{address}/iommu_group", f"../../../../kernel/iommu_groups/{number}")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("DMA", True), ("DMA-FQ", True), ("identity", False), ("blocked", None), (None, None)],
)
def test_the_iommu_is_judged_by_the_group_of_the_gpu(
    host: Any, kind: str | None, expected: bool | None
) -> None:
    function(host, "0000:05:00.0", "10de", "2330", "030200", "nvidia")
    group(host, 7, kind, "0000:05:00.0")
    group(host, 8, "DMA")  # an untrusted port is translated whatever the command line says
    part = collect(host)["iommu"]
    assert (part["groups"], part["translating"]) == (2, kind and expected)
    assert ("translating_reason" in part) is (expected is None)


def test_without_gpus_any_group_counts(host: Any) -> None:
    group(host, 1, "identity")
    group(host, 2, "DMA")
    assert collect(host)["iommu"] == {"groups": 2, "translating": True}


# -- bridges ------------------------------------------------------------------------------------------------


def configuration(control: int | None, size: int = 4096) -> bytes:
    """A bridge's: advanced error reporting first, then ACS with these control bits, if it has it."""
    space = bytearray(size)
    if size > 256:
        follows = 0x148 if control is not None else 0
        struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | follows << 20)
        if control is not None:
            struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x005F, control)
    return bytes(space)


def below(host: Any, gpu: str, **bridges: bytes) -> None:
    """A GPU under bridges, the uppermost first; names with underscores for the signs of an address."""
    path = "/sys/devices/pci0000:00"
    for name, config in bridges.items():
        address = f"{name[1:5]}:{name[6:8]}:{name[9:11]}.{name[12]}"
        path += f"/{address}"
        host.write(f"{path}/config", config)
        host.link(f"/sys/bus/pci/devices/{address}", f"../../..{path.removeprefix('/sys')}")
    for name, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2330")):
        host.write(f"{path}/{gpu}/{name}", value + "\n")
    host.link(f"/sys/bus/pci/devices/{gpu}", f"../../..{path.removeprefix('/sys')}/{gpu}")


@pytest.mark.parametrize(
    ("control", "expected"),
    [(0x1D, True), (0x04, True), (0x08, True), (0x11, False), (0, False), (None, False)],
)
def test_what_redirects(control: int | None, expected: bool) -> None:
    assert (pci_bridges.acs_control(configuration(control)) & pci_bridges.REDIRECT != 0) is expected


def test_the_bridges_above_gpus_that_redirect(host: Any) -> None:
    below(
        host,
        "0000:05:00.0",
        b0000_00_01_0=configuration(0x1D),
        b0000_03_00_0=configuration(None),
        b0000_04_10_0=configuration(0x1D),
    )
    below(host, "0000:07:00.0", b0000_00_01_0=configuration(0x1D), b0000_06_00_0=configuration(0x11))
    assert collect(host)["acs_redirect"] == ["0000:00:01.0", "0000:04:10.0"]


def test_only_root_may_read_it(host: Any) -> None:
    below(host, "0000:05:00.0", b0000_00_01_0=configuration(None, size=64))
    part = collect(host)
    assert (part["acs_redirect"], part["acs_redirect_reason"]) == (None, "permission")


def test_a_bridge_without_extended_capabilities(host: Any) -> None:
    below(host, "0000:05:00.0", b0000_00_01_0=configuration(None, size=256))
    assert collect(host)["acs_redirect"] == []


@pytest.mark.parametrize("config", [b"\xff" * 4096, b"\x00" * 4096, configuration(None)[:260]])
def test_a_configuration_that_makes_no_sense_has_no_acs(config: bytes) -> None:
    assert pci_bridges.acs_control(config) == 0


def test_a_loop_of_capabilities_ends() -> None:
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x100 << 20)
    assert pci_bridges.acs_control(bytes(space)) == 0


def test_the_command_line_is_cut(host: Any) -> None:
    host.write("/proc/cmdline", "iommu=pt " + "x" * 9000)
    assert len(collect(host)["kernel_command_line"]) == 4096
