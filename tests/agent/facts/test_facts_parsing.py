"""Each group's parse functions, on texts as hosts have them."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from fleet.agent.facts import (
    clock,
    disks,
    engine,
    identity,
    kernel,
    memory,
    network,
    os_release,
    packages,
    python,
    services,
    sessions,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            (
                'NAME="Ubuntu"\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\n'
                'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nUBUNTU_CODENAME=noble\n'
            ),
            ("ubuntu", "24.04", "noble", ["debian"], "noble"),
        ),
        (
            (
                'NAME="Linux Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="21.3"\n'
                "VERSION_CODENAME=virginia\nUBUNTU_CODENAME=jammy\n"
            ),
            ("linuxmint", "21.3", "virginia", ["ubuntu", "debian"], "jammy"),
        ),
        (
            (
                'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n'
                'PLATFORM_ID="platform:el9"\n'
            ),
            ("rocky", "9.4", None, ["rhel", "centos", "fedora"], None),
        ),
        (
            (
                'NAME="Pop!_OS"\nVERSION="22.04 LTS"\nID=pop\nID_LIKE="ubuntu debian"\nVERSION_ID="22.04"\n'
                "VERSION_CODENAME=jammy\nUBUNTU_CODENAME=jammy\nLOGO=distributor-logo-pop-os\n"
            ),
            ("pop", "22.04", "jammy", ["ubuntu", "debian"], "jammy"),
        ),
        # An older one calls itself Ubuntu: it is what ID says, never what NAME says.
        (
            (
                'NAME="Pop!_OS"\nVERSION="18.10"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="18.10"\n'
                "VERSION_CODENAME=cosmic\nUBUNTU_CODENAME=cosmic\n"
            ),
            ("ubuntu", "18.10", "cosmic", ["debian"], "cosmic"),
        ),
        (
            (
                'NAME="CentOS Linux"\nVERSION="8 (Core)"\nID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="8"\n'
                'PLATFORM_ID="platform:el8"\n'
            ),
            ("centos", "8", None, ["rhel", "fedora"], None),
        ),
        ("PRETTY_NAME='Debian GNU/Linux trixie/sid'\nID=debian\n", ("debian", None, None, [], None)),
    ],
)
def test_os_release_of_distributions_and_derivatives(text: str, expected: tuple[object, ...]) -> None:
    part = os_release.document(os_release.parse(text))
    assert (part["id"], part["version_id"], part["codename"], part["like"], part["base_codename"]) == expected


def test_os_release_says_why_a_value_is_missing() -> None:
    part = os_release.document(os_release.parse("ID=debian\n# VERSION_ID=1\nnonsense\n"))
    assert part["version_id"] is None
    assert part["version_id_reason"] == "not_supported"


def test_os_release_resolves_quotes_and_escapes() -> None:
    assert os_release.parse('A="x \\"y\\" \\$z"\nB=\'it\\s\'\nC=bare\n') == {
        "A": 'x "y" $z',
        "B": "it\\s",
        "C": "bare",
    }


def test_the_full_name_comes_from_the_hosts_file_without_dns() -> None:
    hosts = "127.0.0.1 localhost\n127.0.1.1 gpu01.example.net gpu01 # me\n"
    assert identity.fqdn_of("gpu01", hosts) == "gpu01.example.net"
    assert identity.fqdn_of("gpu02", hosts) is None
    assert identity.fqdn_of("gpu02.example.org", "") == "gpu02.example.org"


def test_kernels_sort_by_version_and_leave_rescue_images_out() -> None:
    files = ["vmlinuz-6.8.0-9-generic", "vmlinuz-6.8.0-47-generic", "config-6.8.0-47-generic"]
    files += ["vmlinuz-0-rescue-4a5b", "vmlinuz-6.8.0-48-generic.old", "vmlinuz"]
    assert kernel.installed_kernels(files) == ["6.8.0-47-generic", "6.8.0-9-generic"]


@pytest.mark.parametrize(
    ("default", "saved", "expected"),
    [
        (None, None, "6.8.0-47-generic"),
        ("0", None, "6.8.0-47-generic"),
        ('"Advanced options for Ubuntu>Ubuntu, with Linux 6.8.0-9-generic"', None, "6.8.0-9-generic"),
        ("saved", "0123abcd-6.8.0-9-generic", None),
        ("saved", "gnulinux-6.8.0-9-generic-advanced", "6.8.0-9-generic"),
        ("saved", None, "6.8.0-47-generic"),
        ('"Windows Boot Manager"', None, None),
    ],
)
def test_the_next_kernel_follows_the_boot_loader(
    default: str | None, saved: str | None, expected: str | None
) -> None:
    kernels = ["6.8.0-47-generic", "6.8.0-9-generic"]
    if saved == "0123abcd-6.8.0-9-generic":  # Enterprise Linux: MACHINE_ID-RELEASE
        expected = "6.8.0-9-generic"
    assert kernel.next_release(kernels, default, saved) == expected


def test_no_kernel_in_boot_means_unknown() -> None:
    assert kernel.next_release([], None, None) is None


def test_memory_is_in_bytes() -> None:
    assert memory.total_bytes("MemTotal:       263850000 kB\nMemFree: 1 kB\n") == 263850000 * 1024
    with pytest.raises(ValueError, match="MemTotal"):
        memory.total_bytes("MemFree: 1 kB\n")


def test_a_python_without_its_library_is_seen(tmp_path: object) -> None:
    assert "shutil" in python.missing_modules(str(tmp_path))


def test_the_clock_is_true_false_or_unknown_with_a_reason(host: Any, monkeypatch: Any) -> None:
    for state, expected in ((0, (True, None)), (5, (False, None)), (None, (None, "not_supported"))):
        monkeypatch.setattr(clock, "_adjtimex", lambda state=state: state)
        assert clock.synchronized(host) == expected
    host.write("/run/systemd/timesync/synchronized", "")
    assert clock.synchronized(host) == (True, None)


# --- disks

MOUNTS = """\
sysfs /sys sysfs rw 0 0
/dev/nvme0n1p2 / ext4 rw 0 0
tmpfs /run tmpfs rw 0 0
/dev/nvme1n1 /data xfs rw 0 0
/dev/nvme1n1 /var/lib/docker xfs rw 0 0
nas:/home /home nfs4 rw 0 0
/dev/sdb1 /mnt/with\\040space ext4 rw 0 0
overlay /var/lib/docker/overlay2/abc/merged overlay rw 0 0
"""


def test_the_longest_mount_holds_a_path_and_neighbours_do_not() -> None:
    mounts = disks.parse_mounts(MOUNTS)
    assert disks.mount_of("/var/lib/docker/overlay2", mounts)[0] == "/var/lib/docker"
    assert disks.mount_of("/var/lib/docker-old", mounts)[0] == "/"
    assert disks.mount_of("/database", mounts)[0] == "/"
    assert disks.mount_of("/data", mounts)[0] == "/data"


def test_disks_are_listed_once_and_without_pseudo_file_systems() -> None:
    points = [mount[0] for mount in disks.shown(disks.parse_mounts(MOUNTS))]
    assert points == ["/", "/data", "/home", "/mnt/with space"]


def test_a_network_file_system_is_never_asked_for_its_size(host: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(disks.os, "statvfs", lambda path: pytest.fail("asked " + path))
    sizes = disks._sizes(host, "/home", "nfs4")
    assert sizes["free_bytes"] is None
    assert sizes["free_bytes_reason"] == "not_collected"


# --- network


def test_ipv4_routes_by_metric() -> None:
    text = (
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth1\t00000000\t0100A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
        "eth0\t0000C80A\t00000000\t0201\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    )
    routes = network.parse_routes(text)
    assert routes == [
        {"destination": "172.17.0.0/16", "device": "docker0", "gateway": None},
        {"destination": "0.0.0.0/0", "device": "eth0", "gateway": "192.0.2.1"},
        {"destination": "0.0.0.0/0", "device": "eth1", "gateway": "192.168.0.1"},
    ]
    assert network.default_device(routes) == "eth0"
    assert network.default_device([]) is None


def test_ipv6_routes_without_local_and_multicast_entries() -> None:
    zero, net, mine = "0" * 32, "20010db8" + "0" * 24, "20010db8" + "0" * 23 + "2"
    text = "\n".join(
        [
            f"{net} 40 {zero} 00 {zero} 00000400 1 0 00000001 eth0",
            f"{zero} 00 {zero} 00 {net[:-1]}1 00000400 1 0 00000003 eth0",
            f"{mine} 80 {zero} 00 {zero} 00000000 2 0 80200001 eth0",
            f"ff{zero[2:]} 08 {zero} 00 {zero} 00000100 1 0 00000001 eth0",
            f"{zero} 00 {zero} 00 {zero} ffffffff 1 0 00200200 lo",
        ]
    )
    assert network.parse_routes6(text) == [
        {"destination": "2001:db8::/64", "device": "eth0", "gateway": None},
        {"destination": "::/0", "device": "eth0", "gateway": "2001:db8::1"},
    ]


def _netlink(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def test_netlink_addresses_prefer_our_end_of_a_point_to_point_link() -> None:
    peer, ours = socket.inet_aton("10.8.0.1"), socket.inet_aton("10.8.0.2")
    v4 = struct.pack("=BBBBI", socket.AF_INET, 32, 0, 0, 7) + _attribute(1, peer) + _attribute(2, ours)
    v6 = struct.pack("=BBBBI", socket.AF_INET6, 64, 0, 0, 9)
    v6 += _attribute(1, socket.inet_pton(socket.AF_INET6, "2001:db8::5"))
    found, complete = network.parse_addresses(_netlink(20, v4) + _netlink(20, v6), {7: "tun0"})
    assert not complete
    assert found == [
        {"device": "tun0", "address": "10.8.0.2/32"},
        {"device": "if9", "address": "2001:db8::5/64"},
    ]
    assert network.parse_addresses(_netlink(3, b"\0\0\0\0"), {}) == ([], True)
    with pytest.raises(ValueError, match="netlink"):
        network.parse_addresses(_netlink(2, b"\0" * 20), {})


# --- services and sessions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/init.scope\n", "/system.slice"),
        ("0::/docker/0123/init.scope\n", "/docker/0123/system.slice"),
        ("3:memory:/\n1:name=systemd:/init.scope\n0::/init.scope\n", "systemd/system.slice"),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_where_units_have_their_cgroups(text: str, expected: str | None) -> None:
    assert services.system_slice(text) == expected


def test_an_active_unit_has_a_cgroup(host: Any) -> None:
    host.write("/sys/fs/cgroup/system.slice/k3s-agent.service/cgroup.procs", "12\n")
    found = services.activity(host, "/system.slice", services.KUBELET_UNITS, services.KUBELET_COMMANDS)
    assert found == {"active": True, "evidence": "unit k3s-agent.service is active"}
    assert services.activity(host, "/system.slice", services.SLURMD_UNITS, services.SLURMD_COMMANDS) == {
        "active": False,
        "evidence": None,
    }


def test_without_systemd_processes_are_looked_through(host: Any) -> None:
    host.write("/proc/1/comm", "tini\n")
    host.write("/proc/812/comm", "slurmd\n")
    found = services.activity(host, None, services.SLURMD_UNITS, services.SLURMD_COMMANDS)
    assert found == {"active": True, "evidence": "process 812"}


def test_only_graphical_sessions_that_stay_are_listed() -> None:
    text = "# Private.\nUID=1000\nUSER=anna\nACTIVE=1\nSTATE=%s\nTYPE=%s\nCLASS=user\n"
    assert sessions.session("2", text % ("active", "wayland")) == {
        "id": "2",
        "user": "anna",
        "type": "wayland",
        "class": "user",
        "seat": None,
    }
    assert sessions.session("3", text % ("active", "tty")) is None
    assert sessions.session("4", text % ("closing", "x11")) is None


# --- engine


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{\n  "live-restore": true,\n  "debug": false,}\n', 3, "a comma before the closing bracket"),
        ('{\n  "debug": false,\n}\n', 2, "a comma before the closing bracket"),
        ("<!DOCTYPE html>\n<html></html>\n", 1, "it begins with '<!DOCTYPE html>"),
        ('{\n}\n{\n "dns": []\n}\n', 3, "a second value begins here"),
        ('{\n  // comment\n  "debug": true\n}\n', 2, "comments are not JSON"),
        ('{"debug": NaN}', 1, "NaN is not a number of JSON"),
        ('{\n"debug": true,\n"debug": false}', 3, 'the key "debug" is here a second time'),
        ('[{"debug": true}]', 1, "an object in braces is needed"),
        ("\ufeff{}", 1, "a byte order mark"),
        ('{\n "labels": ["gr\udcfcn"]\n}', 2, "not UTF-8 text"),
    ],
)
def test_a_broken_daemon_json_names_its_place(text: str, line: int, words: str) -> None:
    part = engine.daemon_json(text.encode(errors="surrogateescape"))
    assert part["exists"]
    assert part["parsed"] is None
    assert part["error"]["line"] == line
    assert words in part["error"]["message"]


def test_an_empty_daemon_json_is_an_empty_object() -> None:
    assert engine.daemon_json(b" \n") == {"exists": True, "parsed": {}, "error": None}
    assert engine.daemon_json(None) == {"exists": False, "parsed": None, "error": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "/var/lib/docker"),
        (b'{"data-root": "/mnt/nvme/docker"}', "/mnt/nvme/docker"),
        (b'{"features": {"containerd-snapshotter": true}, "data-root": "/x"}', "/var/lib/containerd"),
        (b'{"features": {"containerd-snapshotter": false}}', "/var/lib/docker"),
        (b"broken", "/var/lib/docker"),
    ],
)
def test_where_images_will_be_stored(text: bytes | None, expected: str) -> None:
    assert engine.configured_store(engine.daemon_json(text)) == expected


def test_address_pools_come_from_daemon_json() -> None:
    part = engine.daemon_json(b'{"default-address-pools": [{"base": "10.201.0.0/16", "size": 24}, "x"]}')
    assert engine.address_pools(part) == [{"base": "10.201.0.0/16", "size": 24}]
    assert engine.address_pools(engine.daemon_json(None)) == []


def test_cdi_is_off_for_engines_that_do_not_name_directories() -> None:
    old = engine.from_answers({"Version": "20.10.24", "ApiVersion": "1.41"}, {"Driver": "overlay2"})
    new = engine.from_answers(
        {"Version": "29.0.0", "ApiVersion": "1.52"},
        {
            "CgroupDriver": "systemd",
            "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
            "DockerRootDir": "/var/lib/docker",
            "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]],
        },
    )
    assert old["cdi"] is False
    assert new["cdi"] is True
    assert (old["cgroup_driver"], new["cgroup_driver"]) == (None, "systemd")
    assert new["image_store_dir"] == "/var/lib/containerd"


@pytest.mark.parametrize(
    ("inspected", "expected"),
    [
        ({"HostConfig": {"DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}]}}, True),
        ({"HostConfig": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]}}, True),
        ({"HostConfig": {"DeviceRequests": None, "Runtime": "runc"}}, False),
        ({"HostConfig": {"Runtime": "nvidia"}, "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=all"]}}, True),
        ({"HostConfig": {"Runtime": "nvidia"}, "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=void"]}}, False),
        ({"HostConfig": {"Runtime": "nvidia"}, "Config": {"Env": None}}, False),
        ({}, False),
    ],
)
def test_containers_that_were_given_gpus(inspected: dict[str, Any], expected: bool) -> None:
    assert engine.has_gpus(inspected) is expected


def test_images_are_known_by_the_digests_they_were_pulled_by() -> None:
    listed = {
        "Id": "sha256:1",
        "RepoTags": ["r/t:1", "<none>:<none>"],
        "RepoDigests": ["r/t@sha256:ab"],
        "Size": 5,
    }
    assert engine.image(listed) == {
        "id": "sha256:1",
        "tags": ["r/t:1"],
        "digests": ["sha256:ab"],
        "size_bytes": 5,
    }
    assert engine.image({"Id": "x", "RepoTags": None, "RepoDigests": None})["digests"] == []


def test_podman_in_disguise_is_seen_in_its_wrapper(host: Any) -> None:
    assert not engine.is_podman(host, {})
    host.write("/usr/bin/docker", '#!/bin/sh\nexec /usr/bin/podman "$@"\n')
    assert engine.is_podman(host, {})
    assert engine.is_podman(host, {"Components": [{"Name": "Podman Engine"}]})


def test_what_wants_a_reboot(host: Any) -> None:
    assert packages.reboot_required(host) == {"required": False, "packages": []}
    host.write("/run/reboot-required", "*** System restart required ***\n")
    host.write("/run/reboot-required.pkgs", "linux-base\nlibc6\nlinux-base\n")
    assert packages.reboot_required(host) == {"required": True, "packages": ["libc6", "linux-base"]}


def _stanza(name: str, status: str, version: str) -> str:
    return f"Package: {name}\nStatus: {status}\nArchitecture: amd64\nVersion: {version}\n"


def test_a_half_configured_driver_beside_another_branch(host: Any) -> None:
    long_name = "linux-modules-nvidia-580-open-6.14.0-36-generic"
    host.write("/usr/bin/apt-get", "").chmod(0o755)
    host.write(
        "/var/lib/dpkg/status",
        "\n".join(
            [
                _stanza("libnvidia-compute-550", "install ok installed", "550.163.01-0ubuntu1"),
                _stanza("libnvidia-compute-580", "install ok installed", "580.159.03-0ubuntu1"),
                _stanza(long_name, "install ok installed", "6.14.0-36.36+1"),
                _stanza("nvidia-dkms-580-open", "install ok half-configured", "580.159.03-0ubuntu1"),
                _stanza("nvidia-driver-580-open", "install ok unpacked", "580.159.03-0ubuntu1"),
                _stanza("nvidia-fabricmanager-550", "hold ok installed", "550.163.01-1"),
                _stanza("nvidia-driver-535", "deinstall ok config-files", "535.309.01-0ubuntu1"),
                _stanza("nvidia-settings", "install reinstreq half-installed", "580.159.03-0ubuntu1"),
                "Package: bumblebee-nvidia\nStatus: unknown ok not-installed\n",
            ]
        ),
    )
    part = packages.collect(host)["packages"]
    assert part["states"] == {
        "nvidia-dkms-580-open": "half-configured",
        "nvidia-driver-580-open": "unpacked",
        "nvidia-settings": "half-installed, reinst-required",
    }
    assert part["interrupted"] == sorted(part["states"])
    assert part["held"] == ["nvidia-fabricmanager-550"]
    assert sorted(part["installed"]) == [
        "libnvidia-compute-550",
        "libnvidia-compute-580",
        long_name,
        "nvidia-fabricmanager-550",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libcuda1", True),
        ("libnvidia-ml1", True),
        ("nvidia-kernel-open-dkms", True),
        ("nvidia-open-580", True),
        ("firmware-nvidia-gsp", True),
        ("linux-image-6.1.0-28-amd64", True),
        ("linux-headers-amd64", True),
        ("cuda-drivers", True),
        ("cuda-drivers-580", True),
        ("xserver-xorg-video-nvidia", True),
        ("cuda-toolkit-12-4", False),
        ("libc6", False),
    ],
)
def test_the_packages_that_every_document_carries(name: str, expected: bool, host: Any) -> None:
    host.write("/var/lib/dpkg/status", _stanza(name, "install ok installed", "1.0"))
    assert (name in packages.watched(host.dpkg)) is expected
