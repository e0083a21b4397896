"""From what a host prints to what is said of it, for states that must not be taken for one another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fleet.agent
from fleet.agent.facts.xid_lines import Collector
from fleet.agent.nvidia_smi import fallback
from fleet.agent.process import Result
from fleet.audit.findings import Severity
from fleet.audit.health import evaluate
from fleet.cli.main import main
from tests.agent.nvidia_smi.outputs import xml_of
from tests.agent.nvidia_smi.whole import assert_document
from tests.agent.resources.fakes import FakeHost
from tests.audit.test_health_rules import ids
from tests.facts import health_facts

DRIVER = "580.105.08"
HANDLE = "Unable to determine the device handle for GPU"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA"
    " driver is installed and running.\n\n"
)


def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str], printed: str) -> tuple[int, Any]:
    """(exit code, the host's part of the document) of a saved output."""
    file = tmp_path / "capture"
    file.write_text(printed)
    code = main(["health", "--from-capture", str(file), "--json"])
    (host,) = json.loads(capsys.readouterr().out)["hosts"].values()
    return code, host


@pytest.mark.parametrize(
    ("printed", "finding", "address", "words"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 545.23\n",
            "driver.library_mismatch", None, "545.23",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "driver.library_mismatch", None, ""),
        (NO_DRIVER, "driver.not_loaded", None, ""),
        ("No devices were found\n", "presence.no_devices", None, ""),
        (f"{HANDLE} 0000:5E:00.0: GPU is lost.  Reboot the system\n", "presence.lost", "0000:5e:00.0", ""),
        (f"{HANDLE} 000:BB:80.0: Unknown Error\n", "presence.unreadable", "0000:bb:80.0", "Unknown Error"),
        (f"{HANDLE} 0000:D7:00.0: Not Found\n", "presence.unreadable", "0000:d7:00.0", "Not Found"),
        ("Failed to initialize NVML: Unknown Error\n", "container.lost_gpu", None, ""),
        ("bash: line 1: nvidia-smi: command not found\n", "driver.tool_missing", None, ""),
    ],
)  # fmt: skip
def test_each_way_to_fail_is_a_finding_of_its_own_and_never_a_host_without_gpus(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    printed: str,
    finding: str,
    address: str | None,
    words: str,
) -> None:
    code, host = judged(tmp_path, capsys, printed)
    (said,) = host["findings"]
    assert (code, said["id"], said.get("gpu"), said["severity"]) == (4, f"health.{finding}", address, "error")
    assert words in said["what"]


def test_rows_that_wait_and_rows_that_are_not_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "gpu_bus_id, remapped_rows.uncorrectable, remapped_rows.pending, remapped_rows.failure\n"
    rows = "00000000:19:00.0, 3, 1, 0\n00000000:2B:00.0, [N/A], [N/A], [N/A]\n00000000:3C:00.0, 9, 0, 1\n"
    code, host = judged(tmp_path, capsys, header + rows)
    found = [(one["id"], one["gpu"]) for one in host["findings"]]
    assert (code, found) == (
        4,
        [
            ("health.memory.remap_pending", "0000:19:00.0"),
            ("health.memory.remap_failure", "0000:3c:00.0"),
        ],
    )


LOG = """\
[Fri Aug 30 11:43:09 2024] NVRM: Xid (PCI:0000:ca:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception
[Fri Aug 30 11:43:14 2024] NVRM: Xid (PCI:0000:ca:00): 109, pid=4711, name=python, Ch 00000008, errorString CTX SWITCH
May 10 22:25:01 gpu07 kernel: [176830.774761] NVRM: Xid (0000:04:00): 13, 0003 00000000 00008297 00001098
Jun  1 02:11:07 gpu07 kernel: NVRM: Xid (PCI:0000:3c:00): 79, pid=77, GPU has fallen off the bus.
3,4471,3023054882,-;NVRM: Xid (PCI:0000:3c:00): 79, GPU has fallen off the bus.
kernel: NVRM: Xid (PCI:0000:dd:00): 45, pid=99, name=python3, Ch 00000001 caused by previous Xid 149
NVRM: Xid (PCI:0000:05:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001 0x00000000 0x00000000)
6,4470,3023054000,-;EXT4-fs (nvme0n1p2): mounted filesystem
[12.3] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
"""


