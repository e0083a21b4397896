"""Output that ends at any line: never an exception, never a GPU or a host said to be well and not known to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.agent.nvidia_smi import csv, listing, nvlink, states, table, text, xml
from tests.agent.nvidia_smi import captured
from tests.agent.nvidia_smi.outputs import ADDRESSES, UUIDS, gpu, text_of, xml_of
from tests.agent.nvidia_smi.test_csv import FIELDS, PLACEHOLDERS
from tests.agent.nvidia_smi.test_table import NEW, OLD
from tests.agent.nvidia_smi.test_text import MIG
from tests.agent.nvidia_smi.test_xml import MIG_DEVICES, PROCESSES
from tests.agent.nvidia_smi.whole import assert_document

Parse = Callable[[str], dict[str, Any]]
SAMPLED_CUTS = 16
SHAPES = ("390.157", "450.80.02", "535.161.08", "610.57.04")  # each is cut at other lines


def hold(parse: Parse, printed: str, cuts: list[int]) -> None:
    """Every cut keeps the promise: what is said to be well is what the whole output says."""
    whole = {device["address"]: device for device in parse(printed)["devices"]}
    lines = printed.splitlines(keepends=True)
    for cut in cuts:
        document = parse("".join(lines[:cut]))
        assert_document(document)
        if document["status"] == "ok":
            assert len(document["devices"]) == len(whole), cut
        for device in document["devices"]:
            assert device["address"] in whole, cut
            if device["status"] == "ok":
                expected = whole[device["address"]]
                assert {**device, "index": 0} | _without_index(device) == {
                    **expected,
                    "index": 0,
                } | _without_index(expected)


def _without_index(device: dict[str, Any]) -> dict[str, Any]:
    """Which of the GPUs it is, follows from how many there are: a shorter output cannot say it."""
    return {"absent": {path: entry for path, entry in device["absent"].items() if path != "index"}}


def pair(driver: str) -> list[list[Any]]:
    return [gpu(driver, 0), gpu(driver, 1, uuid=UUIDS[1], pci_bus_id=ADDRESSES[1])]


def every(printed: str) -> list[int]:
    return list(range(len(printed.splitlines()) + 1))


@pytest.mark.parametrize("driver", SHAPES)
def test_xml_of_every_shape(driver: str) -> None:
    printed = xml_of(driver, pair(driver), processes=PROCESSES).replace("<serial>", MIG_DEVICES)
    hold(xml.parse, printed, every(printed)[SHAPES.index(driver) :: len(SHAPES)])


@pytest.mark.parametrize("driver", SHAPES)
def test_text_of_every_shape(driver: str) -> None:
    printed = text_of(driver, pair(driver))
    hold(text.parse, printed, every(printed)[SHAPES.index(driver) :: len(SHAPES)])


def test_text_with_processes_and_slices() -> None:
    printed = text_of("580.105.08").replace(
        "    Processes", MIG + "    Capabilities\n        EGM : disabled\n\n    X"
    )
    hold(text.parse, printed, every(printed))


@pytest.mark.parametrize("printed", [NEW])
def test_tables(printed: str) -> None:
    lines = printed.splitlines(keepends=True)
    for cut in every(printed):
        document = table.parse("".join(lines[:cut]))
        assert_document(document)
        for device in document["devices"]:
            assert device["status"] == "error" or device["memory_total_mib"] is not None


def test_a_table_of_failures_invents_no_gpu() -> None:
    for cut in every(OLD):
        document = table.parse("\n".join(OLD.splitlines()[:cut]))
        assert_document(document)
        assert all(one["status"] == "error" for one in document["devices"] if one["index"] == 5)


def test_rows_end_where_they_end() -> None:
    for end in range(len(PLACEHOLDERS)):
        document = csv.parse_query(FIELDS, PLACEHOLDERS[:end])
        assert_document(document)
        assert len(document["devices"]) <= PLACEHOLDERS[:end].count("\n") + 1
        if document["status"] == "ok":
            assert PLACEHOLDERS[:end].rstrip("\n").count(",") % 8 == 0


@settings(max_examples=60, deadline=None)
@given(
    printed=st.sampled_from([xml_of("580.105.08"), text_of("610.57.04"), NEW, PLACEHOLDERS]),
    start=st.integers(0, 4000),
    length=st.integers(0, 400),
    junk=st.text(max_size=60),
)
def test_any_output_with_a_piece_replaced_by_anything_is_read_without_an_exception(
    printed: str, start: int, length: int, junk: str
) -> None:
    broken = printed[:start] + junk + printed[start + length :]
    for document in (
        xml.parse(broken),
        text.parse(broken),
        table.parse(broken),
        csv.parse_query(FIELDS, broken),
    ):
        assert_document(document)
    listing.parse(broken)
    nvlink.parse(broken)
    csv.parse_compute_apps(FIELDS, broken)
    states.classify(broken, junk, 1)


def sampled(printed: str) -> list[int]:
    """Cuts all over the output, and every one near its end."""
    count = len(printed.splitlines())
    return sorted({*range(0, count, max(1, count // SAMPLED_CUTS)), *range(max(0, count - 8), count + 1)})


@captured.needs_samples
@pytest.mark.parametrize("name", captured.names("smi-qx_*.xml"))
def test_xml_of_real_gpus(name: str) -> None:
    printed = captured.read(name)
    hold(xml.parse, printed, sampled(printed))


@captured.needs_samples
@pytest.mark.parametrize("name", captured.names("capture_*"))
def test_text_of_real_gpus(name: str) -> None:
    printed = captured.section(name, "load", "query (-q)")
    hold(text.parse, printed, sampled(printed))
