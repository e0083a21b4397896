"""Every step of a plan is shown with words of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.core.secret import Secret
from fleet.playbook.compile import HostCompiler
from fleet.playbook.load import load_playbook
from tests.facts import healthy_facts

PROVISION = Path(__file__).parents[2] / "playbooks" / "provision.yaml"
BARE = healthy_facts({"engine.present": False, "engine.daemon_json.parsed": None, "packages.installed": {}})


def labels(playbook: Path, variables: dict[str, Any] | None = None) -> list[str]:
    compiler = HostCompiler(load_playbook(playbook).plays[0], "gpu01", variables or {}, "7f3a")
    found: list[str] = []
    while not compiler.done:
        plan = compiler.segment(BARE, {}, now_unix=BARE["clock"]["unix"]).plan
        found += [step["task"] for step in plan["steps"]]
    return found


def test_several_steps_of_a_task_say_what_each_is(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("x")
    variables = {
        "docker_engine_settings": {"debug": True},
        "registry": "r:5000",
        "registry_ca_file": str(tmp_path / "ca.crt"),
        "registry_username": "u",
        "registry_password": Secret("p", "registry password"),
        "image": "r:5000/pytorch:2",
    }
    assert labels(PROVISION, variables) == [
        "Docker Engine: packages ca-certificates, iptables",
        "Docker Engine: folder /etc/docker",
        "Docker Engine: daemon.json",
        "Docker Engine: packages docker.io and 2 more",
        "Docker Engine: service docker",
        "Folder for the registry's certificates",
        "Certificate authority of the registry",
        "The registry takes our credentials",
        "The pinned image",
        "The agent that keeps the report fresh: unit fleet-agent.service",
        "The agent that keeps the report fresh: its bundle",
        "The agent that keeps the report fresh: unit fleet-agent.timer",
    ]


@pytest.mark.parametrize(
    ("task", "shown"),
    [
        ("copy: {content: x, dest: /etc/motd}", "copy: /etc/motd"),
        ("file: {path: /srv, state: directory}", "file: /srv"),
        ("package: {name: [a, b, c]}", "package: a and 2 more"),
        ("service: {name: ssh, state: started}", "service: ssh"),
        ("command: uptime --pretty", "command: uptime"),
        ("shell: 'echo a |  wc'", "shell: echo a | wc"),
        ("reboot:", "reboot"),
        ("{command: 'a {{ item }}', loop: [1]}", "command (1)"),
        ("{name: Greet, copy: {content: x, dest: /etc/motd}}", "Greet"),
    ],
)
def test_a_task_without_a_name_is_told_by_its_thing(tmp_path: Path, task: str, shown: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"- hosts: all\n  tasks:\n    - {task}\n")
    assert labels(path) == [shown]