def test_a_log_of_many_drivers_is_seven_events_and_one_fault_is_told_once() -> None:
    collector = Collector(1_700_000_000.0)
    for line in LOG.splitlines():
        collector.add(line)
    found = {(one["code"], one["address"]): one for one in collector.document()["xids"]}
    assert {place: (one["count"], one["pid"]) for place, one in found.items()} == {
        (13, "0000:ca:00.0"): (1, None),
        (109, "0000:ca:00.0"): (1, 4711),
        (13, "0000:04:00.0"): (1, None),
        (79, "0000:3c:00.0"): (2, 77),
        (45, "0000:dd:00.0"): (1, 99),
        (145, "0000:05:00.0"): (1, None),
    }
    assert (found[45, "0000:dd:00.0"]["caused_by"], found[145, "0000:05:00.0"]["fatal"]) == (149, False)
    facts = health_facts("h100", {"kernel_log.xids": list(found.values())})
    ill = {(one.observed, one.gpu) for one in evaluate(facts, {}) if one.severity is Severity.ERROR}
    assert (79, "0000:3c:00.0") in ill
    assert not {code for code, _ in ill} & {13, 45}


def test_a_host_is_asked_anew_each_time_and_nothing_of_before_is_kept(tmp_path: Path) -> None:
    """Seconds after the boot, a little later, and when nvidia-smi hangs: by one agent that goes on running."""
    now: dict[str, Result] = {}
    host = FakeHost(tmp_path, lambda argv, stdin: now["answer"])
    host.write("/usr/bin/nvidia-smi", "", 0o755)
    seen = []
    for answer in (
        Result(9, NO_DRIVER),
        Result(0, xml_of(DRIVER)),
        Result(None, "", timed_out=True),
        Result(0, xml_of(DRIVER)),
    ):
        now["answer"] = answer
        document = fallback.probe(host, 10.0)
        assert_document(document)
        seen.append((document["status"], len(document["devices"])))
    assert seen == [("driver_not_loaded", 0), ("ok", 1), ("timeout", 0), ("ok", 1)]


def test_gpus_of_a_driver_that_is_not_loaded_yet_are_not_counted_as_none() -> None:
    facts = health_facts("h100", {"gpu_probe.status": "driver_not_loaded", "gpu_probe.devices": []})
    assert ids(evaluate(facts, {"gpus": {"count": 8}})) == ["driver.not_loaded"]
    assert len(facts["gpus"]) == 8


def test_a_corrupt_inforom_is_told_whatever_the_exit_code(tmp_path: Path) -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n"
    for exit_code in (0, 14):
        host = FakeHost(
            tmp_path, lambda argv, stdin, code=exit_code: Result(code, xml_of(DRIVER) + warning if "-q" in argv else "")
        )  # fmt: skip
        host.write("/usr/bin/nvidia-smi", "", 0o755)
        document = fallback.probe(host, 10.0)
        assert document["status"] == "gpu_error"
        assert document["devices"][0]["message"] == "infoROM is corrupted"


def test_no_part_of_fleet_sets_or_clears_modes_of_gpus() -> None:
    """ECC, MIG and their pending changes are the site's: nothing on a host asks NVML or nvidia-smi to change them."""
    words = ("nvmlDeviceSet", "nvmlDeviceClear", "nvmlDeviceReset", "--ecc-config", "--multi-instance-gpu")
    agent = Path(fleet.agent.__file__).parent
    found = [
        (path.name, word)
        for path in agent.rglob("*.py")
        for word in words
        if path.name != "pynvml.py" and word in path.read_text(encoding="utf-8")
    ]
    assert found == []
