"""The published schema of a record takes what a runner writes, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fleet.core import schema
from tests.benchmarks import MODELS, not_measured, of, record, uuid


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("count", [1, 8])
def test_the_builder_makes_valid_records(model: str, count: int) -> None:
    assert schema.validate(record(model, count), "benchmark") == []


def test_a_result_without_a_value_is_valid_and_says_why() -> None:
    document = record("t4", 1)
    document["results"] = [
        not_measured(
            "resnet50.compile", [uuid(0)], "not_runnable", "no_compiler", "no C compiler", "images_s"
        )
    ]
    assert schema.validate(document, "benchmark") == []
    document["results"][0]["reason"] = None
    assert schema.validate(document, "benchmark") == ["$.results[0].reason: must be string, not null"]


def test_a_host_without_gpus_is_valid() -> None:
    document = record("t4", 1)
    document["gpus"], document["software"], document["image"] = [], None, None
    document["results"] = [not_measured("burn", [], "skipped", "no_gpus", "there is no GPU", "count")]
    assert schema.validate(document, "benchmark") == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("suite",), "fast"),
        (("results", 0, "test"), "matrix_product.fp4"),
        (("results", 0, "value"), None),
        (("results", 0, "samples"), 0),
        (("results", 0, "unit"), "gflops"),
        (("results", 0, "status"), "passed"),
        (("gpus", 0, "state"), "busy"),
        (("gpus", 0, "device_id"), "0x2330"),
        (("gpus", 0, "during", "clocks_event_reasons"), None),
        (("extra",), 1),
        (("gpus", 0, "extra"), 1),
    ],
)
def test_what_is_not_as_agreed_is_a_fault(path: tuple[Any, ...], value: object) -> None:
    document = copy.deepcopy(record("h100", 1))
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert schema.validate(document, "benchmark")


def test_a_skipped_gpu_says_why() -> None:
    document = record("h100", 2)
    document["gpus"][1].update(state="skipped", during=None, after=None)
    assert schema.validate(document, "benchmark") == ["$.gpus[1].reason: must be string, not null"]
    document["gpus"][1]["reason"] = "gpu_occupied"
    assert schema.validate(document, "benchmark") == []
    assert of(document, "memory.copy")["value"] > 0
