"""fleet provision on a host whose driver, engine and toolkit are somebody else's, and which has no systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet.playbook.compile import HostCompiler
from fleet.playbook.load import load_playbook
from tests.facts import rented_facts

PROVISION = Path(__file__).parents[2] / "playbooks" / "provision.yaml"
VARIABLES = {
    "nvidia_driver_source": "preinstalled",
    "docker_engine_source": "preinstalled",
    "container_toolkit_source": "preinstalled",
    "container_toolkit_mode": "cdi",
    "container_toolkit_cdi_command": ["/opt/site/cdi"],
    "image": "r:5000/pytorch:2",
    "image_digest": "sha256:" + "0" * 64,
}


def plan(facts: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(labels of the steps, kinds of the results)."""
    compiler = HostCompiler(load_playbook(PROVISION).plays[0], "rented01", VARIABLES, "7f3a")
    steps, kinds = [], []
    while not compiler.done:
        segment = compiler.segment(facts, {}, now_unix=facts["clock"]["unix"])
        steps += [f"{step['resource']}: {step['task']}" for step in segment.plan["steps"]]
        kinds += [result.kind for result in segment.controller_results]
    return steps, kinds


def test_no_package_no_service_no_timer() -> None:
    steps, kinds = plan(rented_facts())
    assert steps == [
        "engine_process: Docker Engine",
        "directory: NVIDIA container toolkit: folder /etc/docker",
        "json_file: NVIDIA container toolkit: daemon.json",
        "engine_process: NVIDIA container toolkit: the engine",
        "cdi_specification: NVIDIA container toolkit: CDI specification",
        "image: The pinned image",
        "container_check: A container sees the host's GPUs",
    ]
    assert set(kinds) <= {"ok", "message", "skipped", "facts_report"}


def test_without_an_engine_nothing_is_begun() -> None:
    steps, kinds = plan(rented_facts({"engine.responding": False, "engine.containers": None}))
    assert steps == []
    assert "failed" in kinds


def test_benchmarks_are_run_where_they_are_asked_for() -> None:
    def measured(**more: Any) -> list[dict[str, Any]]:
        compiler = HostCompiler(load_playbook(PROVISION).plays[0], "rented01", {**VARIABLES, **more}, "7f3a")
        facts, found = rented_facts(), []
        while not compiler.done:
            steps = compiler.segment(facts, {}, now_unix=facts["clock"]["unix"]).plan["steps"]
            found += [step for step in steps if step["resource"] == "benchmark"]
        return found

    assert measured() == []
    assert measured(benchmark="quick", image=None) == []
    (step,) = measured(benchmark="full")
    assert (step["args"]["suite"], step["args"]["where"], step["args"]["repeat"]) == (
        "full",
        "container",
        False,
    )
    assert step["args"]["digest"] == VARIABLES["image_digest"]
