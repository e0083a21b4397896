"""Asking a host through its nvidia-smi: XML, then CSV, then the table; deadlines; what it says when it fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.agent.nvidia_smi import fallback
from fleet.agent.process import Result
from tests.agent.nvidia_smi.outputs import UUIDS, gpu, xml_of
from tests.agent.nvidia_smi.test_table import NEW
from tests.agent.nvidia_smi.whole import assert_document
from tests.agent.resources.fakes import FakeHost

DRIVER = "580.105.08"
Answer = Callable[[list[str]], Result]
LINKS = f"GPU 0: NVIDIA Testbed T1 (UUID: {UUIDS[0]})\n\t Link 0: 25 GB/s\n"
MISMATCH = Result(
    18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
)
REFUSED = Result(2, 'Field "compute_cap" is not a valid field to query.\n')
GARBLED = Result(0, "<nvidia_smi_log><gp")


def host(tmp_path: Path, answer: Answer) -> FakeHost:
    made = FakeHost(tmp_path, lambda argv, stdin: answer(argv))
    made.write("/usr/bin/nvidia-smi", "", 0o755)
    return made


def row(fields: tuple[str, ...] | list[str]) -> str:
    values = {
        "index": "0",
        "uuid": UUIDS[0],
        "name": "NVIDIA Testbed T1",
        "driver_version": DRIVER,
        "pci.bus_id": "00000000:1B:00.0",
        "count": "1",
        "memory.total": "81920 MiB",
    }
    return ", ".join(values.get(field, "[N/A]") for field in fields) + "\n"


def test_xml_is_enough_and_links_are_added(tmp_path: Path) -> None:
    answers = {"-q": Result(0, xml_of(DRIVER)), "nvlink": Result(0, LINKS)}
    asked = host(tmp_path, lambda argv: answers[argv[1]])
    document = fallback.probe(asked, 10.0)
    assert_document(document)
    assert (document["status"], document["nvml_error"], document["driver_version"]) == ("ok", None, DRIVER)
    assert document["devices"][0]["nvlinks"][0]["speed_mb_s"] == 25000
    assert document["duration_s"] >= 0
    assert asked.argvs() == ["nvidia-smi -q -x", "nvidia-smi nvlink --status"]


def test_profiles_are_asked_for_where_mig_is_on(tmp_path: Path) -> None:
    listed = f"GPU 0: T1 (UUID: {UUIDS[0]})\n  MIG 1g.10gb Device 0: (UUID: MIG-5f1e)\n"
    answers = {
        "-q": Result(0, xml_of(DRIVER, [gpu(DRIVER, current_mig="Enabled")])),
        "-L": Result(0, listed),
        "nvlink": Result(0, ""),
    }
    document = fallback.probe(host(tmp_path, lambda argv: answers[argv[1]]), 10.0)
    assert_document(document)
    assert [one["profile"] for one in document["devices"][0]["mig"]["devices"]] == ["1g.10gb"]


def test_csv_where_xml_shows_no_gpu_with_the_processes_that_compute(tmp_path: Path) -> None:
    def answer(argv: list[str]) -> Result:
        if argv[1].startswith("--query-gpu="):
            return Result(0, row(argv[1].split("=", 1)[1].split(",")))
        if argv[1].startswith("--query-compute-apps="):
            return Result(0, f"00000000:1B:00.0, {UUIDS[0]}, 4711, 12 MiB, python, train.py\n")
        return GARBLED

    document = fallback.probe(host(tmp_path, answer), 10.0)
    assert_document(document)
    assert (document["status"], document["driver_version"]) == ("ok", DRIVER)
    assert [one["command"] for one in document["devices"][0]["processes"]] == ["python, train.py"]


def test_an_older_nvidia_smi_is_asked_for_less(tmp_path: Path) -> None:
    def answer(argv: list[str]) -> Result:
        if argv[1].startswith("--query-gpu="):
            return REFUSED if "compute_cap" in argv[1] else Result(0, row(fallback.NARROW))
        return Result(0, "") if argv[1].startswith("--query-compute-apps=") else GARBLED

    document = fallback.probe(host(tmp_path, answer), 10.0)
    assert_document(document)
    assert (document["status"], document["devices"][0]["processes"]) == ("ok", [])


def test_a_row_that_does_not_even_have_an_address_is_in_the_message(tmp_path: Path) -> None:
    def answer(argv: list[str]) -> Result:
        if argv[1].startswith("--query-gpu="):
            fields = argv[1].split("=", 1)[1].split(",")
            return Result(255, row(fields) + ", ".join(["[Unknown Error]"] * len(fields)) + "\n")
        return Result(0, "") if argv[1].startswith("--query-compute-apps=") else GARBLED

    document = fallback.probe(host(tmp_path, answer), 10.0)
    assert_document(document)
    assert [one["address"] for one in document["devices"]] == ["0000:1b:00.0"]
    assert document["status"] == "gpu_error"
    assert "of 1 GPUs nvidia-smi does not even say where they are" in document["message"]


def test_the_table_is_the_last_resort(tmp_path: Path) -> None:
    document = fallback.probe(
        host(tmp_path, lambda argv: Result(0, NEW) if argv[1:] == [] else REFUSED), 10.0
    )
    assert_document(document)
    assert (document["status"], len(document["devices"])) == ("ok", 3)


def test_a_python_without_expat_takes_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyexpat", None)

    def answer(argv: list[str]) -> Result:
        if argv[1].startswith("--query-gpu="):
            return Result(0, row(fallback.WIDE))
        return Result(0, xml_of(DRIVER) if argv[1] == "-q" else "")

    document = fallback.probe(host(tmp_path, answer), 10.0)
    assert_document(document)
    assert (document["status"], document["devices"][0]["memory_total_mib"]) == ("ok", 81920)


@pytest.mark.parametrize(
    ("answer", "status", "nvml_error"),
    [
        (MISMATCH, "driver_library_mismatch", 18),
        (
            Result(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. …"),
            "driver_not_loaded",
            9,
        ),
        (Result(6, "No devices were found\n"), "no_devices", 6),
        (Result(255, "Failed to initialize NVML: Unknown Error\n"), "container_lost_gpu", None),
        (
            Result(12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n"),
            "library_missing",
            12,
        ),
        (Result(None, "", timed_out=True), "timeout", None),
        (Result(139, "", "Segmentation fault"), "error", None),
        (Result(None, "", signal=11), "error", None),
    ],
)
def test_a_failure_is_told_and_shows_no_gpu(
    tmp_path: Path, answer: Result, status: str, nvml_error: int | None
) -> None:
    document = fallback.probe(host(tmp_path, lambda argv: answer), 10.0)
    assert_document(document)
    assert (document["status"], document["nvml_error"], document["devices"]) == (status, nvml_error, [])
    assert document["nvml_version"] == ("580.95" if answer is MISMATCH else None)


def test_a_gpu_that_only_the_failure_names_is_shown(tmp_path: Path) -> None:
    said = "Unable to determine the device handle for GPU 0000:1B:00.0: GPU is lost.  Reboot the system\n"
    document = fallback.probe(host(tmp_path, lambda argv: Result(15, said)), 10.0)
    assert_document(document)
    assert (document["status"], document["nvml_error"]) == ("gpu_error", 15)
    assert [(one["address"], one["status"]) for one in document["devices"]] == [("0000:1b:00.0", "lost")]


def test_a_warning_beside_a_good_document_is_kept(tmp_path: Path) -> None:
    answers = {"-q": Result(14, xml_of(DRIVER), "WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n")}
    document = fallback.probe(host(tmp_path, lambda argv: answers.get(argv[1], Result(0))), 10.0)
    assert_document(document)
    assert (document["status"], document["nvml_error"]) == ("gpu_error", 14)
    assert document["devices"][0]["message"] == "infoROM is corrupted"
    assert document["devices"][0]["memory_total_mib"] == 81920


def test_a_host_without_the_tool_runs_nothing(tmp_path: Path) -> None:
    asked = FakeHost(tmp_path, lambda argv, stdin: Result(0, xml_of(DRIVER)))
    document = fallback.probe(asked, 10.0)
    assert_document(document)
    assert (document["status"], asked.commands) == ("tool_missing", [])


def test_no_call_outlives_the_deadline_and_the_first_leaves_some_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(fallback.time, "monotonic", lambda: clock[0])
    limits: list[float] = []
    asked = host(tmp_path, lambda argv: Result(0))

    def run(argv: list[str], *, deadline_s: float, env: object) -> Result:
        limits.append(round(deadline_s, 3))
        clock[0] += deadline_s
        return Result(None, "", timed_out=True)

    monkeypatch.setattr(asked, "run", run)
    document = fallback.probe(asked, 10.0)
    assert limits == [6.0, 4.0]
    assert (document["status"], document["duration_s"]) == ("timeout", 10.0)
