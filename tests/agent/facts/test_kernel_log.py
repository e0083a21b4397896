"""Xids are counted from any framing and any driver's wording, from whichever log may be read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from fleet.agent import facts
from fleet.agent.facts import kernel_log_sources as sources
from fleet.agent.facts import log_stamps
from fleet.agent.facts.xid_lines import MOST, Collector, sxid_of, xid_of
from fleet.agent.process import Result

from .test_facts_document import check
from .test_gpus import function

SAMPLES = Path(__file__).parents[3] / ".." / "shared" / "samples" / "extra"
BOOT = 1_700_000_000.0  # 2023-11-14T22:13:20Z


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    """dmesg's human stamps are in this machine's time zone."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def summed(*lines: str, boot: float | None = BOOT) -> dict[str, Any]:
    collector = Collector(boot)
    for line in lines:
        collector.add(line)
    return collector.document()


def picked(line: str, *keys: str) -> tuple[Any, ...]:
    found = xid_of(line)
    assert found is not None
    return tuple(found[key] for key in keys)


# -- wordings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "address", "pid", "process"),
    [
        (
            "NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 1)",
            13, "0000:cb:00.0", None, None,
        ),
        (
            "NVRM: Xid (PCI:0000:cb:00): 109, pid=4711, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH",
            109, "0000:cb:00.0", 4711, "pt_main_thread",
        ),
        ("NVRM: Xid (0000:03:00): 13, 0003 00000000 00008297 00001098", 13, "0000:03:00.0", None, None),
        ("NVRM: Xid (0003:00): 13, 0003 00000000 00008297", 13, "0000:03:00.0", None, None),
        ("NVRM: Xid PCI:0000:01:00: 43, Ch 00000018", 43, "0000:01:00.0", None, None),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.", 79, "0000:3b:00.0", 12, None),
        ("NVRM: Xid (PCI:0000:3B:00): 79, GPU has fallen off the bus.", 79, "0000:3b:00.0", None, None),
        ("NVRM: Xid (PCI:000a:01:00): 63, Row Remapper: New row", 63, "000a:01:00.0", None, None),
        ("NVRM: Xid (PCI:10000:01:00): 63, Row Remapper: New row", 63, "10000:01:00.0", None, None),
        ("NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=, Ch 1", 31, "0000:01:00.0", 7, None),
    ],
)  # fmt: skip
def test_one_line(line: str, code: int, address: str, pid: int | None, process: str | None) -> None:
    assert picked(line, "code", "address", "pid", "process") == (code, address, pid, process)
    assert picked(f"Jun  1 02:11:07 gpu01 kernel: {line}", "text") == (line,)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
        "EXT4-fs (nvme0n1p2): mounted filesystem",
        "NVRM: Xid (PCI:0000:01:00): garbled",
        "NVRM: Xid (PCI:zz:01:00): 31, Ch 1",
        "program: my Xid (PCI:0000:01:00): 31",
        "",
    ],
)
def test_other_lines_are_no_xid(line: str) -> None:
    assert xid_of(line) is None
    assert summed(line) == {"xids": [], "sxids": [], "fallen_off_bus": []}


def test_the_instance_of_a_mig_gpu() -> None:
    line = "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No"
    assert picked(line, "code", "gpu_instance", "pid") == (94, "5", 7194)
    line = "NVRM: Xid (PCI:0000:01:00 GPU-I:11 GPU-CI:02): 31, pid=7194, name=python3, Ch 00000003"
    assert picked(line, "code", "gpu_instance", "process") == (31, "11", "python3")


def test_an_echo_names_its_cause() -> None:
    line = "NVRM: Xid (PCI:0000:dc:00): 45, pid=88, name=python3, Ch 00000001 caused by previous Xid 149"
    assert picked(line, "code", "caused_by") == (45, 149)
    (alone, echo) = summed(line.partition(" caused")[0], line)["xids"]
    assert (alone["caused_by"], echo["caused_by"]) == (None, 149)


