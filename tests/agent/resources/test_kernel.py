"""Kernel parameters and kernel modules, against a folder that looks like /proc and /sys."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.process import Result
from fleet.agent.protocol import KNOWN_AFTER_APPLY
from fleet.agent.resources.base import Provides, StepFailed
from fleet.agent.resources.kernel_module import RESOURCE as MODULE
from fleet.agent.resources.sysctl import RESOURCE as SYSCTL
from tests.agent.resources.fakes import FakeHost, converge, differences

FILE = "/etc/sysctl.d/99-fleet.conf"


@pytest.fixture
def kernel(host: FakeHost) -> FakeHost:
    host.write("/proc/sys/net/ipv4/ip_forward", "0\n")
    host.write("/proc/sys/net/ipv4/tcp_rmem", "4096\t87380\t6291456\n")
    host.write("/proc/sys/net/ipv4/conf/eth0.7/forwarding", "0\n")
    host.write("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n")
    host.write("/lib/modules/6.1.0-9-amd64/modules.builtin", "kernel/drivers/char/hw_random/rng-core.ko\n")
    for folder in ("sysctl.d", "modules-load.d", "modprobe.d"):
        (host.folder / "etc" / folder).mkdir(parents=True)
    return host


def test_file_and_live_value_are_set(kernel: FakeHost) -> None:
    found = converge(kernel, SYSCTL, {"name": "net.ipv4.ip_forward", "value": 1})
    assert found == [
        {"path": FILE, "before": None, "after": "1"},
        {"path": "live", "before": "0", "after": "1"},
    ]
    assert kernel.text(FILE) == "net.ipv4.ip_forward = 1\n"
    assert kernel.text("/proc/sys/net/ipv4/ip_forward") == "1\n"


def test_white_space_does_not_matter(kernel: FakeHost) -> None:
    kernel.write(FILE, "net.ipv4.tcp_rmem=4096  87380 6291456\n")
    assert differences(kernel, SYSCTL, {"name": "net.ipv4.tcp_rmem", "value": "4096 87380 6291456 "}) == []


def test_the_last_line_of_the_file_decides_and_others_stay(kernel: FakeHost) -> None:
    kernel.write(
        FILE,
        "# net.ipv4.ip_forward = 9\nvm.swappiness = 1\n-net.ipv4.ip_forward = 1\nnet.ipv4.ip_forward=0\n",
    )
    converge(kernel, SYSCTL, {"name": "net.ipv4.ip_forward", "value": "1", "apply": False})
    assert kernel.text(FILE).splitlines()[1:] == [
        "vm.swappiness = 1", "-net.ipv4.ip_forward = 1", "net.ipv4.ip_forward = 1",
    ]  # fmt: skip
    assert kernel.text("/proc/sys/net/ipv4/ip_forward") == "0\n"


def test_names_with_slashes_keep_their_dots(kernel: FakeHost) -> None:
    converge(kernel, SYSCTL, {"name": "net/ipv4/conf/eth0.7/forwarding", "value": "1"})
    assert kernel.text("/proc/sys/net/ipv4/conf/eth0.7/forwarding") == "1\n"


def test_an_absent_parameter_fails_before_the_file_is_written(kernel: FakeHost) -> None:
    args = {"name": "net.bridge.bridge-nf-call-iptables", "value": "1"}
    with pytest.raises(StepFailed, match="the kernel did not take") as caught:
        converge(kernel, SYSCTL, args)
    assert "load the kernel module" in str(caught.value.remedy)
    assert not (kernel.folder / FILE.lstrip("/")).exists()
    converge(kernel, SYSCTL, {**args, "apply": False})


def loaded(host: FakeHost, name: str, state: str = "live") -> None:
    host.write(f"/sys/module/{name}/initstate", state + "\n")


@pytest.mark.parametrize(
    ("name", "state", "commands"),
    [
        ("nvidia-uvm", "loaded", []),
        ("nouveau", "loaded", ["modprobe nouveau"]),
        ("nouveau", "absent", []),
        ("nvidia_uvm", "absent", ["modprobe --remove nvidia_uvm"]),
        ("rng_core", "loaded", []),
        ("printk", "loaded", []),
        ("overlay", "loaded", []),
    ],
)
def test_module_commands(kernel: FakeHost, name: str, state: str, commands: list[str]) -> None:
    loaded(kernel, "nvidia_uvm")
    loaded(kernel, "nouveau", "going")
    kernel.write("/sys/module/printk/parameters/time", "Y\n")
    kernel.write("/proc/modules", "overlay 151552 0 - Live 0x0\n")

    def modprobe(argv: list[str], stdin: str | None) -> Result:
        loaded(kernel, argv[-1], "going" if "--remove" in argv else "live")
        return Result(0)

    kernel.answer = modprobe
    converge(kernel, MODULE, {"name": name, "state": state})
    assert kernel.argvs() == commands


def test_files_for_the_next_boot_come_and_go(kernel: FakeHost) -> None:
    args: dict[str, Any] = {"name": "nouveau", "blacklist": True, "options": "modeset=0", "persist": True}
    converge(kernel, MODULE, args)
    assert (
        kernel.text("/etc/modprobe.d/fleet-nouveau.conf") == "blacklist nouveau\noptions nouveau modeset=0\n"
    )
    assert kernel.text("/etc/modules-load.d/fleet-nouveau.conf") == "nouveau\n"
    converge(kernel, MODULE, {"name": "nouveau"})
    assert list((kernel.folder / "etc").rglob("fleet-*")) == []
    assert kernel.argvs() == []


def test_what_is_built_in_stays(kernel: FakeHost) -> None:
    with pytest.raises(StepFailed, match="is built into this kernel"):
        converge(kernel, MODULE, {"name": "rng-core", "state": "absent"})


def test_a_module_in_use_names_its_users(kernel: FakeHost) -> None:
    loaded(kernel, "nvidia")
    (kernel.folder / "sys/module/nvidia/holders/nvidia_uvm").mkdir(parents=True)
    kernel.answer = lambda argv, stdin: Result(1, "", "modprobe: FATAL: Module nvidia is in use.\n")
    with pytest.raises(StepFailed, match="unloading the module nvidia failed") as caught:
        converge(kernel, MODULE, {"name": "nvidia", "state": "absent"})
    assert caught.value.remedy == "these modules use it, unload them first: nvidia_uvm"


def test_a_package_to_come_may_load_it() -> None:
    args = {"name": "nvidia", "state": "loaded"}
    assert MODULE.outlook(args, [], Provides(packages=["nvidia-driver"])) == KNOWN_AFTER_APPLY
    assert MODULE.outlook(args, [], Provides(files=["/x"])) is None
