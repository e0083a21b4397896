"""The resource: when it is due, what it keeps, and when the step fails."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.bench import host as on_host
from fleet.agent.bench import record, run
from fleet.agent.facts import checks
from fleet.agent.host import Host
from fleet.agent.resources import load
from fleet.agent.resources.base import StepCancelled, StepFailed
from fleet.core.schema import validate
from tests.agent.engine.fake import FakeEngine

DIGEST = "sha256:" + "d" * 64
REFERENCE = "registry.example.net:5000/pytorch-cuda:v2.7"
BY_DIGEST = f"registry.example.net:5000/pytorch-cuda@{DIGEST}"
ARGS: dict[str, Any] = {
    "suite": "quick",
    "where": "container",
    "reference": REFERENCE,
    "digest": DIGEST,
    "request": "auto",
    "gpus": "all",
    "evenly_occupied": False,
    "repeat": False,
    "python": None,
    "deadline_s": 600.0,
}
FOUND: dict[str, Any] = {
    "schema": "fleet.benchmark/1",
    "suite": "quick",
    "started_at": "2026-11-30T12:00:00Z",
    "ended_at": "2026-11-30T12:01:00Z",
    "duration_s": 60.0,
    "simulated": False,
    "where": "container",
    "image": {"reference": REFERENCE, "digest": DIGEST},
    "software": None,
    "gpus": [],
    "results": [],
}


class Fixed:
    """Stands for a suite that was run."""

    cancelled = False

    def __init__(self, *unused: Any) -> None:
        return

    def run(self) -> dict[str, Any]:
        return dict(FOUND)


@pytest.fixture
def box(engine: FakeEngine, host: Host, root: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    engine.images["i1"] = {"Id": "i1", "RepoDigests": [BY_DIGEST], "RepoTags": [REFERENCE]}
    monkeypatch.setattr(run, "Suite", Fixed)
    monkeypatch.setattr(Fixed, "cancelled", False)
    return host


def due(host: Host, **changes: Any) -> list[dict[str, Any]]:
    host.invalidate()
    resource, args = load("benchmark"), {**ARGS, **changes}
    return resource.diff(resource.read(host, args), args)


def apply(host: Host, report: Any, **changes: Any) -> Any:
    return load("benchmark").apply(host, {**ARGS, **changes}, due(host, **changes), report)


def test_it_is_due_once_and_again_only_when_something_changed(box: Host, root: Path, report: Any) -> None:
    assert due(box) == [{"path": "benchmark", "before": None, "after": "quick"}]
    kept = apply(box, report)["registered"]["benchmark"]
    assert kept == json.loads((root / "state/checks/benchmark.json").read_text())
    assert validate(kept, "benchmark") == []
    assert due(box) == []
    assert due(box, suite="full")[0]["before"] == "measured with another suite"
    (root / "proc/sys/kernel/random/boot_id").write_text("another\n")
    assert due(box)[0]["before"] == "measured with another boot"


def test_with_repeat_it_is_always_due_and_that_is_no_failure(box: Host, report: Any) -> None:
    apply(box, report, repeat=True)
    assert due(box, repeat=True)[0]["before"] == "measured at 2026-11-30T12:01:00Z"
    assert not load("benchmark").rereads({**ARGS, "repeat": True})
    assert load("benchmark").rereads(ARGS)
    assert due(box) == []


def test_the_facts_hold_what_was_kept(box: Host, report: Any) -> None:
    assert checks.collect(box)["benchmark_reason"] == "not_collected"
    apply(box, report)
    facts = {
        "schema": "fleet.facts/1",
        "collected_at": "2026-11-30T12:00:00Z",
        "simulated": False,
        "errors": [],
    }
    assert validate({**facts, **checks.collect(box)}, "facts") == []
    assert checks.collect(box)["benchmark"]["key"]["suite"] == "quick"


def test_cancelled_keeps_what_there_is_and_is_due_again(
    box: Host, report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fixed, "cancelled", True)
    with pytest.raises(StepCancelled):
        apply(box, report)
    assert checks.read_benchmark(box)["ended_at"] == "2026-11-30T12:01:00Z"
    assert due(box)[0]["before"] == "measured with another cancelled"


def test_no_image_and_no_engine_fail_the_step(box: Host, engine: FakeEngine, root: Path) -> None:
    engine.images.clear()
    with pytest.raises(StepFailed, match="is not on this host") as caught:
        due(box)
    assert caught.value.remedy == "put an image task for it before this one"
    (root / "var/run/docker.sock").unlink()
    with pytest.raises(StepFailed):
        due(box)


def test_on_the_host_the_key_names_the_torch(
    host: Host, root: Path, report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Suite", Fixed)
    monkeypatch.setattr(on_host, "find", lambda host, wanted: ("/opt/venv/bin/python3", "2.7.0+cu128"))
    changes = {"where": "host", "reference": None, "digest": None}
    kept = apply(host, report, **changes)["registered"]["benchmark"]
    assert kept["key"]["torch"] == "2.7.0+cu128 of /opt/venv/bin/python3"
    assert due(host, **changes) == []


def test_nan_never_reaches_the_disk_and_is_refused_when_read(host: Host, root: Path) -> None:
    kept = record.keep(host, {**FOUND, "key": {"x": math.inf}, "duration_s": math.nan})
    assert (kept["duration_s"], kept["key"]["x"]) == (None, None)
    (root / "state/checks/benchmark.json").write_text('{"value": NaN}')
    with pytest.raises(ValueError, match="NaN is not a number of JSON"):
        checks.read_benchmark(host)
    assert record.last(host) is None
