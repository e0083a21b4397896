"""The kernel log of a simulated host: how the driver's lines read, and how they get into the file."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from fleet.core.errors import InputError
from fleet.lab.simulation.kernel_log import TEXTS, framed, sxid_lines, xid_lines
from tests.lab.simulation.test_host_programs import PROGRAMS, Root, make

_GPU = {"pci_address": "0000:1b:00.0", "uuid": "GPU-1", "serial": "1650000000001"}
_XID = re.compile(
    r"NVRM: Xid \(PCI:0000:1b:00(?: GPU-I:\d\d)?\): (\d+), (?:pid=('<unknown>'|\d+), name=\S+, )?\S"
)


@pytest.fixture
def host(tmp_path: Path) -> Root:
    """Two H100 with a driver that is built, and an empty kernel log."""
    root = make(tmp_path, model="h100-sxm", count=2)
    log = tmp_path / "run/fleet-lab-gpu/kmsg"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    root.build()
    return root


def shell(root: Root, script: str, stdin: str = "") -> str:
    """``script`` with the host's shell functions."""
    environment = {**os.environ, "FLEET_LAB_ROOT": str(root.path), "FLEET_LAB_GPU_STATE": str(root.path / "state"),
                   "FLEET_LAB_KMSG": str(root.path / "run/fleet-lab-gpu/kmsg")}  # fmt: skip
    done = subprocess.run(
        ["sh", "-ec", f". {PROGRAMS}/functions; {script}"],
        input=stdin, capture_output=True, text=True, env=environment, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("code", sorted(TEXTS))
def test_every_code_reads_as_the_drivers(code: int) -> None:
    found = [match for line in xid_lines(code, _GPU) if (match := _XID.match(line))]
    assert [match[1] for match in found] == [str(code)]
    assert xid_lines(code, _GPU)[0] == "NVRM: GPU at PCI:0000:1b:00: GPU-1"


def test_a_process_an_instance_and_a_cause_are_named() -> None:
    line = xid_lines(94, _GPU, pid=7194, process="train", gpu_instance=5)[-1]
    assert line.startswith("NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 94, pid=7194, name=train, Contained: ")
    line = xid_lines(45, {**_GPU, "serial": ""}, pid=12, caused_by=149)[-1]
    assert (
        line == "NVRM: Xid (PCI:0000:1b:00): 45, pid=12, name=python3, Ch 00000010 caused by previous Xid 149"
    )


def test_a_gpu_that_fell_off_the_bus_is_said_more_than_once() -> None:
    lines = xid_lines(79, _GPU)
    assert "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus." in lines
    assert "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus." in lines


def test_an_unknown_code_needs_a_text_and_a_record_is_one_line() -> None:
    with pytest.raises(InputError, match="no text is known for Xid 999"):
        xid_lines(999, _GPU)
    with pytest.raises(InputError, match="one printable line"):
        framed(xid_lines(999, _GPU, "two\nlines"))


def test_a_switch_says_sxid() -> None:
    assert sxid_lines(20034, "0000:07:00.0", switch=1, link=30, fatal=True) == [
        "nvidia-nvswitch1: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "nvidia-nvswitch1: SXid (PCI:0000:07:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
    ]


def test_a_driver_that_loads_says_so_in_records_of_the_kernel(host: Root) -> None:
    assert host.run("modprobe", "nvidia").returncode == 0
    shell(host, 'while read -r line; do kernel_log 3 "$line"; done', framed(xid_lines(79, _GPU)))
    records = (host.path / "run/fleet-lab-gpu/kmsg").read_text().splitlines()
    heads = [re.fullmatch(r"(\d),(\d+),(\d+),-;(.+)", record) for record in records]
    assert all(heads)
    assert [int(head[2]) for head in heads if head] == list(range(len(records)))
    stamps = [int(head[3]) for head in heads if head]
    assert stamps == sorted(stamps)
    texts = [head[4] for head in heads if head]
    loaded = [
        text for text in texts if text.startswith("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64")
    ]
    assert len(loaded) == 1
    assert "580.159.03" in loaded[0]
    assert texts[-4:] == xid_lines(79, _GPU)[-4:]


def test_dmesg_prints_that_file(host: Root) -> None:
    shell(host, 'kernel_log 3 "NVRM: one; two"')
    assert re.fullmatch(r"\[ *\d+\.\d{6}\] NVRM: one; two\n", shell(host, f"sh {PROGRAMS}/dmesg"))
    assert re.fullmatch(
        r"kern  :err   : \[[A-Z][a-z]{2} .* \d{4}\] NVRM: one; two\n",
        shell(host, f"sh {PROGRAMS}/dmesg -T -x"),
    )


def test_links_on_the_bus_follow_the_faults(host: Root) -> None:
    device = host.path / "state/pci/0000:01:00.0"
    shown = host.path / "run/fleet-lab-gpu/pci/0000:01:00.0"
    for folder in (device, shown):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "current_link_width").write_text("16\n")
        (folder / "current_link_speed").write_text("32.0 GT/s PCIe\n")
    host.fault("gpu.0.pcie.width=4", "gpu.0.pcie.generation=1")
    host.run("modules", "refresh")
    assert (shown / "current_link_width").read_text() == "4\n"
    assert (shown / "current_link_speed").read_text() == "2.5 GT/s PCIe\n"
    host.fault()
    host.run("modules", "refresh")
    assert (shown / "current_link_width").read_text() == "16\n"
    assert (shown / "current_link_speed").read_text() == "32.0 GT/s PCIe\n"
