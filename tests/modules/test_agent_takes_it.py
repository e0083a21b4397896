"""What modules make is what the agent takes: plans, resources, conditions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.agent import resources
from fleet.agent.plans import check_plan
from fleet.agent.resources.base import Provides
from fleet.playbook.compile import HostCompiler
from fleet.playbook.load import load_playbook
from tests.facts import healthy_facts

HERE = Path(__file__).parent
FACTS = healthy_facts()


def referenced(value: Any) -> Any:
    """Secrets of a golden file as the references that travel."""
    if isinstance(value, dict):
        if set(value) == {"$given_secret"}:
            return {"$secret": "x"}
        return {key: referenced(item) for key, item in value.items()}
    return [referenced(item) for item in value] if isinstance(value, list) else value


def golden_steps() -> list[Any]:
    found = []
    for path in sorted(HERE.glob("*/*.json")):
        for step in json.loads(path.read_text()).get("expect", {}).get("steps", ()):
            name = f"{path.parent.name}/{path.stem}:{step['id']}"
            found.append(pytest.param(referenced(step), id=name))
    return found


@pytest.mark.parametrize("step", golden_steps())
def test_the_agent_has_the_resource_and_can_reason_about_it(step: dict[str, Any]) -> None:
    resource = resources.load(step["resource"])
    assert resource.kind == step["resource"]
    resource.requires(step["args"])
    assert resource.forecast(step["args"], resource.provides(step["args"])) in (
        "ok",
        "would_change",
        "known_after_apply",
    )
    assert isinstance(resource.provides(step["args"]), Provides)


def test_the_agent_takes_plans_with_everything_in_them(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "- hosts: all\n  tasks:\n"
        "    - {command: a, register: r, ignore_errors: true, notify: h, become_user: dev, timeout: 5}\n"
        "    - {command: 'b {{ item }}', loop: [1, 2], register: s}\n"
        "    - {command: c, when: [r is not changed, 's.changed or r.rc == 0 or reboot_required']}\n"
        "    - reboot:\n"
        "  handlers:\n    - {name: h, service: {name: ssh, state: restarted}}\n"
    )
    compiler = HostCompiler(load_playbook(path).plays[0], "gpu01", {}, "0123456789ab")
    plan = compiler.segment(FACTS, {}).plan
    assert check_plan(json.loads(json.dumps(plan))) == plan
