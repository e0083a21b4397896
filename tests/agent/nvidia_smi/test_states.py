"""How nvidia-smi failed: every wording, on either stream, with and without a telling exit code."""

from __future__ import annotations

import pytest

from fleet.agent.nvidia_smi import states
from fleet.agent.pci_address import normalised_address

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\n"
HANDLE = "Unable to determine the device handle for GPU"


@pytest.mark.parametrize(
    ("stdout", "stderr", "exit_code", "status"),
    [
        (MISMATCH, "", 18, "driver_library_mismatch"),
        (MISMATCH + "NVML library version: 545.23\n", "", 18, "driver_library_mismatch"),
        (MISMATCH, "", 1, "driver_library_mismatch"),
        (
            (
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the"
                " latest NVIDIA driver is installed and running.\n\n"
            ),
            "",
            9,
            "driver_not_loaded",
        ),
        ("Failed to initialize NVML: Driver Not Loaded\n", "", 9, "driver_not_loaded"),
        (
            (
                "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA"
                " Display Driver is properly installed and present in your system.\n"
            ),
            "",
            12,
            "library_missing",
        ),
        (
            "",
            "nvidia-smi: error while loading shared libraries: libnvidia-ml.so.1: cannot open",
            127,
            "library_missing",
        ),
        ("No devices were found\n", "", 6, "no_devices"),
        ("No devices were found\n", "", 0, "no_devices"),
        (
            f"{HANDLE} 0000:5E:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
            "",
            15,
            "gpu_error",
        ),
        (f"{HANDLE} 0000:5E:00.0: Unknown Error\n", "", 255, "gpu_error"),
        (f"{HANDLE} 0000:5E:00.0: Not Found\n", "", 6, "gpu_error"),
        (f"{HANDLE}0000:5E:00.0: Unknown Error\n", "", 0, "gpu_error"),
        ("Failed to initialize NVML: Unknown Error\n", "", 255, "container_lost_gpu"),
        ("Failed to initialize NVML: Insufficient Permissions\n", "", 4, "error"),
        ("Failed to initialize NVML: GPU is lost\n", "", 15, "gpu_error"),
        ("", "bash: line 1: nvidia-smi: command not found\n", 127, "tool_missing"),
        ("", "sh: 1: nvidia-smi: not found\n", 127, "tool_missing"),
        ("", 'exec: "nvidia-smi": executable file not found in $PATH', 1, "tool_missing"),
        ("", "Command 'nvidia-smi' not found, but can be installed with:\n", 127, "tool_missing"),
        ("WARNING: infoROM is corrupted at gpu 0000:5E:00.0\n", "", 14, "gpu_error"),
    ],
)
def test_each_wording_is_a_state_of_its_own(stdout: str, stderr: str, exit_code: int, status: str) -> None:
    found = states.classify(stdout, stderr, exit_code)
    assert found["status"] == status
    assert found["message"]


@pytest.mark.parametrize(
    ("exit_code", "status"),
    [
        (0, "ok"),
        (2, "error"),
        (6, "no_devices"),
        (8, "gpu_error"),
        (9, "driver_not_loaded"),
        (10, "gpu_error"),
        (12, "library_missing"),
        (14, "gpu_error"),
        (15, "gpu_error"),
        (18, "driver_library_mismatch"),
        (127, "tool_missing"),
        (255, "error"),
        (None, "timeout"),
    ],
)
def test_the_exit_code_alone_tells_where_the_words_do_not(exit_code: int | None, status: str) -> None:
    assert states.classify("0, NVIDIA Testbed T1\n", "", exit_code)["status"] == status


def test_nothing_printed_is_not_a_host_without_gpus() -> None:
    found = states.classify("\n", "", 0)
    assert (found["status"], found["message"]) == ("error", "nvidia-smi printed nothing")


def test_the_librarys_version_is_kept_where_it_is_printed() -> None:
    assert states.classify(MISMATCH + "NVML library version: 545.23\n", "", 18)["library_version"] == "545.23"
    assert states.classify(MISMATCH, "", 18)["library_version"] is None


@pytest.mark.parametrize(
    ("printed", "address"),
    [
        ("0000:5E:00.0", "0000:5e:00.0"),
        ("00000000:5E:00.0", "0000:5e:00.0"),
        ("000:BA:80.0", "0000:ba:80.0"),
        ("0001B2C4:00:00.0", "1b2c4:00:00.0"),
    ],
)
def test_an_address_is_kept_as_printed_and_made_comparable(printed: str, address: str) -> None:
    found = states.classify(f"{HANDLE} {printed}: Unknown Error\n", "", 255)
    assert (found["printed_address"], found["address"]) == (printed, address)


def test_every_gpu_that_is_named_is_told_with_its_own_status() -> None:
    said = (
        f"{HANDLE} 0000:5E:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
        f"{HANDLE}0000:5F:00.0: GPU requires reset\n"
        f"{HANDLE} 0000:60:00.0: Timeout\n"
        f"{HANDLE} 0000:60:00.0: Timeout\n"
        "WARNING: infoROM is corrupted at gpu 0000:61:00.0\n"
    )
    found = [(gpu["address"], gpu["status"]) for gpu in states.gpus_named(said)]
    assert found == [
        ("0000:5e:00.0", "lost"),
        ("0000:5f:00.0", "reset_required"),
        ("0000:60:00.0", "timeout"),
        ("0000:61:00.0", "error"),
    ]


def test_a_process_that_is_called_like_a_sentence_says_nothing() -> None:
    assert states.gpus_named(f"    Name : {HANDLE} 0000:5E:00.0: GPU is lost\n") == []
    assert states.gpus_named(f"<process_name>{HANDLE} 0000:5E:00.0: GPU is lost</process_name>\n") == []


def test_words_within_a_document_are_not_the_calls() -> None:
    document = "<nvidia_smi_log><gpu><total>GPU is lost</total></gpu></nvidia_smi_log>"
    assert states.classify(document, "", 0)["status"] == "ok"


def test_a_domain_in_decimal_is_the_same_device() -> None:
    assert (
        states.persistenced_address("45488:00:00.0")
        == normalised_address("0000B1B0:00:00.0")
        == "b1b0:00:00.0"
    )
    with pytest.raises(ValueError):
        states.persistenced_address("b1b0:00:00.0")


def test_nvmls_error_number_is_the_exit_code_where_it_is_one() -> None:
    assert [states.nvml_error_of(code) for code in (0, 9, 15, 18, 124, 127, 255, None)] == [
        None, 9, 15, 18, None, None, None, None,
    ]  # fmt: skip