@pytest.mark.parametrize(
    ("told", "unit", "fatal"),
    [
        ("RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001 0x00000000)", "RLW_REMAP", False),
        ("NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000)", "NETIR_LINK_EVT", True),
        ("pid=5, name=a, TLW_RX Non-fatal XC0 i0 Link 01 (0x1 0x1)", "TLW_RX", False),
        ("something else", None, None),
    ],
)
def test_the_unit_of_nvlink_5(told: str, unit: str | None, fatal: bool | None) -> None:
    line = f"NVRM: Xid (PCI:0000:04:00): 145, {told}"
    assert picked(line, "subcode", "fatal") == (unit, fatal)


def test_other_codes_have_no_unit() -> None:
    assert picked("NVRM: Xid (PCI:0000:04:00): 13, ESR Fatal", "subcode", "fatal") == (None, None)


@pytest.mark.parametrize(
    ("words", "action"),
    [
        ("0x0 (None) to 0x1 (GPU Reset Required)", 1),
        ("0x0 (None) to 0x2 (OS Reboot)", 2),
        ("0x0 (None) to 0x1 (PF FLR)", 1),
        ("0x1 (GPU Reset Required) to 0x0 (None)", 0),
        ("0x0 (None) to 0x4 (Drain and Reset)", 4),
    ],
)
def test_the_recovery_action_is_the_number(words: str, action: int) -> None:
    line = f"NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from {words}"
    assert picked(line, "code", "recovery_action") == (154, action)


def test_text_is_short_and_printable() -> None:
    found = xid_of("NVRM: Xid (PCI:0000:01:00): 31, name=a\x1b[31mb, " + "x" * 5000)
    assert found is not None
    assert len(found["text"]) <= 300
    assert found["text"].isprintable()


def test_a_switch_tells_one_fault_in_three_lines() -> None:
    head = "[ 131453.740743] nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, "
    (one,) = summed(
        head + "Fatal, Link 30 LTSSM Fault Up",
        head + "Severity 1 Engine instance 30 Sub-engine instance 00",
        head + "Data {0x10000000, 0x00000000}",
        head + "Fatal, Link 30 LTSSM Fault Up",
    )["sxids"]
    assert (one["code"], one["switch"], one["address"]) == (20034, "nvidia-nvswitch0", "0000:a9:00.0")
    assert (one["fatal"], one["link"], one["count"]) == (True, 30, 2)
    assert one["first_at"] == "2023-11-16T10:44:13Z"
    other = sxid_of("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress PRIV error")
    assert other is not None
    assert (other["fatal"], other["link"]) == (False, 32)


# -- a GPU that is gone without an Xid ----------------------------------------------------------------------


PARAGRAPH = (
    "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
    "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "               NVRM: fallen off the bus and is not responding to commands.",
    "[ 1843.439662] NVRM: The NVIDIA probe routine failed for 1 device(s).",
)


def test_a_gpu_that_fell_off_the_bus_without_an_xid() -> None:
    document = summed(*PARAGRAPH)
    assert document["xids"] == []
    (lost,) = document["fallen_off_bus"]
    assert lost["address"] == "0000:b3:00.0"
    assert lost["at"] == "2023-11-14T22:44:03Z"
    assert "fallen off the bus" in lost["text"]


def test_with_an_xid_79_it_is_not_told_twice() -> None:
    line = "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus."
    assert [one["address"] for one in summed(line)["fallen_off_bus"]] == ["0000:b3:00.0"]
    document = summed("NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus.", line)
    assert document["fallen_off_bus"] == []
    assert [one["code"] for one in document["xids"]] == [79]


