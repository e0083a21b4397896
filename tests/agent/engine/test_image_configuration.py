"""What an engine says of an image that it has, asked without starting it."""

from __future__ import annotations

from typing import Any

from fleet.agent import queries
from fleet.agent.host import Host

from .fake import FakeEngine

DIGEST = "sha256:" + "a" * 64
NAME = f"registry.example.net/ml/train@{DIGEST}"


def ask(host: Host, reference: str = NAME) -> dict[str, Any]:
    query = {"id": "q", "kind": "image_configuration", "reference": reference}
    return queries.answer(host, [query])["q"]


def have(engine: FakeEngine, config: Any) -> None:
    engine.images["sha256:1"] = {
        "Id": "sha256:1",
        "RepoTags": ["registry.example.net/ml/train:7"],
        "RepoDigests": [NAME],
        "Architecture": "amd64",
        "Config": config,
    }


def test_what_speaks_of_cuda_is_told_and_nothing_else(host: Host, engine: FakeEngine) -> None:
    variables = [
        "CUDA_VERSION=12.8.1",
        "NVIDIA_REQUIRE_CUDA=cuda>=12.8",
        "PYTORCH_VERSION=2.7.0",
        "TOKEN=hunter2",
    ]
    labels = {"org.opencontainers.image.version": "22.04", "owner": "somebody"}
    have(engine, {"Env": variables, "Labels": labels})
    assert ask(host) == {
        "ok": True,
        "value": {
            "exists": True,
            "id": "sha256:1",
            "digests": [DIGEST],
            "architecture": "amd64",
            "environment": variables[:3],
            "labels": {"org.opencontainers.image.version": "22.04"},
        },
    }
    assert {method for method, _, _ in engine.requests} == {"GET"}


def test_an_image_without_variables_and_labels(host: Host, engine: FakeEngine) -> None:
    have(engine, None)
    value = ask(host)["value"]
    assert (value["environment"], value["labels"]) == ([], {})


def test_an_image_that_is_not_there(host: Host, engine: FakeEngine) -> None:
    assert ask(host) == {"ok": True, "value": {"exists": False}}


def test_without_an_engine_it_says_so(host: Host) -> None:
    said = ask(host)
    assert not said["ok"]
    assert f"cannot ask for the image {NAME}" in said["error"]
    assert said["remedy"]
