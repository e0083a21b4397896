"""One host's part of a run: how the end of its segment becomes the end of the host."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.core.connection import ConnectionSettings, Endpoint
from fleet.core.errors import ExitCode, HostUnreachable
from fleet.modules.base import ControllerResult
from fleet.playbook.compile import CompiledSegment
from fleet.run.control import Control
from fleet.run.host_run import HostRun, RunContext
from fleet.run.identity import MachineRegistry
from fleet.run.link import Link
from fleet.run.outcome import HostOutcome
from tests.facts import health_facts

SETTINGS = ConnectionSettings("h", Endpoint("192.0.2.1", known_hosts=(Path("/nowhere"),)))
PLAN: Any = {
    "format": 1,
    "run": "r1",
    "host": "h",
    "segment": 0,
    "last": True,
    "steps": [{"id": "b", "resource": "file", "args": {}}],
}


class Compiler:
    """Has one segment to play."""

    done = False
    fact_groups: tuple[str, ...] = ()

    def queries(self, facts: Any) -> list[Any]:
        return []

    def segment(self, facts: Any, answers: Any, **options: Any) -> CompiledSegment:
        return CompiledSegment(PLAN, {}, (), last=True)

    def feed(self, results: Any) -> None:
        self.done = True


class ReportingCompiler(Compiler):
    """Its play ends with ``facts_report``."""

    def segment(self, facts: Any, answers: Any, **options: Any) -> CompiledSegment:
        asked = ControllerResult("facts_report", "the task", "…", wanted={"gpus": {"count": 9}})
        return CompiledSegment(PLAN, {}, (asked,), last=True)


class Agent:
    """Whose worker writes these records."""

    seen_from = None
    alive = True

    def __init__(self, *records: dict[str, Any]) -> None:
        self.hello: Mapping[str, Any] = {"clock_unix": time.time(), "machine_id": "m", "boot_id": "b"}
        self.records = [{"type": "record", "record": one} for one in records]
        self.asked: list[str] = []
        self.deaf = False  # to a second question for the facts
        self.facts: Any = {}

    def request(self, method: str, params: Any = None, **options: Any) -> Any:
        from fleet.agent.protocol import plan_hash

        self.asked.append(method)
        if method == "facts" and self.deaf and self.asked.count("facts") > 1:
            raise HostUnreachable("no answer in 120 s", host="h")
        checked = {"results": [{"step": "b", "status": "would_change"}], "hash": plan_hash(PLAN)}
        return checked if method == "check" else self.facts if method == "facts" else {}

    def pump(self, seconds: float) -> list[dict[str, Any]]:
        records, self.records = self.records, []
        return records

    def close(self) -> None:
        pass


class Ledger:
    def save(self, host: str, inputs: Any) -> None:
        pass

    def applying(self, host: str, segment: int) -> None:
        pass

    def saved(self, host: str) -> list[Any]:
        return []


def play(*results: dict[str, Any], end: str, deaf: bool = False) -> tuple[HostOutcome, Agent]:
    records = [{"kind": "result", "segment": 0, **fields} for fields in results]
    records.append({"kind": "end", "segment": 0, "status": end, "reason": "of the segment"})
    agent = Agent(*(dict(record, seq=seq) for seq, record in enumerate(records, 1)))
    agent.deaf = deaf
    control = Control()
    context = RunContext(
        "r1", False, "anna", "laptop", control, MachineRegistry(), Ledger(), again="fleet run site.yaml"
    )
    link = Link(SETTINGS, lambda settings: agent, control)
    host = HostRun("h", Compiler(), link, lambda kind, **data: None, context)  # type: ignore[arg-type]
    return host.run(), agent


def test_a_pending_step_makes_the_host_pending_with_the_command_that_gives_leave() -> None:
    command = "fleet provision lab.yaml --limit h --disrupt"
    waiting = {"step": "b", "status": "pending", "reason": "pid 4711 uses the GPU", "remedy": command}
    outcome, agent = play({"step": "a", "status": "changed"}, waiting, end="pending")
    assert (outcome.status, outcome.reason, outcome.remedy) == ("pending", "pid 4711 uses the GPU", command)
    assert outcome.exit_code == ExitCode.PENDING
    assert outcome.well, "the failure budget counts it not"
    assert outcome.counts == {"changed": 1, "pending": 1}
    assert agent.asked[-1] == "finish"


@pytest.mark.parametrize(("end", "status"), [("failed", "failed"), ("interrupted", "interrupted")])
def test_the_step_that_ended_the_segment_is_named_and_not_one_whose_failure_was_ignored(
    end: str, status: str
) -> None:
    ignored = {"step": "a", "status": "failed", "ignored": True, "reason": "no matter"}
    outcome, _ = play(ignored, {"step": "b", "status": status, "reason": "this one"}, end=end)
    assert (outcome.status, outcome.reason) == (status, "this one")


def test_without_a_remedy_of_its_own_a_pending_step_is_tried_again_by_a_new_run() -> None:
    outcome, _ = play({"step": "b", "status": "pending", "reason": "busy"}, end="pending")
    assert outcome.remedy == "when nobody minds: fleet run site.yaml --limit h"


@pytest.mark.parametrize("status", ["failed", "pending"])
def test_a_host_that_stops_half_way_is_looked_at_again_for_its_report(status: str) -> None:
    """What the first steps changed is true of it, too: a driver that is installed and does not load."""
    stopped = {"step": "b", "status": status, "reason": "this one"}
    _, agent = play({"step": "a", "status": "changed"}, stopped, end=status)
    assert agent.asked[0] == "facts"
    assert agent.asked[-2:] == ["facts", "finish"]
    outcome, agent = play({"step": "a", "status": "changed"}, stopped, end=status, deaf=True)
    assert (outcome.status, outcome.reason) == (status, "this one"), "not that facts could not be had"


def health_of(compiler: Compiler, facts: Any) -> tuple[HostOutcome, list[dict[str, Any]]]:
    """A run that converges, and what was published of the health of its host."""
    published: list[dict[str, Any]] = []
    end = {"kind": "end", "segment": 0, "status": "done", "reason": None, "seq": 2}
    agent = Agent({"kind": "result", "segment": 0, "step": "b", "status": "changed", "seq": 1}, end)
    agent.facts = facts
    control = Control()
    context = RunContext(
        "r1", False, "anna", "laptop", control, MachineRegistry(), Ledger(), again="fleet run x"
    )
    link = Link(SETTINGS, lambda settings: agent, control)

    def publish(kind: str, /, **data: Any) -> None:
        if kind == "controller_result" and data["kind"] == "finding":
            published.append(data)

    outcome = HostRun("h", compiler, link, publish, context).run()  # type: ignore[arg-type]
    return outcome, published


def test_what_is_not_well_with_gpus_is_told_at_the_end_and_blocks_nothing() -> None:
    facts = health_facts("h100", {"gpu_probe.devices.2.status": "lost"})
    outcome, published = health_of(ReportingCompiler(), facts)
    assert outcome.status == "converged"
    assert [(each["finding"]["id"], each["finding"].get("gpu")) for each in published] == [
        ("health.presence.count", None),
        ("health.presence.lost", "0000:52:00.0"),
    ]
    assert [each["finding"]["severity"] for each in published] == ["error", "error"]


def test_a_play_that_makes_no_report_of_facts_judges_nothing() -> None:
    assert health_of(Compiler(), health_facts("h100", {"gpu_probe.devices.2.status": "lost"}))[1] == []