def test_another_paragraph_is_not_one_of_a_lost_gpu() -> None:
    other = ("NVRM: The NVIDIA GPU 0000:03:00.0 (PCI ID: 10de:1bb3)", "NVRM: installed in this system is")
    lines = (*other, *["NVRM: x"] * 9)
    assert summed(*lines, "NVRM: fallen off the bus")["fallen_off_bus"] == []


# -- framings and times -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framing", "at"),
    [
        ("3,4471,3023054882,-;", "2023-11-14T23:03:43Z"),
        ("6,4471,3023054882,-,caller=T71;", "2023-11-14T23:03:43Z"),
        ("[ 3023.054882] ", "2023-11-14T23:03:43Z"),
        ("<3>[ 3023.054882] ", "2023-11-14T23:03:43Z"),
        ("May 10 22:25:01 gpu01 kernel: [ 3023.054882] ", "2023-11-14T23:03:43Z"),
        ("1725018189.123456 gpu01 kernel: ", "2024-08-30T11:43:09Z"),
        ("[Fri Aug 30 11:43:09 2024] ", "2024-08-30T11:43:09Z"),
        ("[Sun Feb  2 01:00:00 2025] ", "2025-02-02T01:00:00Z"),
        ("2024-08-30T13:43:09,123456+02:00 ", "2024-08-30T11:43:09Z"),
        ("2024-08-30T11:43:09.123456Z gpu01 kernel: ", "2024-08-30T11:43:09Z"),
        ("Jun  1 02:11:07 gpu01 kernel: ", None),  # of which year?
        ("kernel: ", None),
        ("", None),
    ],
)
def test_when_it_was_written(framing: str, at: str | None) -> None:
    (one,) = summed(framing + "NVRM: Xid (PCI:0000:3b:00): 79, at [99.5] 2020-01-01T00:00:00Z")["xids"]
    assert one["first_at"] == one["last_at"] == at


def test_the_boot_of_a_log_from_elsewhere_is_not_known() -> None:
    (one,) = summed("3,4471,3023054882,-;NVRM: Xid (PCI:0000:3b:00): 79, x", boot=None)["xids"]
    assert one["first_at"] is None


def test_a_stamp_beyond_all_calendars_is_none() -> None:
    assert log_stamps.written_at("3,1,99999999999999999999999,-;", BOOT) is None


