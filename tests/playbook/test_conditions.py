"""Which expressions a host can evaluate itself."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.playbook.conditions import agent_condition

STEPS = {"one": ["1.command.command"], "two": ["2.x.a", "2.x.b"], "nothing": []}
CODE = {"exit_code": {"step": "1.command.command", "in": [0]}}
CHANGED = {"changed": "1.command.command"}


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("one is changed", CHANGED),
        ("one.changed", CHANGED),
        ("one is not changed", {"not": CHANGED}),
        ("not one.changed", {"not": CHANGED}),
        ("two is changed", {"any": [{"changed": "2.x.a"}, {"changed": "2.x.b"}]}),
        ("nothing is changed", {"any": []}),
        ("one.rc == 0", CODE),
        ("one.rc != 0", {"not": CODE}),
        ("one.rc in [0, 2]", {"exit_code": {"step": "1.command.command", "in": [0, 2]}}),
        ("one.rc not in (0,)", {"not": CODE}),
        ("reboot_required", {"reboot_required": True}),
        (
            "one is changed and one.rc == 0 and reboot_required",
            {"all": [CHANGED, CODE, {"reboot_required": True}]},
        ),
        ("one is changed or one.rc == 0", {"any": [CHANGED, CODE]}),
    ],
)
def test_the_closed_set(text: str, condition: dict[str, Any]) -> None:
    assert agent_condition(text, STEPS) == condition


@pytest.mark.parametrize(
    "text",
    [
        "one is failed",
        "one.stdout == 'x'",
        "two.rc == 0",
        "one.rc > 0",
        "one.rc == '0'",
        "one.rc == true",
        "0 < one.rc < 3",
        "other is changed",
        "one is changed and size > 3",
        "one",
        "one.rc",
        "one['changed']",
    ],
)
def test_anything_else_is_left_to_the_controller(text: str) -> None:
    assert agent_condition(text, STEPS) is None
