"""Conditions: three answers, and a clear refusal of what is not one."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.conditions import BadCondition, Outcome, evaluate, steps_named
from fleet.agent.plans import BadPlan, check_plan
from tests.agent.core.harness import plan, step

OUTCOMES = {
    "changed": Outcome(True, 0),
    "same": Outcome(False),
    "unknown": Outcome(None, exit_code_known=False),
    "exit 3": Outcome(True, 3),
}
TRUE, FALSE, UNKNOWN = {"changed": "changed"}, {"changed": "same"}, {"changed": "unknown"}


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        (TRUE, True),
        (FALSE, False),
        (UNKNOWN, None),
        ({"exit_code": {"step": "exit 3", "in": [0, 3]}}, True),
        ({"exit_code": {"step": "exit 3", "in": [0]}}, False),
        ({"exit_code": {"step": "same", "in": [0]}}, False),
        ({"exit_code": {"step": "unknown", "in": [0]}}, None),
        ({"reboot_required": True}, True),
        ({"reboot_required": False}, False),
        ({"not": TRUE}, False),
        ({"not": UNKNOWN}, None),
        ({"all": []}, True),
        ({"any": []}, False),
        ({"all": [TRUE, UNKNOWN]}, None),
        ({"all": [FALSE, UNKNOWN]}, False),
        ({"any": [FALSE, UNKNOWN]}, None),
        ({"any": [UNKNOWN, TRUE]}, True),
        ({"any": [{"not": FALSE}, FALSE]}, True),
    ],
)
def test_answers(condition: Any, answer: bool | None) -> None:
    assert evaluate(condition, OUTCOMES, lambda: True) is answer


@pytest.mark.parametrize(
    "condition",
    [
        None,
        [],
        {},
        {"changed": 1},
        {"and": []},
        {"all": {}},
        {"not": []},
        {"changed": "a", "not": {}},
        {"any": [3]},
    ],
)
def test_what_is_not_a_condition_is_refused(condition: Any) -> None:
    with pytest.raises(BadCondition):
        steps_named(condition)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "plan format 2 is not known"),
        ({"run": "../../etc"}, "not the id of a run"),
        ({"run": ".."}, "not the id of a run"),
        ({"segment": True}, "segment"),
        ({"steps": {}}, "steps"),
        ({"steps": [5]}, "a step is an object"),
        ({"steps": [{"id": "a", "resource": "file"}]}, "step 'a' has no args"),
        ({"steps": [step("a"), step("a")]}, "two steps"),
        ({"steps": [step("a", when={"changed": "b"}), step("b")]}, "step 'a' depends on b"),
        ({"steps": [step("a", deadline_s=0)]}, "deadline_s"),
        ({"steps": [step("a", notify=[1])]}, "notify"),
        ({"steps": [step("a", handler=["x"])]}, "handler"),
    ],
)
def test_a_plan_that_is_none_is_refused_with_the_reason(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadPlan, match=message):
        check_plan({**plan(step("a")), **change})


def test_a_condition_may_ask_about_an_earlier_segment() -> None:
    wanted = plan(step("a", when={"changed": "earlier"}))
    with pytest.raises(BadPlan):
        check_plan(wanted)
    assert check_plan(wanted, {"earlier"}) == wanted
