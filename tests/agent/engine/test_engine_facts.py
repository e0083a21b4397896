"""The engine's part of the facts, from an engine that answers, hangs or is not there."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import jsonschema

from fleet.agent import facts
from fleet.agent.facts import engine as engine_facts

from .fake import FakeEngine

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas/facts.schema.json").read_text())


def collect(host: Any) -> dict[str, Any]:
    document = facts.collect(host, ["engine"])
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document["engine"]


def test_an_engine_that_answers(engine: FakeEngine, host: Any) -> None:
    started = "2026-01-02T03:04:05Z"
    engine.containers["train"] = {
        "State": {"Running": True, "Pid": 4711, "StartedAt": started},
        "HostConfig": {"DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}]},
    }
    engine.containers["old"] = {"State": {"Running": False, "Pid": 0, "StartedAt": "0001-01-01T00:00:00Z"}}
    engine.images["i"] = {"Id": "i", "RepoTags": ["t:1"], "RepoDigests": ["t@sha256:ab"], "Size": 7}
    part = collect(host)
    assert part["responding"]
    assert (part["version"], part["api_version"], part["cdi"]) == ("20.10.24", "1.41", False)
    train, old = part["containers"]
    assert part["gpu_containers"] == [{"id": train["id"], "name": "train"}]
    assert (train["name"], train["state"], train["pid"], train["started_at"]) == (
        "train",
        "running",
        4711,
        started,
    )
    assert (old["state"], old["pid"], old["started_at"]) == ("exited", None, None)
    assert part["images"][0]["digests"] == ["sha256:ab"]
    assert part["networks"] == [{"name": "bridge", "subnets": ["172.17.0.0/16"]}]
    assert engine.connections == 1


def test_an_engine_that_hangs_is_present_and_not_responding(root: Path, host: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(engine_facts, "TIMEOUT_S", 0.1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "var/run/docker.sock"))
        listener.listen()
        part = collect(host)
    assert part["present"]
    assert not part["responding"]
    assert part["containers"] is None
    assert part["containers_reason"] == "error"
    assert "in time" in part["responding_message"]


def test_no_engine(host: Any) -> None:
    part = collect(host)
    assert not part["present"]
    assert part["version_reason"] == "not_supported"


def test_what_the_running_engine_says_of_its_store_wins(engine: FakeEngine, host: Any, root: Path) -> None:
    for path, text in (
        ("etc/docker/daemon.json", '{"data-root": "/elsewhere"}'),  # not yet taken over by a restart
        ("proc/self/mounts", "/dev/vda1 / ext4 rw 0 0\n"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    document = facts.collect(host, ["engine", "disks"])
    assert document["paths"]["engine_root"]["path"] == "/var/lib/docker"
    assert facts.collect(host, ["disks"])["paths"]["engine_root"]["path"] == "/elsewhere"
