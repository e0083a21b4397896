"""``-L`` with MIG devices and lines that are none, and ``nvlink -s`` with all that stands in place of links."""

from __future__ import annotations

import pytest

from fleet.agent.gpu_probe.device import empty_device
from fleet.agent.nvidia_smi import listing, nvlink, text
from tests.agent.nvidia_smi.outputs import UUIDS, text_of
from tests.agent.nvidia_smi.test_text import MIG
from tests.agent.nvidia_smi.whole import assert_whole

LIST = f"""\
GPU 0: NVIDIA Testbed T1 (UUID: {UUIDS[0]})
  MIG 3g.40gb     Device  0: (UUID: MIG-5f1ee7aa-0000-5000-8000-000000000001)
  MIG 1c.1g.10gb  Device  1: (UUID: MIG-5f1ee7aa-0000-5000-8000-000000000002)
GPU debug: this is not a device
GPU 1: NVIDIA Testbed T1 (UUID: {UUIDS[1]})
"""


def test_gpus_and_slices_are_counted_apart_and_other_lines_not_at_all() -> None:
    found = listing.parse(LIST)
    assert [(gpu["index"], gpu["uuid"]) for gpu in found] == [(0, UUIDS[0]), (1, UUIDS[1])]
    assert [one["profile"] for one in found[0]["mig_devices"]] == ["3g.40gb", "1c.1g.10gb"]
    assert found[1]["mig_devices"] == []


def test_slices_get_profile_and_uuid_by_their_order() -> None:
    device = text.parse(f"GPU 00000000:00:09.0\n    GPU UUID : {UUIDS[0]}\n" + MIG)["devices"][0]
    listing.apply([device], listing.parse(LIST))
    assert_whole(device)
    assert [tuple(one.values()) for one in device["mig"]["devices"]] == [
        ("MIG-5f1ee7aa-0000-5000-8000-000000000001", "3g.40gb", 2, 0, 40448),
        ("MIG-5f1ee7aa-0000-5000-8000-000000000002", "1c.1g.10gb", 9, 0, 9984),
    ]


def test_slices_that_only_the_list_knows_are_added_and_a_changed_layout_is_not_guessed() -> None:
    device = text.parse(f"GPU 00000000:00:09.0\n    GPU UUID : {UUIDS[0]}\n")["devices"][0]
    old = f"GPU 0: A (UUID: {UUIDS[0]})\n  MIG 1g.5gb Device 0: (UUID: MIG-{UUIDS[0]}/7/0)\n"
    listing.apply([device], listing.parse(old))
    assert_whole(device)
    assert [tuple(one.values()) for one in device["mig"]["devices"]] == [
        (f"MIG-{UUIDS[0]}/7/0", "1g.5gb", 7, 0, None)
    ]
    listing.apply([device], listing.parse(LIST))
    assert_whole(device)
    assert [one["profile"] for one in device["mig"]["devices"]] == ["1g.5gb"]


LINKS = f"""\
GPU 0: NVIDIA Testbed T1 (UUID: {UUIDS[0]})
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
         Link 2: 25 GB/s
"""


def test_links_have_exact_speeds_and_an_inactive_one_has_none() -> None:
    device = text.parse(text_of("580.105.08"))["devices"][0]
    nvlink.apply([device], nvlink.parse(LINKS))
    assert_whole(device)
    assert [(one["link"], one["active"], one["speed_mb_s"]) for one in device["nvlinks"]] == [
        (0, True, 26562),
        (1, False, None),
        (2, True, 25000),
    ]
    assert device["absent"]["nvlinks.0.remote_address"]["reason"] == "not_collected"


@pytest.mark.parametrize("word", ["inactive", "inActive"])
def test_links_that_are_all_inactive_are_known_to_be_so(word: str) -> None:
    said = f"NVML: Unable to retrieve NVLink information as all links are {word}"
    printed = f"GPU 0: NVIDIA Testbed T1 (UUID: GPU-1)\n{said}\n"
    (gpu,) = nvlink.parse(printed)
    assert (gpu["links"], gpu["reason"]) == ([], None)
    device = empty_device("0000:01:00.0", "not_collected")
    device["uuid"] = "GPU-1"
    nvlink.apply([device], [gpu])
    assert device["nvlinks"] == []
    assert "nvlinks" not in device["absent"]


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("Nvlink queries are not supported for Devices in MIG mode", "mig"),
        ("Device does not have or support Nvlink", "not_supported"),
        ("Something that no driver has said yet", "error"),
    ],
)
def test_a_sentence_in_place_of_links_is_the_reason_why_there_are_none(sentence: str, reason: str) -> None:
    device = text.parse(text_of("580.105.08"))["devices"][0]
    nvlink.apply([device], nvlink.parse(f"GPU 0: T1 (UUID: {UUIDS[0]})\n{sentence}\n"))
    assert_whole(device)
    assert device["nvlinks"] is None
    assert device["absent"]["nvlinks"] == {"reason": reason, "nvml_error": None, "text": sentence}


def test_nothing_printed_says_nothing_of_links() -> None:
    device = text.parse(text_of("580.105.08"))["devices"][0]
    nvlink.apply([device], nvlink.parse(""))
    assert device["absent"]["nvlinks"]["reason"] == "not_collected"
