"""The check pass: honest about what it cannot know, and it writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.agent import resources
from fleet.agent.check import CheckPass
from fleet.agent.conditions import Outcome
from fleet.agent.history import History, Work
from fleet.agent.journal import Journal, read_journal
from fleet.agent.paths import Paths
from fleet.agent.pending import Pending
from fleet.agent.resources.base import Provides, Resource, StepFailed
from fleet.agent.scrub import Scrubber
from fleet.agent.segment import Segment
from fleet.agent.step_host import StepHost
from tests.agent.core.harness import plan, step


class Cell(Resource):
    """``{"name", "value"}`` in a dictionary; ``needs`` must be there; ``reflects`` as services do."""

    kind = "cell"

    def __init__(self, world: dict[str, Any]) -> None:
        self.world = world

    def read(self, host: Any, args: Any) -> Any:
        for need in args.get("needs", ()):
            if need not in self.world:
                raise StepFailed(f"{need} is not there")
        stale = any(self.world.get("stale " + name) for name in args.get("reflects", ()))
        return {"value": self.world.get(args["name"]), "stale": stale}

    def diff(self, state: Any, args: Any) -> Any:
        if state["value"] == args["value"] and not state["stale"]:
            return []
        return [{"path": args["name"], "before": state["value"], "after": args["value"]}]

    def apply(self, host: Any, args: Any, differences: Any, report: Any) -> Any:
        if self.world.get(args["name"]) != args["value"]:
            self.world["stale " + args["name"]] = True
        self.world[args["name"]] = args["value"]
        for name in args.get("reflects", ()):
            self.world.pop("stale " + name, None)

    def provides(self, args: Any) -> Provides:
        return Provides(files=[args["name"]])

    def requires(self, args: Any) -> Provides:
        return Provides(files=args.get("needs", ()))


class Host(StepHost):
    """A host on which a file is there when the world has it."""

    world: dict[str, Any]

    def absent(self, wanted: Provides) -> Provides:
        return Provides(files=[name for _, name in wanted if name not in self.world])


class Setting:
    def __init__(self, folder: Path, world: dict[str, Any]) -> None:
        self.world = world
        self.paths = Paths(str(folder / "state"), str(folder / "run"))
        self.pending = Pending(self.paths)
        self.host = Host(root=str(folder), state_dir=self.paths.state, runtime_dir=self.paths.runtime)
        self.host.world = world

    def load(self, kind: str) -> Resource:
        return Cell(self.world) if kind == "cell" else resources.load(kind)

    def check(self, *steps: Any, outcomes: dict[str, Outcome] | None = None) -> dict[str, str]:
        checked = CheckPass(
            plan(*steps),  # type: ignore[arg-type]
            self.host,
            load=self.load,
            pending=self.pending,
            outcomes=outcomes or {},
        ).run()
        self.reasons = {result["step"]: result.get("reason") for result in checked}
        return {result["step"]: result["status"] for result in checked}

    def apply(self, *steps: Any) -> dict[str, str]:
        """What the worker really does with the same plan: step -> status."""
        history = History()
        history.current = Work(0, "hash")
        journal = Journal(self.paths.journal("run-1"), clock=lambda: 0.0, clean=lambda fields: fields)
        Segment(
            plan(*steps),  # type: ignore[arg-type]
            history.current,
            history,
            journal=journal,
            host=self.host,
            scrubber=Scrubber(),
            load=self.load,
            pending=self.pending,
            boot_id="b",
            alarm=False,
        ).run()
        journal.close()
        found = read_journal(self.paths.journal("run-1"))
        return {record["step"]: record["status"] for record in found if record["kind"] == "result"}


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path, {})


def cell(step_id: str, value: str = "new", *, of: str | None = None, **fields: Any) -> Any:
    """A step about the cell ``of``, or the one named as the step itself."""
    made = step(step_id, "cell", **fields)
    made["args"].update(name=of or step_id, value=value)
    return made


def test_says_what_differs_and_writes_nothing(setting: Setting, tmp_path: Path) -> None:
    setting.world.update(a="new", b="old")
    assert setting.check(cell("a"), cell("b"), cell("c")) == {
        "a": "ok",
        "b": "would_change",
        "c": "would_change",
    }
    assert list(tmp_path.iterdir()) == []
    assert setting.world == {"a": "new", "b": "old"}


def test_what_an_earlier_step_would_bring_makes_a_later_one_known_after_apply(setting: Setting) -> None:
    assert setting.check(cell("a"), cell("b", needs=["a"]))["b"] == "known_after_apply"
    assert setting.reasons["b"] == "needs file a, which an earlier step would bring"


def test_what_nobody_would_bring_is_a_failure(setting: Setting) -> None:
    assert setting.check(cell("b", needs=["a"])) == {"b": "failed"}
    assert setting.reasons["b"] == "a is not there"


def test_a_service_that_reflects_a_file_about_to_change_is_not_called_ok(setting: Setting) -> None:
    setting.world.update(conf="old", service="up")
    steps = [cell("conf"), cell("service", "up", reflects=["conf"])]
    assert setting.check(*steps) == {"conf": "would_change", "service": "known_after_apply"}
    setting.world.update(conf="new")
    assert setting.check(*steps) == {"conf": "ok", "service": "ok"}


def test_two_steps_that_decide_the_same_thing(setting: Setting) -> None:
    steps = [cell("a", "1", of="x"), cell("b", "2", of="x")]
    assert setting.check(*steps) == {"a": "would_change", "b": "known_after_apply"}


def test_conditions_on_what_is_not_known_yet(setting: Setting) -> None:
    setting.world.update(same="new")
    statuses = setting.check(
        cell("same"),
        cell("first"),
        cell("after change", when={"changed": "first"}),
        cell("no change", when={"changed": "same"}),
        cell("exit", when={"exit_code": {"step": "first", "in": [0]}}),
        cell("reboot", when={"reboot_required": True}),
        cell("chain", when={"changed": "exit"}),
        cell("decided", when={"any": [{"changed": "exit"}, {"changed": "first"}]}),
    )
    assert statuses == {
        "same": "ok",
        "first": "would_change",
        "after change": "would_change",
        "no change": "skipped",
        "exit": "known_after_apply",
        "reboot": "known_after_apply",
        "chain": "known_after_apply",
        "decided": "would_change",
    }


def test_outcomes_of_earlier_segments_are_known(setting: Setting) -> None:
    outcomes = {"earlier": Outcome(True, 7)}
    statuses = setting.check(
        cell("a", when={"changed": "earlier"}),
        cell("b", when={"exit_code": {"step": "earlier", "in": [0, 1]}}),
        outcomes=outcomes,
    )
    assert statuses == {"a": "would_change", "b": "skipped"}


def test_handlers_follow_their_notification(setting: Setting) -> None:
    handler = cell("h", handler="restart")
    assert setting.check(cell("a", notify=["restart"]), handler)["h"] == "would_change"
    setting.world.update(a="new")
    assert setting.check(cell("a", notify=["restart"]), handler)["h"] == "skipped"
    setting.pending.add("restart", "an earlier run", "a step")
    assert setting.check(cell("a", notify=["restart"]), handler)["h"] == "would_change"


def test_a_handler_of_a_step_that_perhaps_changes_is_known_after_apply(setting: Setting) -> None:
    statuses = setting.check(cell("a"), cell("b", needs=["a"], notify=["r"]), cell("h", handler="r"))
    assert statuses["h"] == "known_after_apply"


NAMES = st.sampled_from(["a", "b", "c"])


@st.composite
def plans(draw: st.DrawFn) -> list[Any]:
    steps: list[Any] = []
    for number in range(draw(st.integers(1, 6))):
        earlier = [made["id"] for made in steps]
        made = cell(f"s{number}", draw(st.sampled_from(["old", "new"])), of=draw(NAMES))
        if draw(st.booleans()):
            made["args"]["needs"] = [draw(NAMES)]
        if draw(st.booleans()):
            made["args"]["reflects"] = [draw(NAMES)]
        if earlier and draw(st.booleans()):
            condition: Any = {"changed": draw(st.sampled_from(earlier))}
            made["when"] = {"not": condition} if draw(st.booleans()) else condition
        if draw(st.booleans()):
            made["notify"] = ["handler"]
        steps.append(made)
    if draw(st.booleans()):
        steps.append(cell("h", handler="handler"))
    return steps


@given(plans(), st.dictionaries(NAMES, st.sampled_from(["old", "new"])))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_would_change_within_changed_within_would_change_and_known_after_apply(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], world: dict[str, Any]
) -> None:
    setting = Setting(tmp_path_factory.mktemp("check"), world)
    said = setting.check(*steps)
    if "failed" in said.values():
        return  # the worker would stop there
    done = setting.apply(*steps)
    if "failed" in done.values():
        return  # something needed was never brought, and the check said it was not sure
    would = {name for name, status in said.items() if status == "would_change"}
    perhaps = {name for name, status in said.items() if status == "known_after_apply"}
    changed = {name for name, status in done.items() if status == "changed"}
    assert would <= changed <= would | perhaps
