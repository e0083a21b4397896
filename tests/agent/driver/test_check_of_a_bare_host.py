"""What a check says of a host that has no driver yet: never ok, never failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.agent import resources
from fleet.agent.check import CheckPass
from fleet.agent.driver import seen
from fleet.agent.paths import Paths
from fleet.agent.pending import Pending
from fleet.agent.protocol import FAILED, OK
from fleet.agent.resources.base import StepPending
from fleet.agent.step_host import StepHost
from tests.agent.driver.conftest import KERNEL, NEW, GpuHost

FILE = "/etc/modprobe.d/fleet-nvidia.conf"
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("file", {"path": FILE, "content": "blacklist nouveau\nblacklist nova_core\n"}),
    ("package", {"names": [{"name": "nvidia-open", "version": f"{NEW}-1"}], "state": "present"}),
    ("initramfs", {"files": [FILE]}),
    ("nvidia_modules", {"version": NEW, "flavour": "open", "load": ["nvidia", "nvidia_uvm"], "forbid": ["nouveau"]}),
    ("cdi_specification", {"path": "/etc/cdi/nvidia.yaml", "command": ["nvidia-ctk", "cdi", "generate"]}),
]  # fmt: skip


class CheckHost(GpuHost, StepHost):
    """A host that the check pass can go through."""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckHost:
    host = CheckHost(tmp_path)
    host.driver = None
    host.write("/usr/bin/apt-get", "", 0o755)
    host.write("/var/lib/dpkg/status", "")
    host.write(f"/boot/initrd.img-{KERNEL}", "an image")
    for name, value in {"loaded": None, "gpus": [], "kernels": [KERNEL]}.items():
        monkeypatch.setattr(seen, name, lambda host, value=value: value)
    monkeypatch.setattr(seen, "on_disk", lambda host, release: None)
    return host


def check(host: CheckHost, *steps: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    plan: Any = {"format": 1, "run": "r", "host": "h", "segment": 0, "last": True}
    plan["steps"] = [{"id": kind, "resource": kind, "args": args} for kind, args in steps]
    pending = Pending(Paths(host.state_dir, host.runtime_dir))
    found: Any = CheckPass(plan, host, load=resources.load, pending=pending, outcomes={}).run()
    return list(found)


def test_every_step_would_change_or_is_known_after_apply(bare: CheckHost) -> None:
    statuses = {result["step"]: result["status"] for result in check(bare, *STEPS)}
    assert statuses == {
        "file": "would_change",
        "package": "would_change",
        "initramfs": "known_after_apply",
        "nvidia_modules": "known_after_apply",
        "cdi_specification": "known_after_apply",
    }


def test_nor_does_nouveau_or_any_one_step_alone_make_it_ok_or_failed(bare: CheckHost) -> None:
    bare.put("nouveau", references=1)
    for steps in (STEPS, STEPS[1:], STEPS[3:], STEPS[3:4]):
        assert not {OK, FAILED} & {result["status"] for result in check(bare, *steps)}


def test_a_state_that_waits_for_leave_is_known_after_apply(
    bare: CheckHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(host: Any, args: Any) -> Any:
        raise StepPending("somebody must say so", "fleet provision --disrupt")

    monkeypatch.setattr(resources.load("nvidia_modules"), "read", waits)
    (result,) = check(bare, STEPS[3])
    assert (result["status"], result["remedy"]) == ("known_after_apply", "fleet provision --disrupt")
