"""The document of a GPU: every key always there, every null explained, one spelling of an address."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.gpu_probe import device, questions
from fleet.core.schema import validate


def nulls(value: Any, path: str = "") -> set[str]:
    """The dotted paths of all nulls of a Device, links and processes by their numbers."""
    if value is None:
        return {path}
    if isinstance(value, list):
        keys = {id(entry): entry.get("link", entry.get("pid", place)) for place, entry in enumerate(value)
                if isinstance(entry, dict)}  # fmt: skip
        return {
            name
            for entry in value
            if isinstance(entry, dict)
            for name in nulls(entry, f"{path}.{keys[id(entry)]}")
        }
    if isinstance(value, dict):
        return {
            name for key, each in value.items() for name in nulls(each, f"{path}.{key}" if path else key)
            if key not in ("absent", "message")
        }  # fmt: skip
    return set()


def test_an_empty_device_has_every_key_null_for_the_reason_it_was_given() -> None:
    empty = device.empty_device("0000:1b:00.0", "gpu_lost", 15)
    assert nulls(empty) == set(empty["absent"]) == set(device.paths())
    assert set(map(str, empty["absent"].values())) == {
        str({"reason": "gpu_lost", "nvml_error": 15, "text": None})
    }
    assert (empty["mig"]["devices"], empty["implausible"], empty["status"]) == ([], [], "ok")
    assert empty["pcie"]["sampled_under_load"] is False


def test_two_empty_devices_share_nothing() -> None:
    one, other = (device.empty_device("0000:1b:00.0", "error") for _ in range(2))
    one["mig"]["devices"].append({})
    device.set_value(one, "ecc.volatile_corrected", 0)
    assert other["mig"]["devices"] == []
    assert other["ecc"]["volatile_corrected"] is None


def test_a_value_takes_its_reason_away_and_zero_is_a_value() -> None:
    one = device.empty_device("0000:1b:00.0", "error")
    device.set_value(one, "ecc.volatile_corrected", 0)
    assert device.value_at(one, "ecc.volatile_corrected") == 0
    assert "ecc.volatile_corrected" not in one["absent"]
    device.set_absent(one, "ecc.volatile_corrected", "error", 999, "Unknown Error")
    assert one["ecc"]["volatile_corrected"] is None
    assert one["absent"]["ecc.volatile_corrected"] == {
        "reason": "error",
        "nvml_error": 999,
        "text": "Unknown Error",
    }


def test_no_value_is_no_value() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        device.set_value(device.empty_device("0000:1b:00.0", "error"), "uuid", None)


def test_links_are_named_by_number_and_processes_by_pid() -> None:
    one = device.empty_device("0000:1b:00.0", "error")
    one["nvlinks"] = [{"link": 5, "version": 4}]
    one["processes"] = [{"pid": 77, "memory_used_mib": 3}]
    device.set_absent(one, "nvlinks.5.version", "not_supported", 3)
    device.set_absent(one, "processes.77.memory_used_mib", "permission", 4)
    assert one["nvlinks"] == [{"link": 5, "version": None}]
    assert one["processes"] == [{"pid": 77, "memory_used_mib": None}]


def test_every_path_has_a_question_or_is_said_to_have_none() -> None:
    asked = [path for paths, _, _ in questions.QUESTIONS for path in paths]
    assert len(asked) == len(set(asked))
    assert {*asked, *questions.NOT_ASKED, "nvlinks", "processes"} == set(device.paths())
    assert not set(asked) & set(questions.NOT_ASKED)


def test_the_schema_knows_the_same_keys_and_words() -> None:
    facts = {
        "schema": "fleet.facts/1",
        "collected_at": "2026-11-30T11:00:00Z",
        "simulated": False,
        "errors": [],
    }
    probe: dict[str, Any] = {
        "status": "gpu_error",
        "message": "x",
        "nvml_error": None,
        "source": "nvml",
        "duration_s": 0.1,
        "binding": None,
        "driver_version": None,
        "nvml_version": None,
        "cuda_version": None,
        "missing": [{"address": "0000:1b:00.0", "slot": "7", "name": None}],
        "topology": [
            {"a": "0000:1b:00.0", "b": "0000:1c:00.0", "path": "NV", "nvlinks": 18, "peer_to_peer": "ok"}
        ],
    }
    for action in device.RECOVERY_ACTIONS:
        one = device.empty_device("10000:1b:00.0", "error", 999)
        device.set_value(one, "recovery_action", action)
        assert validate({**facts, "gpu_probe": {**probe, "devices": [one]}}, "facts") == []
    one["more"] = 1
    assert validate({**facts, "gpu_probe": {**probe, "devices": [one]}}, "facts") != []
