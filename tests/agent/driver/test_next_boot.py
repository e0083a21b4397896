"""A reboot that would cost a host its GPU driver is refused before it is sent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.resources.base import RebootRequested, Silent, StepFailed
from fleet.agent.resources.reboot import RESOURCE as REBOOT
from tests.agent.resources.fakes import FakeHost

RUNNING, NEXT = "6.8.0-60-generic", "6.8.0-62-generic"
BLOCKED = "/etc/modprobe.d/fleet-nvidia.conf"
ADDRESS = "0000:1b:00.0"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    """A GPU with a driver that serves it now, built for the running kernel; a newer kernel boots next."""
    made = FakeHost(tmp_path)
    made.write("/proc/sys/kernel/osrelease", RUNNING)
    made.write("/proc/cmdline", "quiet")
    made.write("/usr/bin/apt-get", "", 0o755)
    for name, value in {"vendor": "0x10de", "class": "0x030200", "device": "0x2330"}.items():
        made.write(f"/sys/bus/pci/devices/{ADDRESS}/{name}", value + "\n")
    for name in ("subsystem_vendor", "subsystem_device"):
        made.write(f"/sys/bus/pci/devices/{ADDRESS}/{name}", "0x10de\n")
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\n"
    made.write("/proc/driver/nvidia/version", line)
    for release in (RUNNING, NEXT):
        made.write(f"/boot/vmlinuz-{release}", "")
        made.write(f"/boot/initrd.img-{release}", "")
    module(made, RUNNING)
    return made


def module(host: FakeHost, release: str) -> None:
    host.write(f"/lib/modules/{release}/updates/dkms/nvidia.ko", "")


def headers(host: FakeHost, release: str) -> None:
    (host.folder / f"lib/modules/{release}/build").mkdir(parents=True)


def reboot(host: FakeHost, **args: Any) -> None:
    REBOOT.apply(host, args, REBOOT.diff(REBOOT.read(host, args), args), Silent())


def refused(host: FakeHost) -> StepFailed:
    with pytest.raises(StepFailed) as failed:
        reboot(host)
    assert host.commands == []
    return failed.value


def test_the_kernel_that_boots_is_looked_at_and_not_the_one_that_runs(host: FakeHost) -> None:
    failed = refused(host)
    assert f"module_missing_for_kernel {NEXT}" in failed.what
    assert "the reboot was not sent" in failed.what
    assert failed.remedy == f"apt-get install linux-headers-{NEXT} && dkms autoinstall -k {NEXT}"


def test_with_headers_the_module_is_to_be_built(host: FakeHost) -> None:
    headers(host, NEXT)
    assert (refused(host).remedy or "").startswith(f"dkms autoinstall -k {NEXT}")


def test_without_apt_the_package_has_another_name(host: FakeHost) -> None:
    (host.folder / "usr/bin/apt-get").unlink()
    assert (refused(host).remedy or "").startswith(f"dnf install kernel-devel-{NEXT} && ")


def test_a_module_that_was_removed_under_a_loaded_driver_is_missed_too(host: FakeHost) -> None:
    (host.folder / f"boot/vmlinuz-{NEXT}").unlink()
    (host.folder / f"lib/modules/{RUNNING}/updates/dkms/nvidia.ko").unlink()
    assert f"module_missing_for_kernel {RUNNING}" in refused(host).what


def test_once_the_module_is_there_the_host_is_rebooted(host: FakeHost) -> None:
    module(host, NEXT)
    with pytest.raises(RebootRequested):
        reboot(host)


@pytest.mark.parametrize("what", ["no driver", "no GPU", "a GPU of virtual machines"])
def test_a_host_that_has_nothing_to_lose_is_rebooted(host: FakeHost, what: str) -> None:
    device = host.folder / f"sys/bus/pci/devices/{ADDRESS}"
    if what == "no GPU":
        (device / "vendor").write_text("0x1af4\n")
    elif what == "no driver":
        (host.folder / "proc/driver/nvidia/version").unlink()
        (host.folder / f"lib/modules/{RUNNING}/updates/dkms/nvidia.ko").unlink()
    else:
        (device / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    with pytest.raises(RebootRequested):
        reboot(host)


class TestInitramfs:
    def block(self, host: FakeHost, text: str = "blacklist nouveau\nblacklist nova_core\n") -> None:
        """Both other drivers are forbidden, after the initramfs of the next kernel was made."""
        module(host, NEXT)
        host.write(BLOCKED, text)
        os.utime(host.folder / f"boot/initrd.img-{RUNNING}")
        os.utime(host.folder / f"boot/initrd.img-{NEXT}", (1, 1))

    def test_one_that_does_not_hold_the_blacklist_stops_the_reboot(self, host: FakeHost) -> None:
        self.block(host)
        failed = refused(host)
        assert f"the initramfs of kernel {NEXT}" in failed.what
        assert BLOCKED in failed.what
        assert (failed.remedy or "").startswith(f"update-initramfs -u -k {NEXT}")

    def test_a_newer_one_is_enough(self, host: FakeHost) -> None:
        self.block(host)
        os.utime(host.path(BLOCKED), (2, 2))
        os.utime(host.folder / f"boot/initrd.img-{NEXT}")
        with pytest.raises(RebootRequested):
            reboot(host)

    def test_other_settings_that_are_newer_do_not_matter(self, host: FakeHost) -> None:
        self.block(host)
        os.utime(host.path(BLOCKED), (0, 0))
        host.write("/etc/modprobe.d/sound.conf", "options snd_hda_intel power_save=0\n")
        with pytest.raises(RebootRequested):
            reboot(host)

    def test_where_nothing_is_forbidden_there_is_nothing_to_hold(self, host: FakeHost) -> None:
        self.block(host, "options nouveau modeset=0\n")
        with pytest.raises(RebootRequested):
            reboot(host)
