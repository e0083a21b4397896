"""What the resources see of this very machine, whatever it is: the kernel's files are not like others."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from fleet.agent.driver import seen
from fleet.agent.host import Host
from fleet.agent.resources import load

NVIDIA = {"version": None, "load": ["nvidia"], "forbid": ["nouveau", "nova_core"]}
CDI = {"path": "/etc/cdi/nvidia.yaml", "command": ["nvidia-ctk", "cdi", "generate"]}


def test_the_kernels_settings_can_be_read() -> None:
    host = Host("/")
    assert seen.running_kernel(host) == os.uname().release
    uuid.UUID(seen.boot_id(host))


def test_where_there_is_no_kernel_they_are_empty(tmp_path: Path) -> None:
    assert seen.running_kernel(Host(str(tmp_path))) == ""


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("nvidia_modules", NVIDIA),
        ("initramfs", {"files": ["/etc/modprobe.d/fleet-nvidia.conf"]}),
        ("cdi_specification", CDI),
    ],
)
def test_the_state_of_a_real_machine_can_be_read(kind: str, args: dict[str, object], tmp_path: Path) -> None:
    resource = load(kind)
    host = Host("/", state_dir=str(tmp_path))
    assert isinstance(resource.diff(resource.read(host, args), args), list)
