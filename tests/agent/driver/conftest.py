"""A host with GPUs whose kernel modules are folders, and what the facts say of it given by the test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.driver import seen
from fleet.agent.process import Result
from tests.agent.resources.fakes import FakeHost, Systemd

KERNEL = "6.1.0-28-amd64"
OLD, NEW = "550.163.01", "580.159.03"
USES = {"nvidia_uvm": "nvidia", "nvidia_modeset": "nvidia", "nvidia_drm": "nvidia_modeset"}


class GpuHost(FakeHost):
    """``driver`` is what modprobe loads; ``users`` hold a device; ``stuck`` modules do not unload."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, state_dir=str(root / "state"))
        self.driver: dict[str, Any] | None = {
            "version": NEW,
            "flavour": "open",
            "path": "/lib/nvidia.ko",
            "signer": None,
        }
        self.in_kernel: dict[str, Any] | None = None
        self.users: list[dict[str, Any]] = []
        self.gpus = [self.gpu(number) for number in range(2)]
        self.modprobe: Callable[[str], Result] = self.load
        self.stuck: dict[str, str] = {}
        self.log: list[str] = []
        self.write("/proc/sys/kernel/osrelease", KERNEL + "\n")
        self.write("/proc/sys/kernel/random/boot_id", "first\n")
        self.write("/usr/bin/modprobe", "", 0o755)
        (root / "etc/modprobe.d").mkdir(parents=True)
        self.systemd = Systemd(
            self, **{"nvidia-persistenced_service": {}, "dcgm_service": {"ActiveState": "inactive"}}
        )
        self.answer = self.answered

    @staticmethod
    def gpu(number: int) -> dict[str, Any]:
        return {
            "address": f"0000:{number + 1}b:00.0", "device_id": "2330", "driver": None,
            "uuid": f"GPU-{number}", "minor": number,
        }  # fmt: skip

    def answered(self, argv: list[str], stdin: str | None) -> Result:
        if argv[0] == "modprobe":
            return self.modprobe(argv[-1])
        if argv[0] == "rmmod":
            return self.unload(argv[1])
        if argv[0] == "dmesg":
            return Result(0, "".join(line + "\n" for line in self.log))
        return self.systemd(argv, stdin)

    def put(self, *names: str, references: int = 0) -> None:
        for name in names:
            self.write(f"/sys/module/{name}/initstate", "live\n")
            self.write(f"/sys/module/{name}/refcnt", f"{references}\n")
        self.count()

    def count(self) -> None:
        """References by modules on top."""
        for below in ("nvidia", "nvidia_modeset"):
            if (self.folder / "sys/module" / below).is_dir():
                tops = [name for name, under in USES.items() if under == below and self.has(name)]
                self.write(f"/sys/module/{below}/refcnt", f"{len(tops)}\n")

    def has(self, name: str) -> bool:
        return (self.folder / "sys/module" / name).is_dir()

    def load(self, name: str) -> Result:
        if name == "nvidia":
            self.in_kernel = {key: (self.driver or {})[key] for key in ("version", "flavour")}
            for gpu in self.gpus:
                gpu["driver"] = "nvidia"
        self.put(name)
        return Result(0)

    def unload(self, name: str) -> Result:
        if name in self.stuck:
            return Result(1, "", f"rmmod: ERROR: Module {name} {self.stuck[name]}\n")
        shutil.rmtree(self.folder / "sys/module" / name)
        if name == "nvidia":
            self.in_kernel = None
            for gpu in self.gpus:
                gpu["driver"] = None
        self.count()
        return Result(0)

    def old_driver(self, *modules: str) -> None:
        """The old driver is in the kernel, with these modules."""
        self.put("nvidia", *modules)
        self.in_kernel = {"version": OLD, "flavour": "proprietary"}
        for gpu in self.gpus:
            gpu["driver"] = "nvidia"

    def did(self) -> list[str]:
        """What ran, but questions."""
        return [text for text in self.argvs() if not text.startswith("dmesg")]

    def active(self, unit: str) -> bool:
        return self.systemd.units[unit]["ActiveState"] == "active"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuHost:
    """Two GPUs, the new driver on the disk, nothing loaded, the persistence daemon running."""
    made = GpuHost(tmp_path)
    monkeypatch.setattr(seen, "loaded", lambda host: host.in_kernel)
    monkeypatch.setattr(seen, "on_disk", lambda host, release: host.driver if release == KERNEL else None)
    monkeypatch.setattr(seen, "holders", lambda host: list(host.users))
    monkeypatch.setattr(seen, "gpus", lambda host: host.gpus)
    monkeypatch.setattr(seen, "kernels", lambda host: [KERNEL])
    monkeypatch.setattr(seen, "signing_key", lambda host: "/var/lib/dkms/mok.pub")
    monkeypatch.setattr(seen, "enrolment_pending", lambda host: False)
    return made
