"""The kernel's own words about GPUs and drivers, as reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.agent.driver import kernel_log
from fleet.agent.process import Result
from tests.agent.resources.fakes import FakeHost

LEGACY = """\
[   44.100000] NVRM: The NVIDIA Quadro P2000 GPU installed in this system is
               NVRM:  supported through the NVIDIA 580.xx Legacy drivers. Please
               NVRM:  visit http://www.nvidia.com/object/unix.html for more
               NVRM:  information.  The 590.44.01 NVIDIA driver will ignore
               NVRM:  this GPU.  Continuing probe...
[   44.200000] NVRM: No NVIDIA GPU found.
"""
NO_GSP = """\
[   87.358035] NVRM: The NVIDIA GPU 0000:0b:00.0 (PCI ID: 10de:1b38)
               NVRM: installed in this system is not supported by open
               NVRM: nvidia.ko because it does not include the required GPU
               NVRM: System Processor (GSP).
"""
WANTS_OPEN = """\
[   12.0] NVRM: The NVIDIA GPU 0000:1b:00.0 (PCI ID: 10de:2901)
          NVRM: installed in this system requires use of the NVIDIA open kernel modules.
"""
UNKNOWN = """\
NVRM: The NVIDIA GPU 0000:5d:00.0 (PCI ID: 10de:2330) installed in this system
      is not supported by the NVIDIA 570.86.15 driver release.
NVRM: The NVIDIA probe routine failed for 1 device(s).
"""
NOVA = """\
[  201.910514] NVRM: GPU 0000:01:00.0 is already bound to NovaCore.
[  201.913648] NVRM: No NVIDIA devices probed.
"""
OWNED = """\
[    7.1] NVRM: The NVIDIA probe routine was not called for 1 device(s).
[    7.1] NVRM: This can occur when a driver such as:
          NVRM: nouveau, rivafb, nvidiafb or rivatv
          NVRM: was loaded and obtained ownership of the NVIDIA device(s).
"""


def gpu(address: str, driver: str | None = "nvidia", device: str = "2330") -> dict[str, Any]:
    return {"address": address, "device_id": device, "driver": driver}


def explained(text: str, *gpus: dict[str, Any]) -> dict[str, Any]:
    problem = kernel_log.explain(text.splitlines(), list(gpus))
    assert problem is not None
    assert problem["remedy"]
    return problem


def test_a_gpu_of_a_legacy_branch_names_the_branch_it_needs() -> None:
    problem = explained(LEGACY)
    assert (problem["reason"], problem["branch"], problem["found"]) == ("legacy_branch", "580", "590.44.01")
    assert problem["what"].startswith("NVIDIA Quadro P2000 needs driver branch 580")


@pytest.mark.parametrize(
    ("text", "wanted", "address", "device"),
    [(NO_GSP, "proprietary", "0000:0b:00.0", "1b38"), (WANTS_OPEN, "open", "0000:1b:00.0", "2901")],
)
def test_a_gpu_for_which_the_modules_have_the_wrong_flavour(
    text: str, wanted: str, address: str, device: str
) -> None:
    problem = explained(text)
    assert problem["reason"] == "wrong_flavour"
    assert (problem["wanted"], problem["address"], problem["device_id"]) == (wanted, address, device)
    assert f"modules to {wanted}" in problem["remedy"]


def test_the_same_words_about_one_of_equal_gpus_mean_that_this_gpu_is_broken() -> None:
    others = [gpu(f"0000:{bus}:00.0") for bus in ("1b", "43", "52", "61", "9d", "c3", "d1")]
    problem = explained(UNKNOWN, gpu("0000:5d:00.0", None), *others)
    assert (problem["reason"], problem["address"]) == ("hardware", "0000:5d:00.0")
    assert "7 equal GPUs" in problem["what"]
    assert "driver" not in problem["remedy"]


@pytest.mark.parametrize(
    "others",
    [[], [gpu("0000:1b:00.0", "nvidia", "2331")], [gpu("0000:1b:00.0", None)], [gpu("0000:1b:00.0", "vfio-pci")]],
)  # fmt: skip
def test_where_no_equal_gpu_works_the_driver_does_not_know_it(others: list[dict[str, Any]]) -> None:
    problem = explained(UNKNOWN, gpu("0000:5d:00.0", None), *others)
    assert (problem["reason"], problem["device_id"], problem["found"]) == (
        "unsupported_gpu", "2330", "570.86.15",
    )  # fmt: skip


def test_a_gpu_that_another_driver_has() -> None:
    problem = explained(NOVA)
    assert (problem["reason"], problem["driver"], problem["address"]) == (
        "bound_to", "nova_core", "0000:01:00.0",
    )  # fmt: skip
    named = explained(OWNED, gpu("0000:01:00.0", "nouveau"))
    assert (named["reason"], named["driver"], named["address"]) == ("bound_to", "nouveau", "0000:01:00.0")
    assert "initramfs" in named["remedy"]


def test_a_gpu_that_is_gone_from_the_bus_is_broken_and_one_that_does_not_start_may_lack_firmware() -> None:
    gone = explained("[9.1] NVRM: GPU 0000:61:00.0: GPU has fallen off the bus.")
    assert (gone["reason"], gone["address"]) == ("hardware", "0000:61:00.0")
    dead = explained("[9.1] NVRM: GPU 0000:61:00.0: RmInitAdapter failed! (0x62:0xffff:2477)")
    assert (dead["reason"], dead["address"]) == ("initialisation_failed", "0000:61:00.0")
    assert "firmware" in dead["remedy"]


def test_an_ordinary_log_explains_nothing() -> None:
    line = "[4.1] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build"
    assert kernel_log.explain([line], []) is None
    assert kernel_log.explain([], []) is None


def test_only_what_came_since_counts() -> None:
    before = ["a", "b"]
    assert kernel_log.since(before, ["a", "b", "c", "d"]) == ["c", "d"]
    assert kernel_log.since(before, ["b", "c"]) == ["c"], "the log's oldest lines have gone"
    assert kernel_log.since(before, ["c", "d"]) == ["c", "d"]
    assert kernel_log.since([], ["c"]) == ["c"]


def test_the_log_is_read_where_dmesg_may_not_and_missed_where_nobody_may(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, lambda argv, stdin: Result(1, "", "dmesg: read kernel buffer failed"))
    assert kernel_log.read(host) == []
    host.write("/dev/kmsg", "6,700,44100000,-;NVRM: GPU 0000:01:00.0 is already\\x0abound to NovaCore.\n")
    assert explained("\n".join(kernel_log.read(host)))["driver"] == "nova_core"
    host.answer = lambda argv, stdin: Result(0, NOVA)
    assert kernel_log.read(host) == NOVA.splitlines()