def test_the_same_fault_in_two_framings_is_one_of_count_two() -> None:
    (one,) = summed(
        "Jun  1 02:11:07 gpu01 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=train, GPU has fallen off",
        "3,4471,3023054882,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    )["xids"]
    assert one["count"] == 2
    assert (one["pid"], one["process"]) == (1234, "train")
    assert one["first_at"] == "2023-11-14T23:03:43Z"


def test_first_and_last_time() -> None:
    lines = [f"[{second}.0] NVRM: Xid (PCI:0000:3b:00): 31, pid={second}, Ch 1" for second in (10, 20, 30)]
    (one,) = summed(*lines)["xids"]
    assert (one["first_at"], one["last_at"]) == ("2023-11-14T22:13:30Z", "2023-11-14T22:13:50Z")
    assert (one["count"], one["pid"]) == (3, 30)


def test_a_flood_keeps_the_newest() -> None:
    collector = Collector(BOOT)
    for number in range(MOST + 50):
        for _ in range(20):
            collector.add(f"[{number}.0] NVRM: Xid (PCI:0000:3b:00): {number}, pid={number}, Ch 1")
        collector.add(f"NVRM: GPU {number:04x}:01:00.0: GPU has fallen off the bus.")
    document = collector.document()
    assert [one["code"] for one in document["xids"]] == list(range(50, MOST + 50))
    assert {one["count"] for one in document["xids"]} == {20}
    assert len(document["fallen_off_bus"]) == MOST


# -- where it is read ---------------------------------------------------------------------------------------


FAULT = "NVRM: Xid (PCI:0000:05:00): 79, pid=9, GPU has fallen off the bus."


@pytest.fixture
def gpu_host(host: Any) -> Any:
    function(host, "0000:05:00.0", "10de", "2330", "030200", "nvidia")
    return host


def read(host: Any) -> Any:
    document = facts.collect(host, ["kernel_log"])
    check(document)
    assert document["errors"] == []
    return document["kernel_log"] if document["kernel_log"] is not None else document["kernel_log_reason"]


def test_without_nvidia_hardware_nothing_is_read(host: Any) -> None:
    host.write("/dev/kmsg", f"3,1,1,-;{FAULT}\n")
    function(host, "0000:06:00.0", "8086", "1533", "020000")
    assert read(host) == "not_supported"


def test_a_regular_file_in_the_place_of_kmsg(gpu_host: Any) -> None:
    first = f"6,40,1000,-;booting\n3,41,2000000,-;{FAULT}\n SUBSYSTEM=pci\n"
    gpu_host.write("/dev/kmsg", f"{first}3,42,3000000,-;last {FAULT}")
    part = read(gpu_host)
    assert part["source"] == "kmsg"
    assert part["overwritten"] is False
    assert part["begins_at"] is not None
    assert [(one["code"], one["count"]) for one in part["xids"]] == [(79, 2)]


def test_of_a_huge_file_the_end_is_read(gpu_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FILE_LIMIT", 1000)
    lines = [f"3,{number},{number},-;NVRM: Xid (PCI:0000:05:00): {number}, Ch 1\n" for number in range(100)]
    gpu_host.write("/dev/kmsg", "".join(lines))
    part = read(gpu_host)
    assert part["overwritten"] is True
    assert 10 < len(part["xids"]) < 30
    assert part["xids"][-1]["code"] == 99


def test_a_paragraph_in_one_record(gpu_host: Any) -> None:
    text = "\\x0a".join(line.split("] ")[-1].strip() for line in PARAGRAPH)
    gpu_host.write("/dev/kmsg", f"3,7,1843308145,-;{text}\n")
    (lost,) = read(gpu_host)["fallen_off_bus"]
    assert lost["address"] == "0000:b3:00.0"


class Device:
    """What reading /dev/kmsg gives: records, and errors in between."""

    def __init__(self, *answers: bytes | int) -> None:
        self.answers = list(answers)

    def read(self) -> bytes:
        answer = self.answers.pop(0) if self.answers else errno.EAGAIN
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        return answer


def records(*answers: bytes | int) -> dict[str, Any]:
    log = sources.Log("kmsg")
    sources.read_records(log, Device(*answers).read)
    return log.part()


def test_records_end_where_the_device_would_wait() -> None:
    part = records(
        b"6,0,10,-;Linux version 6.8\n",
        f"3,1,20,-;{FAULT}\n DEVICE=+pci:x\n".encode(),
        errno.EAGAIN,
        b"never",
    )
    assert part["overwritten"] is False
    assert [one["count"] for one in part["xids"]] == [1]


def test_records_that_were_overwritten_are_said_to_be() -> None:
    assert records(f"3,500,20,-;{FAULT}\n".encode())["overwritten"] is True
    part = records(b"6,0,10,-;Linux version 6.8\n", errno.EPIPE, f"3,900,20,-;{FAULT}\n".encode())
    assert part["overwritten"] is True
    assert [one["code"] for one in part["xids"]] == [79]


def test_a_log_begins_when_its_first_record_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "boot_time", lambda: BOOT)
    dated = b"6,0,0,-;Linux version 6.8 (built 2020-01-01T00:00:00Z) [Fri Aug 30 11:43:09 2019]\n"
    assert records(dated)["begins_at"] == "2023-11-14T22:13:20Z"


def test_an_empty_device() -> None:
    part = records()
    assert part["overwritten"] is None
    assert part["overwritten_reason"] == "not_supported"


def test_an_endless_log_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "RECORDS_LIMIT", 50)
    log = sources.Log("kmsg")
    sources.read_records(log, lambda: f"3,1,20,-;{FAULT}\n".encode())
    assert log.part()["xids"][0]["count"] == 50


