"""The resources against the programs of a simulated GPU host: kmod, dkms and update-initramfs, in a folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fleet.lab.simulation
from fleet.agent.process import Result
from fleet.agent.resources import load
from fleet.agent.resources.base import RebootRequested, Silent, StepFailed, StepPending
from fleet.lab.simulation import contents
from fleet.lab.simulation.deb import Entry
from fleet.lab.simulation.hardware import hardware
from fleet.lab.simulation.pci import pci_files
from fleet.lab.simulation.view import hardware_view
from tests.agent.resources.fakes import FakeHost, Systemd, converge, differences

PROGRAMS = Path(fleet.lab.simulation.__file__).parent / "host"
KERNEL, NEXT = "6.1.0-90-amd64", "6.1.0-91-amd64"
OLD, NEW = "570.172.08", "580.159.03"
SERVICE = "nvidia-persistenced.service"
FILE = "/etc/modprobe.d/fleet-nvidia.conf"
MODULES = load("nvidia_modules")
INITRAMFS = load("initramfs")
REBOOT = load("reboot")
ARGS: dict[str, Any] = {
    "version": NEW, "flavour": "open", "load": ["nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"],
    "forbid": ["nouveau", "nova_core"], "services": ["nvidia-persistenced"], "may_unload": True,
    "remedy": "fleet provision --disrupt", "defer_to_reboot": False,
}  # fmt: skip


class SimulatedHost(FakeHost):
    """Runs the simulated host's own programs below its folder; systemd is answered by the test."""

    def __init__(self, root: Path, **machine: Any) -> None:
        super().__init__(root, state_dir=str(root / "fleet"))
        for folder in (
            "sys/module",
            "state",
            "proc/driver",
            "boot",
            "etc/modprobe.d",
            "run",
            "programs",
            "dev",
        ):
            (root / folder).mkdir(parents=True)
        self.write("/proc/sys/kernel/osrelease", KERNEL + "\n")
        self.write("/proc/sys/kernel/random/boot_id", "first\n")
        self.write("/proc/1/cgroup", "0::/init.scope\n")
        self.write("/proc/cmdline", "quiet\n")
        self.document = hardware(**machine)
        self.write("/state/hardware.view", hardware_view(self.document))
        for name in ("modprobe", "rmmod", "modinfo", "modules"):
            (root / "programs" / name).symlink_to(PROGRAMS / "modules")
        for name in ("dkms", "update-initramfs"):
            (root / "programs" / name).symlink_to(PROGRAMS / name)
        self.write("/usr/sbin/update-initramfs", "", 0o755)
        for kernel in (KERNEL, NEXT):
            self.put(contents.kernel_image(kernel))
            self.put(contents.kernel_headers(kernel))
            self.program("update-initramfs", "-c", "-k", kernel)
        self._pci()
        self.systemd = Systemd(self, **{"nvidia-persistenced_service": {"ActiveState": "inactive"}})
        self.answer = self.answered

    def put(self, files: dict[str, Entry]) -> None:
        for name, entry in files.items():
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.link is not None and not target.is_symlink():
                target.symlink_to(str(self.folder / entry.link.lstrip("/")))
            elif entry.link is None:
                target.write_bytes(entry.content)

    def _pci(self) -> None:
        """The PCI bus as the boot shows it, at the place where the drivers link themselves in."""
        bus = self.folder / "run/fleet-lab-gpu/pci"
        for path, text in pci_files(self.document).items():
            self.write(f"/run/fleet-lab-gpu/pci/{path}", text)
        devices = self.folder / "sys/bus/pci"
        devices.mkdir(parents=True)
        (devices / "devices").symlink_to(bus)

    def program(self, name: str, *words: str) -> Result:
        environment = {
            **os.environ,
            "FLEET_LAB_LIBRARY": str(PROGRAMS),
            "FLEET_LAB_ROOT": str(self.folder),
            "FLEET_LAB_GPU_STATE": str(self.folder / "state"),
        }
        done = subprocess.run(
            ["sh", self.folder / "programs" / name, *words],
            capture_output=True, text=True, env=environment, timeout=60, check=False,
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr)

    def answered(self, argv: list[str], stdin: str | None) -> Result:
        if argv[0] == "dmesg":
            return Result(1, "", "dmesg: read kernel buffer failed: Operation not permitted\n")
        if argv[0] == "systemctl":
            result = self.systemd(argv, stdin)
            if argv[1] in ("start", "stop"):
                # Open files are counted by a program that looks at a whole machine; a GPU that is kept counts one.
                kept = int(argv[1] == "start")
                self.write("/state/settings.view", f"gpu.0.persistence={kept}\ngpu.1.persistence={kept}\n")
                self.program("modules", "refresh")
            return result
        words = [
            str(self.folder / word[1:]) if word.startswith("/lib/modules") else word for word in argv[1:]
        ]
        return self.program(argv[0], *words)

    def fault(self, *lines: str) -> None:
        self.write("/state/faults.view", "".join(line + "\n" for line in lines))
        self.program("modules", "refresh")

    def build(self, version: str, kernel: str = KERNEL, flavour: str = "open") -> Result:
        self.put(contents.dkms_source(version, flavour))
        return self.program("dkms", "install", "-m", "nvidia", "-v", version, "-k", kernel)

    def running(self, version: str) -> None:
        """``version`` is in the kernel with its persistence daemon, then the new one comes to the disk."""
        self.build(version)
        self.program("modules", "boot")
        self.answered(["systemctl", "start", SERVICE], None)
        self.build(NEW)

    def loaded(self) -> set[str]:
        return {path.name for path in (self.folder / "sys/module").iterdir()}

    def active(self) -> bool:
        return self.systemd.units[SERVICE]["ActiveState"] == "active"


