"""One GPU as drivers 390 to 610 print it, in XML and in text: the same fields, and what each has not."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.nvidia_smi import text, xml
from tests.agent.nvidia_smi.outputs import DEPRECATED, GENERATIONS, UUIDS, branch, gpu, text_of, xml_of
from tests.agent.nvidia_smi.whole import assert_document

DRIVERS = list(GENERATIONS)
ALWAYS: dict[str, Any] = {
    "address": "0000:1b:00.0",
    "printed_address": "00000000:1B:00.0",
    "status": "ok",
    "index": 0,
    "minor": 0,
    "uuid": UUIDS[0],
    "serial": "1320000000017",
    "name": "NVIDIA Testbed T1",
    "device_id": "20b2",
    "subsystem_vendor_id": "10de",
    "subsystem_id": "147f",
    "board_id": 0x1B00,
    "inforom_image_version": "G506.0212.00.01",
    "memory_total_mib": 81920,
    "memory_used_mib": 512,
    "memory_free_mib": 81408,
    "bar1_total_mib": 131072,
    "graphics_clock_mhz": 1275,
    "memory_clock_mhz": 1593,
    "max_sm_clock_mhz": 1410,
    "performance_state": 0,
    "clocks_event_reasons": ["sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"],
    "power_draw_w": 244.17,
    "power_limit_w": 350.0,
    "power_limit_enforced_w": 350.0,
    "power_limit_default_w": 400.0,
    "power_limit_min_w": 100.0,
    "power_limit_max_w": 400.0,
    "temperature_c": 63,
    "memory_temperature_c": 71,
    "temperature_slowdown_c": 89,
    "temperature_shutdown_c": 92,
    "temperature_max_operating_c": 85,
    "fan_speed_percent": None,
    "gpu_utilization_percent": 37,
    "ecc_mode": "enabled",
    "ecc_mode_pending": "disabled",
    "persistence_mode": True,
    "compute_mode": "default",
    "virtualization_mode": "passthrough",
    "processes": [],
    "implausible": [],
}


def both(driver: str) -> list[dict[str, Any]]:
    return [xml.parse(xml_of(driver)), text.parse(text_of(driver))]


@pytest.mark.parametrize("driver", DRIVERS)
def test_xml_and_text_of_every_generation_give_the_same_document(driver: str) -> None:
    of_xml, of_text = both(driver)
    assert_document(of_xml)
    assert of_xml == of_text
    assert (of_xml["status"], of_xml["driver_version"]) == ("ok", driver)
    assert of_xml["cuda_version"] == GENERATIONS[driver][1]
    device = of_xml["devices"][0]
    assert {key: device[key] for key in ALWAYS} == ALWAYS
    assert device["absent"]["fan_speed_percent"] == {
        "reason": "not_supported",
        "nvml_error": None,
        "text": "N/A",
    }


@pytest.mark.parametrize("driver", DRIVERS)
def test_counters_are_the_same_under_all_three_ways_of_naming_them(driver: str) -> None:
    for document in both(driver):
        ecc = document["devices"][0]["ecc"]
        assert (ecc["volatile_corrected"], ecc["volatile_uncorrected"]) == (3, 0)
        assert (ecc["aggregate_corrected"], ecc["aggregate_uncorrected"]) == (9, 2)
        assert ecc["aggregate_dram_uncorrected"] == 2
        assert ecc["aggregate_sram_uncorrected"] == (None if branch(driver) < 410 else 0)


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_a_generation_does_not_print_is_not_collected(driver: str) -> None:
    at = branch(driver)
    device = xml.parse(xml_of(driver))["devices"][0]
    since = {
        "mig.mode": 450,
        "architecture": 470,
        "gsp_firmware_version": 470,
        "remapped_rows.pending": 450,
        "remapped_rows.histogram": 460,
        "pcie.generation_max_gpu": 525,
        "temperature_margin_c": 535,
        "recovery_action": 565,
        "memory_reserved_mib": 510,
    }
    for path, first in since.items():
        entry = device["absent"].get(path)
        if at < first:
            assert entry == {"reason": "not_collected", "nvml_error": None, "text": None}, path
        else:
            assert entry is None, path


def test_the_links_speed_and_its_limits_are_told_apart() -> None:
    pcie = xml.parse(xml_of("580.105.08"))["devices"][0]["pcie"]
    assert pcie == {
        "generation": 3,
        "width": 8,
        "generation_max_gpu": 4,
        "generation_max": 4,
        "generation_max_host": 5,
        "width_max": 16,
        "replays": 7,
        "sampled_under_load": False,
    }


def test_rows_and_modes_that_change_at_the_next_reset_are_kept_apart_from_what_is() -> None:
    device = text.parse(text_of("595.71.05"))["devices"][0]
    assert device["remapped_rows"] == {
        "corrected": 0,
        "uncorrected": 2,
        "pending": True,
        "failure": False,
        "histogram": {"max": 639, "high": 1, "partial": 0, "low": 0, "none": 0},
    }
    assert (device["mig"]["mode"], device["mig"]["mode_pending"]) == ("disabled", "enabled")


@pytest.mark.parametrize(
    ("says", "action", "status"),
    [("Yes", "gpu_reset", "reset_required"), ("No", None, "ok"), (DEPRECATED, None, "ok")],
)
def test_an_old_driver_asks_for_a_reset_by_a_flag(says: str, action: str | None, status: str) -> None:
    gpus = [gpu("535.161.08", reset_required=says)]
    for document in (xml.parse(xml_of("535.161.08", gpus)), text.parse(text_of("535.161.08", gpus))):
        assert_document(document)
        device = document["devices"][0]
        assert (device["recovery_action"], device["status"]) == (action, status)
        assert document["status"] == ("ok" if status == "ok" else "gpu_error")


@pytest.mark.parametrize(
    ("says", "action", "reason"),
    [
        ("None", "none", None),
        ("Reset", "gpu_reset", None),
        ("Reboot", "node_reboot", None),
        ("Drain P2P", "drain_p2p", None),
        ("Drain and Reset", "drain_and_reset", None),
        ("N/A", None, "not_supported"),
        ("Ask the Oracle", None, "error"),
    ],
)
def test_the_recovery_action_is_a_word_and_an_unknown_one_is_never_none(
    says: str, action: str | None, reason: str | None
) -> None:
    device = xml.parse(xml_of("580.105.08", [gpu("580.105.08", gpu_recovery_action=says)]))["devices"][0]
    assert device["recovery_action"] == action
    assert device["absent"].get("recovery_action", {}).get("reason") == reason
    assert device["absent"].get("recovery_action", {}).get("text") == (says if reason else None)


def test_610_puts_a_remark_behind_the_old_names_and_one_day_takes_them_away() -> None:
    printed = xml_of("610.57.04")
    gone = "\n".join(line for line in printed.splitlines() if "Deprecated;" not in line)
    only_sentence = gone.replace(
        "<kmd_version>610.57.04",
        '<driver_version>Deprecated, see "KMD version" instead</driver_version>\n<kmd_version>610.57.04',
    )
    for form in (printed, gone, only_sentence):
        document = xml.parse(form)
        assert (document["driver_version"], document["cuda_version"]) == ("610.57.04", "13.3")
