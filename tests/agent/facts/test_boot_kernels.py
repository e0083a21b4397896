"""What each kernel that may boot has for the driver: the danger of a kernel without a module is seen before."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.facts import boot_kernels, modprobe

from .elf import module

RUNNING, NEXT = "6.8.0-60-generic", "6.8.0-62-generic"
FILE = module({"version": "580.159.03", "license": "NVIDIA"})


def test_the_next_kernel_without_headers_and_module(host: Any) -> None:
    host.write(f"/usr/src/linux-headers-{RUNNING}/Makefile", "")
    host.link(f"/lib/modules/{RUNNING}/build", f"/usr/src/linux-headers-{RUNNING}")
    host.link(f"/lib/modules/{NEXT}/build", f"/usr/src/linux-headers-{NEXT}")  # leads nowhere
    host.write(f"/lib/modules/{RUNNING}/updates/dkms/nvidia.ko", FILE)
    host.write(f"/boot/initrd.img-{RUNNING}", "")
    running, following = boot_kernels.kernels(host, RUNNING, NEXT, set())
    assert (running["release"], running["running"], running["next"]) == (RUNNING, True, False)
    assert (running["headers"], [file["version"] for file in running["modules"]]) == (True, ["580.159.03"])
    assert running["modules"][0]["flavour"] == "proprietary"
    assert (following["release"], following["running"], following["next"]) == (NEXT, False, True)
    assert (following["headers"], following["modules"]) == (False, [])
    assert following["initramfs"] == {"path": None, "exists": False, "older_than": []}


def test_an_unknown_next_kernel_leaves_the_running_one(host: Any) -> None:
    (only,) = boot_kernels.kernels(host, RUNNING, None, set())
    assert (only["running"], only["next"]) == (True, False)


def test_module_files_by_whoever_installs_them_in_the_order_of_modprobe(host: Any) -> None:
    base = f"/lib/modules/{RUNNING}"
    paths = [
        "updates/dkms/nvidia-current.ko.xz",
        "updates/dkms/nvidia.ko",
        "extra/nvidia/nvidia.ko.zst",
        "weak-updates/nvidia/nvidia.ko",
        "kernel/nvidia-580-open/nvidia.ko",
        "kernel/drivers/video/nvidia.ko",
    ]
    others = [
        "updates/dkms/nvidia-uvm.ko",
        "updates/dkms/nvidia-current-drm.ko",
        "kernel/drivers/video/nvidiafb.ko",
        "kernel/nvidia-580-open/bits/nv.o",
    ]
    for path in [*paths, *others]:
        host.write(f"{base}/{path}", "")
    assert boot_kernels.driver_files(host, RUNNING) == [f"{base}/{path}" for path in paths]


def test_modules_in_memory_that_the_next_kernel_has_no_file_for(host: Any) -> None:
    for path in ("dkms/nvidia.ko", "dkms/nvidia-peermem.ko", "dkms/mlx5_core.ko.xz", "dkms/lustre.ko"):
        host.write(f"/lib/modules/{RUNNING}/updates/{path}", "")
    host.write(f"/lib/modules/{NEXT}/updates/dkms/lustre.ko", "")
    host.write(f"/lib/modules/{NEXT}/kernel/drivers/net/mlx5_core.ko", "")  # not the one in use
    loaded = {"nvidia", "nvidia_peermem", "mlx5_core", "lustre", "ext4"}
    assert boot_kernels.missing(host, RUNNING, NEXT, loaded) == ["mlx5_core", "nvidia_peermem"]
    assert boot_kernels.missing(host, RUNNING, NEXT, {"ext4"}) == []
    assert boot_kernels.missing(host, RUNNING, RUNNING, loaded) == []


def test_a_module_file_that_nobody_can_read_says_so(host: Any, monkeypatch: Any) -> None:
    from fleet.agent.process import Result

    monkeypatch.setattr(host, "run", lambda words, **named: Result(1, "", "modinfo: ERROR"))
    host.write(f"/lib/modules/{RUNNING}/updates/nvidia.ko", "not a module")
    (entry,) = boot_kernels.kernels(host, RUNNING, RUNNING, set())
    (file,) = entry["modules"]
    assert (file["version"], file["version_reason"]) == (None, "error")


@pytest.mark.parametrize("name", [f"initrd.img-{RUNNING}", f"initramfs-{RUNNING}.img", f"initrd-{RUNNING}"])
def test_the_initramfs_under_each_distributions_name(host: Any, name: str) -> None:
    host.write(f"/boot/{name}", "")
    assert boot_kernels.initramfs(host, RUNNING)["path"] == f"/boot/{name}"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["blacklist nouveau\n"], ["nouveau"]),  # not nova_core: since 6.15 that is not enough
        (["blacklist nouveau\nblacklist nova-core\n"], ["nouveau", "nova_core"]),
        (["install nouveau /bin/false\n", "  blacklist nova_core # by us\n"], ["nouveau", "nova_core"]),
        (["install nouveau \\\n  /usr/bin/true\n"], ["nouveau"]),
        (["# blacklist nouveau\noptions nouveau modeset=0\nalias nouveau off\n"], []),
        (["install nouveau /sbin/modprobe --ignore-install nouveau\n"], []),
    ],
)
def test_what_modprobe_is_told_not_to_load(texts: list[str], expected: list[str]) -> None:
    assert modprobe.forbidden(texts) == expected


def test_a_file_in_etc_hides_that_of_the_package(host: Any) -> None:
    host.write("/usr/lib/modprobe.d/nvidia.conf", "blacklist nouveau\nblacklist nova_core\n")
    assert modprobe.rivals_blocked(host)
    host.write("/etc/modprobe.d/nvidia.conf", "")
    assert modprobe.files(host) == ["/etc/modprobe.d/nvidia.conf"]
    assert not modprobe.rivals_blocked(host)
