"""What runs on a simulated host, run here below another root: modules, dkms, initramfs."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fleet.lab.simulation
from fleet.lab.engine import wait_until
from fleet.lab.simulation import contents
from fleet.lab.simulation.deb import Entry
from fleet.lab.simulation.hardware import hardware
from fleet.lab.simulation.view import hardware_view

PROGRAMS = Path(fleet.lab.simulation.__file__).parent / "host"
KERNEL = "6.1.0-90-amd64"
DRIVER = "580.159.03"


@dataclass
class Root:
    """A file tree that stands for a host's."""

    path: Path

    def put(self, files: dict[str, Entry]) -> None:
        for name, entry in files.items():
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.link is not None:
                target.symlink_to(str(self.path / entry.link.lstrip("/")))
            else:
                target.write_bytes(entry.content)

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of the host's programs; those of kmod are names of ``modules``."""
        name = program if (PROGRAMS / program).exists() else "modules"
        called = self.path / "programs" / program
        called.parent.mkdir(exist_ok=True)
        if not called.exists():
            called.symlink_to(PROGRAMS / name)
        environment = {
            **os.environ,
            "FLEET_LAB_LIBRARY": str(PROGRAMS),
            "FLEET_LAB_ROOT": str(self.path),
            "FLEET_LAB_GPU_STATE": str(self.path / "state"),
        }
        return subprocess.run(
            ["sh", called, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
            check=False,
        )

    def fault(self, *lines: str) -> None:
        (self.path / "state/faults.view").write_text("".join(f"{line}\n" for line in lines))

    @property
    def loaded(self) -> set[str]:
        return {path.name for path in (self.path / "sys/module").iterdir()}

    def build(self, flavour: str = "open") -> subprocess.CompletedProcess[str]:
        self.put(contents.dkms_source(DRIVER, flavour))
        return self.run("dkms", "install", "-m", "nvidia", "-v", DRIVER, "-k", KERNEL)


def make(tmp_path: Path, *, headers: bool = True, **machine: Any) -> Root:
    root = Root(tmp_path)
    for folder in ("sys/module", "state", "proc/sys/kernel", "proc/driver", "boot", "etc/modprobe.d", "run"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text(f"{KERNEL}\n")
    (tmp_path / "state/hardware.view").write_text(hardware_view(hardware(**machine)))
    root.put(contents.kernel_image(KERNEL))
    if headers:
        root.put(contents.kernel_headers(KERNEL))
    assert root.run("update-initramfs", "-c", "-k", KERNEL).returncode == 0
    return root


@pytest.fixture
def h100(tmp_path: Path) -> Root:
    return make(tmp_path, model="h100-sxm", count=8)


def test_a_built_driver_loads_at_boot_and_says_what_it_is(h100: Root) -> None:
    assert h100.build().returncode == 0
    assert h100.run("dkms", "status").stdout == f"nvidia/{DRIVER}, {KERNEL}, x86_64: installed\n"
    assert h100.run("modules", "boot").returncode == 0
    assert h100.loaded == {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"}
    module = h100.path / "sys/module/nvidia"
    assert (module / "version").read_text() == f"{DRIVER}\n"
    assert (module / "initstate").read_text() == "live\n"
    assert (module / "refcnt").read_text() == "2\n"
    assert "Open Kernel Module" in (h100.path / "proc/driver/nvidia/version").read_text()
    assert len(list((h100.path / "proc/driver/nvidia/gpus").iterdir())) == 8
    assert len(list((h100.path / "proc/driver/nvidia-nvswitch/devices").iterdir())) == 4
    assert f"loaded.version={DRIVER}" in (h100.path / "state/loaded.view").read_text()
    assert h100.run("modinfo", "-F", "license", "nvidia").stdout == "Dual MIT/GPL\n"


def test_a_driver_that_serves_no_gpu_does_not_load(tmp_path: Path) -> None:
    root = make(tmp_path, model="rtx-5090", nouveau=False)
    (root.path / "run/fleet-lab-gpu").mkdir()
    log = root.path / "run/fleet-lab-gpu/kmsg"
    log.touch()
    assert root.build("proprietary").returncode == 0
    refused = root.run("modprobe", "nvidia")
    assert (refused.returncode, root.loaded) == (1, set())
    assert "could not insert 'nvidia': No such device" in refused.stderr
    assert "requires use of the NVIDIA open kernel modules" in log.read_text()


@pytest.mark.parametrize(
    ("driver", "flavour", "taken"),
    [
        ("580.159.03", "proprietary", [1]),
        ("580.159.03", "open", [0]),
        ("570.86.15", "open", []),
        ("590.48.01", "proprietary", []),
    ],
)
def test_of_two_gpus_the_driver_takes_those_that_it_serves(
    tmp_path: Path, driver: str, flavour: str, taken: list[int]
) -> None:
    """A 5090 needs open modules, and 570.86.16; a 1080 Ti proprietary ones, up to branch 580."""
    root = make(tmp_path, model=["rtx-5090", "gtx-1080-ti"], nouveau=False)
    addresses = ["0000:01:00.0", "0000:02:00.0"]
    for address in addresses:
        (root.path / "run/fleet-lab-gpu/pci" / address).mkdir(parents=True)
    root.put(contents.dkms_source(driver, flavour))
    assert root.run("dkms", "install", "-m", "nvidia", "-v", driver, "-k", KERNEL).returncode == 0
    assert root.run("modprobe", "nvidia").returncode == (0 if taken else 1)
    served = root.path / "proc/driver/nvidia/gpus"
    assert sorted(served.iterdir() if served.exists() else []) == [served / addresses[gpu] for gpu in taken]
    bound = [(root.path / "run/fleet-lab-gpu/pci" / address / "driver").is_symlink() for address in addresses]
    assert bound == [gpu in taken for gpu in (0, 1)]


def test_without_headers_nothing_is_built(tmp_path: Path) -> None:
    root = make(tmp_path, headers=False, model="t4", count=2)
    done = root.build()
    assert done.returncode == 21
    assert f"Your kernel headers for kernel {KERNEL} cannot be found" in done.stderr
    assert root.run("dkms", "status").stdout == f"nvidia/{DRIVER}: added\n"
    refused = root.run("modprobe", "nvidia")
    assert refused.returncode == 1
    assert "Module nvidia not found in directory" in refused.stderr


def test_a_failing_build_leaves_its_log(h100: Root) -> None:
    h100.fault("dkms_build=fail")
    done = h100.build()
    assert done.returncode == 10
    assert "Bad return status for module build on kernel" in done.stderr
    assert "Error 2" in (h100.path / f"var/lib/dkms/nvidia/{DRIVER}/build/make.log").read_text()


def test_what_hangs_goes_on_when_the_fault_is_over(h100: Root) -> None:
    h100.fault("dkms_build=hang", "module_load=hang")
    record = h100.path / f"var/lib/dkms/nvidia/{DRIVER}/build"
    with ThreadPoolExecutor() as pool:
        build = pool.submit(h100.build)
        wait_until(record.is_dir, "the build has begun", deadline=60)
        load = pool.submit(h100.run, "modprobe", "nouveau")
        assert not (record / "make.log").exists()
        assert [build.done(), load.done()] == [False, False]
        h100.fault()
        assert build.result(60).returncode == 0
        assert load.result(60).returncode == 0
    assert (record / "make.log").exists()


def test_nouveau_is_in_the_way_until_the_initramfs_forbids_it(tmp_path: Path) -> None:
    root = make(tmp_path, model="rtx-4090")
    root.build()
    root.run("modules", "boot")
    assert root.loaded == {"nouveau"}
    assert "No such device" in root.run("modprobe", "nvidia").stderr
    assert root.run("modprobe", "-r", "nouveau").returncode == 0
    root.put(contents.kernel_common())
    root.run("modules", "boot")
    assert root.loaded == {"nouveau"}
    root.run("modprobe", "-r", "nouveau")
    root.run("update-initramfs", "-u")
    root.run("modules", "boot")
    assert "nvidia" in root.loaded
    assert "nouveau" not in root.loaded


def test_a_module_in_use_stays(h100: Root) -> None:
    h100.build()
    h100.run("modules", "boot")
    done = h100.run("rmmod", "nvidia")
    assert done.returncode == 1
    assert done.stderr == "rmmod: ERROR: Module nvidia is in use by: nvidia_modeset nvidia_uvm\n"
    h100.run("rmmod", "nvidia_uvm")
    h100.fault("gpu.0.processes=1:100")
    assert h100.run("modprobe", "-r", "nvidia-drm").returncode == 0
    assert h100.loaded == {"nvidia"}
    assert h100.run("modprobe", "-r", "nvidia").stderr == "modprobe: FATAL: Module nvidia is in use.\n"
    h100.fault()
    assert h100.run("modprobe", "-r", "nvidia").returncode == 0
    assert h100.loaded == set()
    assert not (h100.path / "state/loaded.view").exists()
    assert not (h100.path / "proc/driver/nvidia").exists()


def test_secure_boot_wants_an_enrolled_key(tmp_path: Path) -> None:
    root = make(tmp_path, model="t4", count=1, secure_boot="enabled")
    root.build()
    assert "Key was rejected by service" in root.run("modprobe", "nvidia").stderr
    root.fault("mok_enrolled=1")
    assert root.run("modprobe", "nvidia").returncode == 0


def test_a_key_waits_for_somebody_at_the_console(tmp_path: Path) -> None:
    root = make(tmp_path, model="t4", count=1, secure_boot="enabled")
    (tmp_path / "sys/firmware/efi/efivars").mkdir(parents=True)
    root.build()
    key = tmp_path / "var/lib/dkms/mok.pub"
    assert key.stat().st_size > 500
    assert "is not enrolled" in root.run("mokutil", "--test-key", str(key)).stdout
    assert root.run("mokutil", "--import", str(key)).returncode != 0
    assert root.run("mokutil", "--import", str(key), "--root-pw").returncode == 0
    assert "DKMS module signing key" in root.run("mokutil", "--list-new").stdout
    assert [path.name[:6] for path in (tmp_path / "sys/firmware/efi/efivars").iterdir()] == ["MokNew"]
    assert "already in the enrollment request" in root.run("mokutil", "--test-key", str(key)).stdout
    assert "Key was rejected" in root.run("modprobe", "nvidia").stderr


def test_the_console_on_the_card_keeps_nouveau(tmp_path: Path) -> None:
    root = make(tmp_path, model="rtx-4090")
    root.fault("nouveau_holders=1")
    root.run("modules", "boot")
    assert root.run("modprobe", "-r", "nouveau").stderr == "modprobe: FATAL: Module nouveau is in use.\n"


def test_the_initramfs_tells_which_files_are_in_it(h100: Root) -> None:
    (h100.path / "etc/modprobe.d/site.conf").write_text("blacklist nouveau\n")
    image = str(h100.path / f"boot/initrd.img-{KERNEL}")
    assert "site.conf" not in h100.run("lsinitramfs", image).stdout
    h100.run("update-initramfs", "-u", "-k", KERNEL)
    assert h100.run("lsinitramfs", image).stdout.splitlines() == ["etc/modprobe.d/site.conf"]
    assert h100.run("lsinitramfs", image + "-none").returncode == 1


def test_a_module_of_another_kernel_is_refused(h100: Root) -> None:
    h100.build()
    built = h100.path / f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
    built.write_text(built.read_text().replace(KERNEL, "6.1.0-89-amd64"))
    assert "Exec format error" in h100.run("modprobe", "nvidia").stderr


def test_blacklisting_counts_at_boot_and_not_by_hand(h100: Root) -> None:
    h100.build()
    (h100.path / "etc/modprobe.d/off.conf").write_text("blacklist nvidia\n")
    h100.run("modules", "boot")
    assert h100.loaded == set()
    assert h100.run("modprobe", "-b", "nvidia").returncode == 0
    assert h100.loaded == set()
    assert h100.run("modprobe", "nvidia").returncode == 0
    assert h100.loaded == {"nvidia"}


def test_a_builtin_module_is_always_there_and_an_unknown_one_never(h100: Root) -> None:
    assert h100.run("modprobe", "overlay").returncode == 0
    assert h100.run("modprobe", "mlx5_core").returncode == 1
    assert h100.run("modprobe", "-q", "mlx5_core").stderr == ""


def test_removing_a_driver_takes_its_modules_off_the_disk(h100: Root) -> None:
    h100.build()
    assert h100.run("dkms", "remove", "-m", "nvidia", "-v", DRIVER, "--all").returncode == 0
    assert h100.run("dkms", "status").stdout == ""
    assert h100.run("modinfo", "nvidia").returncode == 1


def test_modules_load_d_is_read(h100: Root) -> None:
    h100.build()
    (h100.path / "etc/modules-load.d").mkdir()
    (h100.path / "etc/modules-load.d/gpu.conf").write_text("# for GPUs\nnvidia-uvm\n")
    assert h100.run("modules", "configured").returncode == 0
    assert h100.loaded == {"nvidia", "nvidia_uvm"}