def test_a_pipe_in_its_place_is_not_waited_for(gpu_host: Any) -> None:
    path = Path(gpu_host.path("/dev/kmsg"))
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert read(gpu_host) == "not_supported"


def commands(host: Any, monkeypatch: pytest.MonkeyPatch, **answers: Result) -> list[str]:
    """Puts commands on the host that answer so; the names of those that were run."""
    ran = []
    for name in answers:
        host.write(f"/usr/bin/{name}", "").chmod(0o755)

    def run(argv: list[str], on_output: Any, **_: Any) -> Result:
        ran.append(argv[0])
        result = answers[argv[0]]
        # A command's output comes in pieces that end anywhere.
        for start in range(0, len(result.stdout), 50):
            on_output(result.stdout[start : start + 50], "stdout")
        return result

    monkeypatch.setattr(host, "run", run)
    return ran


def test_the_journal_where_there_is_no_kmsg(gpu_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"1725018180.000001 gpu01 kernel: Linux version 6.8\n1725018189.5 gpu01 kernel: {FAULT}\n"
    ran = commands(gpu_host, monkeypatch, journalctl=Result(0, text), dmesg=Result(0, "never"))
    part = read(gpu_host)
    assert ran == ["journalctl"]
    assert (part["source"], part["begins_at"]) == ("journal", "2024-08-30T11:43:00Z")
    assert part["overwritten"] is None
    assert part["xids"][0]["first_at"] == "2024-08-30T11:43:09Z"


def test_a_journal_that_is_cut_off_is_said_to_be(gpu_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "JOURNAL_LINES", 3)
    commands(gpu_host, monkeypatch, journalctl=Result(0, "1725018180.0 gpu01 kernel: x\n" * 3))
    assert read(gpu_host)["overwritten"] is True


def test_dmesg_where_the_journal_has_nothing(gpu_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"[    0.000000] Linux version 6.8\n[   20.5] {FAULT}\n"
    ran = commands(gpu_host, monkeypatch, journalctl=Result(0, ""), dmesg=Result(0, text))
    part = read(gpu_host)
    assert ran == ["journalctl", "dmesg"]
    assert (part["source"], part["overwritten"], len(part["xids"])) == ("dmesg", False, 1)


def test_who_may_read_none_is_told_so(gpu_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Result(1, "", "dmesg: read kernel buffer failed: Operation not permitted\n")
    commands(gpu_host, monkeypatch, journalctl=Result(1, "", "No journal files were found.\n"), dmesg=refused)
    assert read(gpu_host) == "permission"


def test_a_journal_that_takes_too_long_is_not_half_believed(
    gpu_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(gpu_host, monkeypatch, journalctl=Result(None, "1725018180.0 gpu01 kernel: x\n", timed_out=True))
    assert read(gpu_host) == "error"


# -- logs of real machines ----------------------------------------------------------------------------------


def sample(name: str) -> list[str]:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip("the samples are not here")
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def test_a_log_of_gsp_timeouts() -> None:
    (one,) = summed(*sample("dmesg_xid119.log"))["xids"]
    assert (one["code"], one["address"], one["count"]) == (119, "0000:9b:00.0", 5)
    assert (one["first_at"], one["last_at"]) == ("2025-02-23T16:24:18Z", "2025-02-23T16:30:13Z")


def test_a_log_of_a_gpu_lost_without_an_xid() -> None:
    document = summed(*sample("dmesg_fallen-off-bus_no-xid.log"))
    assert document["xids"] == []
    assert [one["address"] for one in document["fallen_off_bus"]] == ["0000:b3:00.0"]


def test_a_log_of_the_fabric_manager_has_none() -> None:
    assert summed(*sample("fabricmanager.log")) == {"xids": [], "sxids": [], "fallen_off_bus": []}
