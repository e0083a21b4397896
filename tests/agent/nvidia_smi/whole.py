"""The one check that every Device and probe document of nvidia-smi's formats is held to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fleet.agent.gpu_probe import device as shape

DOCUMENT_KEYS = [
    *[
        "status",
        "message",
        "nvml_error",
        "source",
        "duration_s",
        "binding",
        "driver_version",
        "nvml_version",
        "cuda_version",
    ],
    *["devices", "missing", "topology"],
]
NEVER_ABSENT = {"address", "message"}  # said of a GPU, not measured


def assert_document(document: dict[str, Any]) -> None:
    """The probe document's keys, its source and status, and each of its Devices; no NaN."""
    assert list(document) == DOCUMENT_KEYS
    assert document["source"] == "nvidia-smi"
    assert document["status"] in shape.PROBE_STATUSES
    assert (document["message"] is None) == (document["status"] == "ok")
    for device in document["devices"]:
        assert_whole(device)
        if device["status"] != "ok":
            assert document["status"] != "ok"
    json.dumps(document, allow_nan=False)


def assert_whole(device: dict[str, Any]) -> None:
    """Exactly the contract's keys; an entry in ``absent`` for every null and for nothing else; units' types."""
    assert list(device) == [key[0] if isinstance(key, tuple) else key for key in shape.KEYS]
    for key in shape.KEYS:
        if isinstance(key, tuple):
            assert list(device[key[0]]) == key[1], key[0]
    _assert_parts(device)
    assert device["status"] in shape.DEVICE_STATUSES
    nulls = {path for path, value in leaves(device) if value is None} - NEVER_ABSENT
    assert nulls == set(device["absent"])
    for path, entry in device["absent"].items():
        assert list(entry) == ["reason", "nvml_error", "text"], path
        assert entry["reason"] in shape.ABSENT_REASONS, path
        assert not re.fullmatch(r"\[.*\]", entry["text"] or ""), path
    for path, value in leaves(device):
        if value is not None:
            _assert_type(path, value)
    json.dumps(device, allow_nan=False)


def _assert_parts(device: dict[str, Any]) -> None:
    histogram, health = device["remapped_rows"]["histogram"], device["fabric"]["health"]
    assert histogram is None or tuple(histogram) == shape.HISTOGRAM_KEYS
    assert health is None or tuple(health) == shape.HEALTH_KEYS
    for link in device["nvlinks"] or []:
        assert list(link) == shape.NVLINK_KEYS
    for mig in device["mig"]["devices"]:
        assert list(mig) == shape.MIG_DEVICE_KEYS
    for process in device["processes"] or []:
        assert list(process) == shape.PROCESS_KEYS
    if device["clocks_event_reasons"] is not None:
        for name in device["clocks_event_reasons"]:
            assert re.fullmatch(r"[a-z0-9][a-z0-9_]*", name), name


def leaves(device: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of all that may be null, with lists by link, pid or place."""
    for key, value in device.items():
        if key in ("absent", "implausible", "status", "clocks_event_reasons"):
            if key == "clocks_event_reasons":
                yield key, value
        elif isinstance(value, dict):
            yield from _below(key, value)
        elif key in ("nvlinks", "processes") and value is not None:
            name = "link" if key == "nvlinks" else "pid"
            for entry in value:
                yield from _below(f"{key}.{entry[name]}", entry)
        else:
            yield key, value


def _below(path: str, part: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in part.items():
        if isinstance(value, dict):
            yield from _below(f"{path}.{key}", value)
        elif path == "mig" and key == "devices":
            for place, entry in enumerate(value):
                yield from _below(f"mig.devices.{place}", entry)
        else:
            yield f"{path}.{key}", value


def _assert_type(path: str, value: Any) -> None:
    if path.endswith("_w"):
        assert isinstance(value, float), path
    elif path.endswith(("_mib", "_mhz", "_c", "_percent", "_mb_s", "_corrected", "_uncorrected")):
        assert type(value) is int, path
    elif path.endswith(("version", "_id", "uuid", "name")) and path not in (
        "board_id",
        "module_id",
        "fabric.clique_id",
    ):
        assert type(value) in (str, int) if "nvlinks" in path else isinstance(value, str), path
