"""The plain table, of three generations: what can be read of it, ERR!, and a draw that cannot be."""

from __future__ import annotations

from fleet.agent.nvidia_smi import table
from tests.agent.nvidia_smi.whole import assert_document

NEW = """\
| NVIDIA-SMI 580.105.08             Driver Version: 580.105.08     CUDA Version: 13.0     |
|   0  NVIDIA Testbed T1              On  |   00000000:1B:00.0 Off |                    0 |
| N/A   42C    P0             98W /  700W |      59MiB /  81559MiB |     37%      Default |
|                                         |                        |             Disabled |
|  14  NVIDIA Testbed W2 Generat...    On  |   00000000:A3:00.0 Off |                  Off |
|ERR!   68C    P2             77W /  120W |       1MiB /  20475MiB |     93%   E. Process |
|                                         |                        |                  N/A |
|   1  NVIDIA Testbed M3              Off |   00000000:3D:00.0 Off |                  N/A |
| N/A   35C    P0            601W /   35W |       9MiB /   8188MiB |      0%      Default |
"""
OLD = """\
| NVIDIA-SMI 455.23.04    Driver Version: 455.23.04    CUDA Version: 11.1     |
|   1  Testbed V1-PCIE...  On   | 00008ED0:00:00.0 Off |                    0 |
| N/A   29C    P0   ERR! / 250W |    593MiB / 16160MiB |      0%      Default |
|   5  ERR!                On   | 00000000:91:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 81920MiB |    ERR!      Default |
|                               |                      |                 ERR! |
"""


def test_the_values_of_the_table() -> None:
    document = table.parse(NEW)
    assert_document(document)
    assert (document["status"], document["driver_version"], document["cuda_version"]) == (
        "ok",
        "580.105.08",
        "13.0",
    )
    first, mobile, workstation = document["devices"]
    assert (first["name"], first["index"], first["persistence_mode"]) == ("NVIDIA Testbed T1", 0, True)
    assert (first["memory_used_mib"], first["memory_total_mib"], first["power_draw_w"]) == (59, 81559, 98.0)
    assert (first["gpu_utilization_percent"], first["mig"]["mode"], first["ecc_mode"]) == (
        37,
        "disabled",
        "enabled",
    )
    assert (workstation["index"], workstation["ecc_mode"], workstation["compute_mode"]) == (
        14,
        "disabled",
        "exclusive_process",
    )
    assert workstation["absent"]["fan_speed_percent"] == {
        "reason": "error",
        "nvml_error": None,
        "text": "ERR!",
    }
    assert (mobile["power_draw_w"], mobile["implausible"]) == (601.0, ["power_draw_w"])
    assert (first["implausible"], workstation["implausible"]) == ([], [])


def test_one_err_is_no_value_and_all_err_is_no_gpu_that_answers() -> None:
    document = table.parse(OLD)
    assert_document(document)
    dead, passing = document["devices"]
    assert (passing["address"], passing["printed_address"]) == ("8ed0:00:00.0", "00008ED0:00:00.0")
    assert (passing["status"], passing["power_draw_w"], passing["power_limit_enforced_w"]) == (
        "ok",
        None,
        250.0,
    )
    assert passing["absent"]["power_draw_w"]["text"] == "ERR!"
    assert (dead["index"], dead["status"], dead["name"]) == (5, "error", None)
    assert document["status"] == "gpu_error"


def test_a_process_that_is_called_like_a_sentence_says_nothing() -> None:
    process = "|    0   N/A  N/A            1720      C   No devices were found                   173MiB |\n"
    assert table.parse(NEW + process)["status"] == "ok"


def test_610_names_its_versions_otherwise() -> None:
    renamed = NEW.replace("Driver Version", "KMD Version").replace("CUDA Version", "CUDA UMD Version")
    document = table.parse(renamed)
    assert (document["driver_version"], document["cuda_version"]) == ("580.105.08", "13.0")


def test_a_gpus_first_line_alone_is_a_gpu_of_which_nothing_is_known() -> None:
    document = table.parse("\n".join(NEW.splitlines()[:5]))
    assert_document(document)
    assert [device["status"] for device in document["devices"]] == ["ok", "error"]
    assert document["status"] == "error"
