"""The initramfs holds what modprobe must know at boot, for the kernel that runs and the one that boots next."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fleet.agent.driver import seen
from fleet.agent.process import Result
from fleet.agent.protocol import KNOWN_AFTER_APPLY
from fleet.agent.resources.base import Provides, StepFailed
from fleet.agent.resources.initramfs import RESOURCE
from tests.agent.driver.conftest import KERNEL, GpuHost
from tests.agent.resources.fakes import converge, differences

NEXT = "6.1.0-31-amd64"
FILE = "/etc/modprobe.d/fleet-nvidia.conf"
ARGS = {"files": [FILE]}
IMAGES = [f"/boot/initrd.img-{KERNEL}", f"/boot/initrd.img-{NEXT}"]


def old(host: GpuHost, path: str) -> None:
    real = host.write(path, "an image")
    os.utime(real, (1, 1))


@pytest.fixture
def booting(host: GpuHost, monkeypatch: pytest.MonkeyPatch) -> GpuHost:
    """Two kernels whose images are older than the blacklist; update-initramfs writes the one named."""
    monkeypatch.setattr(seen, "kernels", lambda host: [KERNEL, NEXT])
    host.write(FILE, "blacklist nouveau\nblacklist nova_core\n")
    for image in IMAGES:
        old(host, image)
    tool(host, "update-initramfs")
    host.answer = lambda argv, stdin: write_image(host, argv)
    return host


def tool(host: GpuHost, name: str) -> None:
    host.write(f"/usr/sbin/{name}", "", 0o755)


def write_image(host: GpuHost, argv: list[str], holds: str = FILE) -> Result:
    if argv[0] == "update-initramfs":
        host.write(f"/boot/initrd.img-{argv[-1]}", "a new image")
    if argv[0] == "dracut":
        host.write(argv[2], "a new image")
    if argv[0] == "lsinitramfs":
        return Result(0, f"bin\nbin/sh\n{holds.lstrip('/')}\n")
    if argv[0] == "lsinitrd":
        return Result(0, f"Image: x\n-rw-r--r--   1 root root  69 Jan  1  1970 {holds.lstrip('/')}\n")
    return Result(0)


def test_the_image_of_every_kernel_is_rebuilt_by_name_and_looked_into(booting: GpuHost) -> None:
    tool(booting, "lsinitramfs")
    found = converge(booting, RESOURCE, ARGS)
    assert found == [{"path": image, "before": f"older than {FILE}", "after": "newer"} for image in IMAGES]
    assert booting.argvs() == [
        f"update-initramfs -u -k {KERNEL}",
        f"lsinitramfs {IMAGES[0]}",
        f"update-initramfs -u -k {NEXT}",
        f"lsinitramfs {IMAGES[1]}",
    ]


def test_an_image_that_is_newer_is_left_alone(booting: GpuHost) -> None:
    converge(booting, RESOURCE, ARGS)
    booting.commands.clear()
    old(booting, IMAGES[0])
    converge(booting, RESOURCE, ARGS)
    assert booting.argvs() == [f"update-initramfs -u -k {KERNEL}"]


def test_an_image_without_the_file_fails_the_step_and_goes_on_differing(booting: GpuHost) -> None:
    tool(booting, "lsinitramfs")
    booting.answer = lambda argv, stdin: write_image(booting, argv, "/etc/modprobe.d/other.conf")
    with pytest.raises(StepFailed, match=f"initramfs of kernel {KERNEL} .*does not hold {FILE}") as caught:
        converge(booting, RESOURCE, ARGS)
    assert "do not reboot" in str(caught.value.remedy)
    assert differences(booting, RESOURCE, ARGS)[0] == {
        "path": IMAGES[0], "before": f"without {FILE}", "after": "with them",
    }  # fmt: skip
    booting.answer = lambda argv, stdin: write_image(booting, argv)
    converge(booting, RESOURCE, ARGS)


def test_a_file_that_was_removed_counts_as_a_change(booting: GpuHost) -> None:
    from fleet.agent import files

    converge(booting, RESOURCE, ARGS)
    files.remove(booting, FILE)
    assert len(differences(booting, RESOURCE, ARGS)) == 2
    tool(booting, "lsinitramfs")
    booting.answer = lambda argv, stdin: write_image(booting, argv, "/bin/ls")
    converge(booting, RESOURCE, ARGS)


def test_dracut_is_given_image_and_kernel(booting: GpuHost) -> None:
    for image in IMAGES:
        (booting.folder / image.lstrip("/")).unlink()
    (booting.folder / "usr/sbin/update-initramfs").unlink()
    for name in ("dracut", "lsinitrd"):
        tool(booting, name)
    image = f"/boot/initramfs-{NEXT}.img"
    old(booting, image)
    converge(booting, RESOURCE, ARGS)
    assert booting.argvs() == [f"dracut -f {image} {NEXT}", f"lsinitrd {image}"]


def test_a_kernel_without_an_initramfs_needs_none(booting: GpuHost) -> None:
    for image in IMAGES:
        (booting.folder / image.lstrip("/")).unlink()
    assert differences(booting, RESOURCE, ARGS) == []


def test_a_full_boot_partition_says_so(booting: GpuHost) -> None:
    booting.answer = lambda argv, stdin: Result(1, "", "cp: error writing: No space left on device\n")
    with pytest.raises(StepFailed, match="No space left") as caught:
        converge(booting, RESOURCE, ARGS)
    assert "df -h /boot" in str(caught.value.remedy)


def test_without_a_tool_it_says_what_is_missing(booting: GpuHost) -> None:
    (booting.folder / "usr/sbin/update-initramfs").unlink()
    with pytest.raises(StepFailed, match="neither update-initramfs nor dracut"):
        converge(booting, RESOURCE, ARGS)


@pytest.mark.parametrize(
    ("provided", "differs", "wanted"),
    [
        (Provides(), True, None),
        (Provides(), False, None),
        (Provides(files=[FILE]), False, KNOWN_AFTER_APPLY),
        (Provides(files=[FILE]), True, None),
        (Provides(packages=["nvidia-open"]), False, KNOWN_AFTER_APPLY),
        (Provides(packages=["nvidia-open"]), True, KNOWN_AFTER_APPLY),
        (Provides(files=["/etc/other"]), False, None),
    ],
)
def test_what_earlier_steps_would_bring_decides(provided: Provides, differs: bool, wanted: Any) -> None:
    found = [{"path": IMAGES[0], "before": "older", "after": "newer"}] if differs else []
    assert RESOURCE.outlook(ARGS, found, provided) == wanted
