"""What is peculiar to ``-q`` as text: indentation, parts cut out of it, processes and MIG devices as rows."""

from __future__ import annotations

import pytest

from fleet.agent.nvidia_smi import text
from tests.agent.nvidia_smi.outputs import text_of
from tests.agent.nvidia_smi.whole import assert_document

FAN = """\
GPU 00000000:A3:00.0
    Product Name                          : NVIDIA Testbed W2
    GPU Recovery Action                   : Reset
    Fan Speed                             : Unknown Error
    GPU Power Readings
        Average Power Draw                : 77.00 W
        Current Power Limit               : 120.00 W
"""


def test_a_part_of_an_output_gives_what_it_has() -> None:
    document = text.parse(FAN)
    assert_document(document)
    device = document["devices"][0]
    assert (device["address"], device["recovery_action"], device["status"]) == (
        "0000:a3:00.0",
        "gpu_reset",
        "ok",
    )
    assert (device["power_draw_w"], device["power_limit_w"], device["fan_speed_percent"]) == (
        77.0,
        120.0,
        None,
    )
    assert device["absent"]["fan_speed_percent"]["text"] == "Unknown Error"
    assert device["absent"]["temperature_c"]["reason"] == "not_collected"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            (
                "    Remapped Rows\n        Correctable Error    : 0\n        Uncorrectable Error  : 3\n"
                "        Pending              : Yes\n        Remapping Failure Occurred : No\n"
            ),
            (0, 3, True, False),
        ),
        (
            (
                "    Remapped Rows\n        Correctable Error    : 1\n        Uncorrectable Error  : 9\n"
                "        Pending              : No\n        Remapping Failure Occurred : Yes\n"
            ),
            (1, 9, False, True),
        ),
        ("    Remapped Rows                         : N/A\n", (None, None, None, None)),
    ],
)
@pytest.mark.parametrize("heading", ["GPU 00000000:18:00.0\n", ""])
def test_remapped_rows_pending_failed_and_not_supported(
    rows: str, expected: tuple[object, ...], heading: str
) -> None:
    document = text.parse(heading + rows)
    assert_document(document)
    device = document["devices"][0]
    assert device["address"] == ("0000:18:00.0" if heading else None)
    found = device["remapped_rows"]
    assert (found["corrected"], found["uncorrected"], found["pending"], found["failure"]) == expected
    if expected[0] is None:
        assert device["absent"]["remapped_rows.pending"] == {
            "reason": "not_supported",
            "nvml_error": None,
            "text": "N/A",
        }


def test_a_heading_of_versions_alone_is_no_gpu() -> None:
    printed = text_of("580.105.08")
    document = text.parse(printed[: printed.index("Attached GPUs")])
    assert (document["status"], document["devices"], document["driver_version"]) == (
        "error",
        [],
        "580.105.08",
    )


MIG = """\
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 2
        Compute Instance ID               : 0
        Shared FB Memory Usage
            Total                         : 40448 MiB
    MIG Device
        Index                             : 1
        GPU Instance ID                   : 9
        Compute Instance ID               : 0
        Shared FB Memory Usage
            Total                         : 9984 MiB
    FB Memory Usage
        Total                             : 81559 MiB
    Processes
        GPU instance ID                   : 2
        Compute instance ID               : 0
        Process ID                        : 2101
            Type                          : C
            Name                          : python train.py : resumed
            Used GPU Memory               : 2296 MiB
        GPU instance ID                   : 9
        Compute instance ID               : 0
        Process ID                        : 2102
            Type                          : C
            Name                          : ./worker
            Used GPU Memory               : N/A
"""


def test_mig_devices_and_processes_are_rows_of_their_own() -> None:
    document = text.parse("GPU 00000000:00:09.0\n" + MIG)
    assert_document(document)
    device = document["devices"][0]
    assert device["memory_total_mib"] == 81559  # the GPU's, not the first slice's
    slices = device["mig"]["devices"]
    assert [(one["gpu_instance"], one["memory_total_mib"]) for one in slices] == [(2, 40448), (9, 9984)]
    assert [(one["pid"], one["command"], one["memory_used_mib"]) for one in device["processes"]] == [
        (2101, "python train.py : resumed", 2296),
        (2102, "./worker", None),
    ]


def test_sentences_between_gpus_are_read_and_belong_to_none() -> None:
    said = "Unable to determine the device handle for GPU 0000:3D:00.0: Unknown Error\n"
    document = text.parse(text_of("580.105.08") + said)
    assert_document(document)
    assert [device["status"] for device in document["devices"]] == ["ok", "error"]
    assert document["status"] == "gpu_error"


@pytest.mark.parametrize("says", ["N/A", "Insufficient Permissions"])
def test_processes_that_may_not_be_seen_are_not_none(says: str) -> None:
    printed = text_of("580.105.08").replace(": None\n\n", f": {says}\n\n")
    device = text.parse(printed)["devices"][0]
    assert (device["processes"], device["absent"]["processes"]["text"]) == (None, says)
