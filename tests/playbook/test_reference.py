"""The published schemas and the module reference say what the code does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from fleet.core.data import data_dir
from fleet.playbook.compile import HostCompiler
from fleet.playbook.load import load_playbook
from fleet.playbook.reference import module_reference, playbook_schema
from tests.facts import healthy_facts

ROOT = Path(__file__).parents[2]
PLAYBOOKS = [*sorted(data_dir("playbooks").glob("*.yaml")), ROOT / "benchmarks" / "noop.yaml"]
FACTS = healthy_facts()
START, END = "<!-- modules -->\n", "<!-- end of modules -->\n"
UPDATE = bool(os.environ.get("FLEET_UPDATE_GOLDEN"))


def schema(name: str) -> Any:
    return json.loads((data_dir("schemas") / f"{name}.schema.json").read_text())


def test_the_playbook_schema_is_that_of_the_modules() -> None:
    path = data_dir("schemas") / "playbook.schema.json"
    text = json.dumps(playbook_schema(), indent=2, ensure_ascii=False) + "\n"
    if UPDATE:
        path.write_text(text)
    assert path.read_text() == text


def test_the_documentation_lists_every_module() -> None:
    path = ROOT / "docs" / "playbooks.md"
    before, start, rest = path.read_text().partition(START)
    _, end, after = rest.partition(END)
    text = before + start + "\n" + module_reference() + "\n" + end + after
    if UPDATE:
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_shipped_playbooks_are_valid_by_the_schema(path: Path) -> None:
    jsonschema.Draft202012Validator(schema("playbook")).validate(yaml.safe_load(path.read_text()))


def test_the_schema_refuses_unknown_words() -> None:
    validator = jsonschema.Draft202012Validator(schema("playbook"))
    assert not validator.is_valid([{"hosts": "all", "tasks": [{"copy": {"dst": "/x"}}]}])
    assert not validator.is_valid([{"hosts": "all", "taks": []}])


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_plans_are_valid_by_the_schema(path: Path) -> None:
    for play in load_playbook(path).plays:
        compiler = HostCompiler(play, "gpu01", {}, "0123456789ab")
        plan = compiler.segment(FACTS, {}).plan
        jsonschema.Draft202012Validator(schema("plan")).validate(plan)


def test_a_plan_with_every_field_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "- hosts: all\n  tasks:\n"
        "    - {command: a, register: r, ignore_errors: true, notify: h, become_user: dev}\n"
        "    - {command: b, when: [r is not changed, 'r.rc == 0 or reboot_required']}\n"
        "    - reboot:\n"
        "  handlers:\n    - {name: h, service: {name: ssh, state: restarted}}\n"
    )
    plan = HostCompiler(load_playbook(path).plays[0], "gpu01", {}, "0123456789ab").segment(FACTS, {}).plan
    validator = jsonschema.Draft202012Validator(schema("plan"))
    validator.validate(plan)
    assert not validator.is_valid({**plan, "steps": [{**plan["steps"][0], "wen": {}}]})
