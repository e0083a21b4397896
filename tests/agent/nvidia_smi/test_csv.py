"""The CSV queries: placeholders, units, headers, error sentences between rows, and the other queries."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.nvidia_smi import csv
from tests.agent.nvidia_smi.whole import assert_document, assert_whole

FIELDS = [
    "index",
    "name",
    "driver_version",
    "pci.bus_id",
    "temperature.gpu",
    "fan.speed",
    "power.draw",
    "utilization.gpu",
    "memory.total",
]
PLACEHOLDERS = """\
0, Testbed V1, 455.23, 00000000:03:00.0, 41, [N/A], 43.18, 0, 16160
1, Testbed V1, 455.23, 00000000:06:00.0, 42, [Not Supported], 40.10, 0, 16160
2, NVIDIA Testbed G2, 455.23, 00000000:07:00.0, 55, [Unknown Error], 211.02, 100, 11019
3, NVIDIA Testbed T1, 455.23, 00000000:18:00.0, 46, [N/A], 88.00, [N/A], [Insufficient Permissions]
"""


def column(document: dict[str, Any], key: str) -> list[Any]:
    return [device[key] for device in document["devices"]]


def test_a_placeholder_is_no_value_and_costs_neither_the_gpu_nor_the_host() -> None:
    document = csv.parse_query(FIELDS, PLACEHOLDERS)
    assert_document(document)
    assert (document["status"], document["driver_version"]) == ("ok", "455.23")
    assert column(document, "memory_total_mib") == [16160, 16160, 11019, None]
    assert column(document, "fan_speed_percent") == [None] * 4
    assert column(document, "power_draw_w") == [43.18, 40.1, 211.02, 88.0]
    fans = [device["absent"]["fan_speed_percent"] for device in document["devices"]]
    assert [(fan["reason"], fan["text"]) for fan in fans] == [
        ("not_supported", "N/A"),
        ("not_supported", "Not Supported"),
        ("error", "Unknown Error"),
        ("not_supported", "N/A"),
    ]
    memory = document["devices"][3]["absent"]["memory_total_mib"]
    assert (memory["reason"], memory["text"]) == ("permission", "Insufficient Permissions")
    assert document["devices"][0]["absent"]["uuid"]["reason"] == "not_collected"


@pytest.mark.parametrize("word", ["[n/a]", "[GPU is lost]", "[Some New Word]", "ERR!", "[]"])
def test_any_other_word_is_no_value_either(word: str) -> None:
    device = csv.parse_query(["index", "name", "memory.used"], f"0, Testbed V1, {word}\n")["devices"][0]
    assert_whole(device)
    assert device["memory_used_mib"] is None


def test_units_headers_and_older_names_change_nothing() -> None:
    plain = csv.parse_query(
        ["gpu_bus_id", "gpu_name", "clocks.sm", "memory.used"], "00000000:03:00.0, V1, 1230, 5\n"
    )
    for header in (
        "gpu_bus_id, gpu_name, clocks.sm [MHz], memory.used [MiB]",
        "pci.bus_id, name, clocks.current.sm [MHz], memory.used [MiB]",
    ):
        assert csv.parse_query(None, f"{header}\n00000000:03:00.0, V1, 1230 MHz, 5 MiB\n") == plain
    with_header = "gpu_bus_id, gpu_name, clocks.sm [MHz], memory.used [MiB]\n00000000:03:00.0, V1, 1230, 5\n"
    assert csv.parse_query(["gpu_bus_id", "gpu_name", "clocks.sm", "memory.used"], with_header) == plain


def test_a_sentence_before_a_row_of_errors_says_which_gpu_it_is() -> None:
    document = csv.parse_query(
        ["index", "name", "temperature.gpu", "pstate"],
        "0, NVIDIA Testbed G2, 30, P2\n"
        "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error\n"
        "[Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]\n"
        "2, NVIDIA Testbed G2, 31, P2\n",
    )
    assert_document(document)
    assert [(one["address"], one["index"], one["status"]) for one in document["devices"]] == [
        ("0000:02:00.0", None, "error"),
        (None, 0, "ok"),
        (None, 2, "ok"),
    ]
    assert (document["status"], document["message"]) == ("gpu_error", "0000:02:00.0: Unknown Error")


def test_a_row_of_errors_alone_is_a_gpu_that_does_not_answer() -> None:
    document = csv.parse_query(["index", "mig.mode.current"], "0, Disabled\n1, [Unknown Error]\n")
    assert column(document, "status") == ["ok", "error"]


@pytest.mark.parametrize(
    ("printed", "status"),
    [
        ("No devices were found\n", "no_devices"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "driver_library_mismatch"),
        ("", "error"),
        ("rubbish, without, meaning\n", "error"),
    ],
)
@pytest.mark.parametrize("fields", [["name"], ["index", "name"]])
def test_what_is_no_row_makes_no_gpu(printed: str, status: str, fields: list[str]) -> None:
    document = csv.parse_query(fields, printed)
    assert_document(document)
    assert (document["status"], document["devices"]) == (status, [])


def test_a_row_cut_short_is_no_gpu_and_the_document_says_so() -> None:
    document = csv.parse_query(FIELDS, PLACEHOLDERS[: PLACEHOLDERS.index(", 55")])
    assert_document(document)
    assert (document["status"], len(document["devices"])) == ("error", 2)
    fewer = csv.parse_query(["index", "count"], "0, 8\n1, 8\n")
    assert (fewer["status"], fewer["message"]) == ("error", "nvidia-smi tells of 8 GPUs and shows 2")


def test_rows_without_known_names_are_refused_in_words() -> None:
    document = csv.parse_query(None, "0, NVIDIA Testbed G2, 30\n")
    assert (document["status"], document["devices"]) == ("error", [])
    assert document["message"]


@pytest.mark.parametrize(
    ("header", "cells", "reasons"),
    [
        ("clocks_event_reasons.active", "0x0000000000000041", ["gpu_idle", "hw_thermal_slowdown"]),
        ("clocks_throttle_reasons.active", "0x0000000000000000", []),
        ("clocks_event_reasons.active", "0x0000000000001004", ["sw_power_cap", "bit_0x1000"]),
        ("clocks_event_reasons.hw_slowdown", "Active", ["hw_slowdown"]),
        ("clocks_throttle_reasons.sw_power_cap", "Not Active", []),
        ("clocks_event_reasons.supported", "0x00000000000001FF", None),
        ("clocks_event_reasons.active", "[N/A]", None),
    ],
)
def test_reasons_come_as_bits_or_as_columns(header: str, cells: str, reasons: list[str] | None) -> None:
    device = csv.parse_query(["index", "name", header], f"0, V1, {cells}\n")["devices"][0]
    assert_whole(device)
    assert device["clocks_event_reasons"] == reasons


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("4, 1, 0", (4, True, False)),
        ("11, No, Yes", (11, False, True)),
        ("[N/A], [N/A], [N/A]", (None, None, None)),
        ("0, 2, maybe", (0, None, None)),
    ],
)
def test_remapped_rows_have_flags_in_words_or_numbers_and_nothing_else(
    cells: str, expected: tuple[object, ...]
) -> None:
    header = ["gpu_bus_id", "remapped_rows.uncorrectable", "remapped_rows.pending", "remapped_rows.failure"]
    document = csv.parse_remapped_rows(header, f"00000000:18:00.0, {cells}\n")
    assert_document(document)
    rows = document["devices"][0]["remapped_rows"]
    assert (rows["uncorrected"], rows["pending"], rows["failure"]) == expected
    assert document["devices"][0]["address"] == "0000:18:00.0"


def test_modes_that_change_at_the_next_reboot_show_against_those_of_now() -> None:
    header = ["index", "ecc.mode.current", "ecc.mode.pending", "mig.mode.current", "mig.mode.pending"]
    document = csv.parse_query(
        header,
        "0, Enabled, Enabled, Disabled, Disabled\n1, Enabled, Disabled, Disabled, Disabled\n"
        "2, Enabled, Enabled, Disabled, Enabled\n3, [N/A], [N/A], [N/A], [N/A]\n",
    )
    assert_document(document)
    ecc = [one["index"] for one in document["devices"] if one["ecc_mode"] != one["ecc_mode_pending"]]
    mig = [one["index"] for one in document["devices"] if one["mig"]["mode"] != one["mig"]["mode_pending"]]
    assert (document["status"], ecc, mig) == ("ok", [1], [2])


def test_utilisation_under_mig_is_no_value_for_that_reason() -> None:
    header = ["index", "mig.mode.current", "utilization.gpu", "memory.total"]
    document = csv.parse_query(header, "0, Enabled, [N/A], 81920 MiB\n1, Disabled, 0 %, 81920 MiB\n")
    assert column(document, "gpu_utilization_percent") == [None, 0]
    assert document["devices"][0]["absent"]["gpu_utilization_percent"]["reason"] == "mig"


SAMPLES = "".join(
    f"{index}, GPU-5f1ee7aa-0000-4000-8000-00000000000{index}, {used}, {busy}\n"
    for used, busy in ((1675, 71), (2385, 0), (2100, 72))
    for index in (0, 1)
)


def test_a_query_in_a_loop_gives_every_sample_and_the_last_as_the_document() -> None:
    header = ["index", "uuid", "memory.used", "utilization.gpu"]
    assert [row["gpu_utilization_percent"] for row in csv.parse_rows(header, SAMPLES)] == [
        71,
        71,
        0,
        0,
        72,
        72,
    ]
    document = csv.parse_query(header, SAMPLES)
    assert_document(document)
    assert (column(document, "index"), column(document, "memory_used_mib")) == ([0, 1], [2100, 2100])


def test_processes_that_compute_are_listed_by_gpu() -> None:
    header = ["gpu_uuid", "pid", "process_name", "used_memory"]
    uuid = "GPU-5f1ee7aa-0000-4000-8000-000000000000"
    printed = f"{uuid}, 2264, /usr/lib/server, with --commas, 1328 MiB\n{uuid}, 2265, [Not Found], [N/A]\n"
    found = csv.parse_compute_apps(header, printed)
    assert len(found) == 1
    assert_whole(found[0])
    assert [
        (one["pid"], one["kind"], one["command"], one["memory_used_mib"]) for one in found[0]["processes"]
    ] == [
        (2264, "compute", "/usr/lib/server, with --commas", 1328),
        (2265, "compute", None, None),
    ]
    assert csv.parse_compute_apps(header, "") == []
    named_so = csv.parse_compute_apps(header, f"{uuid}, 2264, No devices were found, 1 MiB\n")
    assert named_so[0]["processes"][0]["command"] == "No devices were found"


def test_a_process_whose_number_is_hidden_makes_that_gpus_list_unknown() -> None:
    header = ["gpu_uuid", "pid", "process_name", "used_memory"]
    uuid = "GPU-5f1ee7aa-0000-4000-8000-000000000000"
    found = csv.parse_compute_apps(header, f"{uuid}, 7, a, 1 MiB\n{uuid}, [Not Supported], b, 2 MiB\n")
    assert_whole(found[0])
    assert (found[0]["processes"], found[0]["absent"]["processes"]["text"]) == (None, "Not Supported")