@pytest.fixture
def host(tmp_path: Path) -> SimulatedHost:
    return SimulatedHost(tmp_path, model="h100-sxm", count=2)


def test_a_driver_is_loaded_for_the_first_time(host: SimulatedHost) -> None:
    host.build(NEW)
    found = converge(host, MODULES, ARGS)
    assert found[0]["after"] == f"{NEW} (open)"
    assert host.loaded() == {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"}


def test_a_loaded_driver_is_replaced_and_its_daemon_runs_again(host: SimulatedHost) -> None:
    host.running(OLD)
    assert int(host.text("/sys/module/nvidia/refcnt")) > 2, "the daemon keeps it"
    found = converge(host, MODULES, ARGS)
    assert found == [{"path": "loaded", "before": f"{OLD} (open)", "after": f"{NEW} (open)"}]
    assert host.active()


def test_a_module_in_use_by_nobody_that_shows_waits_for_a_reboot(host: SimulatedHost) -> None:
    host.running(OLD)
    host.fault("module_holders=3")
    with pytest.raises(StepPending, match="nvidia is used 3 times by what shows no process"):
        converge(host, MODULES, ARGS)
    assert host.active()
    assert host.text("/sys/module/nvidia/version").strip() == OLD
    extras = MODULES.apply(
        host, {**ARGS, "defer_to_reboot": True}, differences(host, MODULES, ARGS), Silent()
    )
    assert extras is not None
    assert extras["registered"] == {"reboot_required": True}
    host.fault()
    converge(host, MODULES, ARGS)


def test_nouveau_makes_way(tmp_path: Path) -> None:
    host = SimulatedHost(tmp_path, model="rtx-4090")
    host.build(NEW)
    host.program("modules", "boot")
    assert host.loaded() == {"nouveau"}
    host.write(FILE, "blacklist nouveau\nblacklist nova_core\n")
    converge(host, INITRAMFS, {"files": [FILE]})
    converge(host, MODULES, ARGS)
    assert "nouveau" not in host.loaded()
    for kernel in (KERNEL, NEXT):
        assert "blacklist nova_core" in host.text(f"/boot/initrd.img-{kernel}"), (
            "the next kernel holds it too"
        )


def test_a_reboot_waits_for_the_module_of_the_kernel_that_boots(host: SimulatedHost) -> None:
    host.build(NEW)
    host.program("modules", "boot")
    with pytest.raises(StepFailed, match=f"module_missing_for_kernel {NEXT}: the reboot was not sent"):
        REBOOT.apply(host, {}, differences(host, REBOOT, {}), Silent())
    host.build(NEW, NEXT)
    host.write(FILE, "blacklist nouveau\nblacklist nova_core\n")
    with pytest.raises(StepFailed, match=f"the initramfs of kernel {NEXT}, which boots next, is older"):
        REBOOT.apply(host, {}, differences(host, REBOOT, {}), Silent())
    converge(host, INITRAMFS, {"files": [FILE]})
    with pytest.raises(RebootRequested):
        REBOOT.apply(host, {}, differences(host, REBOOT, {}), Silent())


def test_a_build_that_fails_is_told_before_the_old_driver_leaves(host: SimulatedHost) -> None:
    host.build(OLD)
    host.program("modules", "boot")
    host.fault("dkms_build=fail")
    assert host.build(NEW).exit_code == 10
    with pytest.raises(StepFailed, match=f"nvidia {NEW} does not build for kernel {KERNEL}") as caught:
        converge(host, MODULES, ARGS)
    assert f"/var/lib/dkms/nvidia/{NEW}/build/make.log" in str(caught.value.remedy)
    assert host.text("/sys/module/nvidia/version").strip() == OLD


def test_secure_boot_rejects_a_key_that_nobody_enrolled(tmp_path: Path) -> None:
    host = SimulatedHost(tmp_path, model="t4", count=1, secure_boot="enabled")
    host.write("/var/lib/dkms/mok.pub", "certificate")
    host.build(NEW)
    with pytest.raises(StepFailed, match="signed by 'DKMS module signing key'") as caught:
        converge(host, MODULES, ARGS)
    assert "mokutil --import /var/lib/dkms/mok.pub" in str(caught.value.remedy)
    host.fault("mok_enrolled=1")
    converge(host, MODULES, ARGS)


def test_a_module_of_another_kernel_is_not_taken(host: SimulatedHost) -> None:
    host.build(NEW)
    built = host.folder / f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
    built.write_text(built.read_text().replace(KERNEL, NEXT))
    with pytest.raises(StepFailed, match=f"built for another kernel than the running {KERNEL}"):
        converge(host, MODULES, ARGS)
