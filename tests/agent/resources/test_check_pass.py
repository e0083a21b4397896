"""What a check says of these resources in a row is what applying them in a row then does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.agent import resources
from fleet.agent.check import CheckPass
from fleet.agent.paths import Paths
from fleet.agent.pending import Pending
from fleet.agent.protocol import KNOWN_AFTER_APPLY, OK, WOULD_CHANGE
from fleet.agent.resources.base import Provides, Resource, Silent
from fleet.agent.step_host import StepHost
from tests.agent.resources.fakes import FakeHost, Systemd

CONF = "/etc/app/app.conf"


class CheckHost(FakeHost, StepHost):
    """A folder that the check pass can go through."""


class Package(Resource):
    """A package that brings a unit nobody declared, and starts it."""

    kind = "package"

    def read(self, host: Any, args: dict[str, Any]) -> dict[str, Any]:
        return {"there": "app.service" in host.answer.units}

    def diff(self, state: dict[str, Any], args: dict[str, Any]) -> list[dict[str, Any]]:
        return [] if state["there"] else [{"path": "state", "before": "absent", "after": "present"}]

    def apply(self, host: Any, args: Any, differences: Any, report: Any) -> None:
        host.answer.units["app.service"] = Systemd._unit()

    def provides(self, args: dict[str, Any]) -> Provides:
        return Provides(packages=["app"])


@pytest.fixture
def host(tmp_path: Path) -> CheckHost:
    host = CheckHost(tmp_path)
    Systemd(host, docker_service={})
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    return host


def check(host: CheckHost, steps: list[dict[str, Any]]) -> list[str]:
    plan: Any = {"format": 1, "run": "r", "host": "h", "segment": 1, "last": True, "steps": steps}
    pending = Pending(Paths(host.state_dir, host.runtime_dir))
    results = CheckPass(plan, host, load=resources.load, pending=pending, outcomes={}).run()
    host.invalidate()
    return [result["status"] for result in results]


def apply(host: CheckHost, steps: list[dict[str, Any]]) -> list[bool]:
    changed = []
    for step in steps:
        resource, args = resources.load(step["resource"]), step["args"]
        found = resource.diff(resource.read(host, args), args)
        extras = resource.apply(host, args, found, Silent()) if found else None
        host.invalidate()
        changed.append(bool(found) and (extras or {}).get("changed", True))
    return changed


def steps(*wanted: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"id": str(n), "task": kind, "resource": kind, "args": args} for n, (kind, args) in enumerate(wanted)
    ]


ROWS = [
    (
        ("directory", {"path": "/etc/app/sub"}),
        ("directory", {"path": "/etc/app", "mode": "0755"}),
        ("file", {"path": CONF, "content": "a = 1\n"}),
        ("line", {"path": CONF, "line": "b = 2"}),
        ("service", {"name": "docker", "state": "started", "reflects": [CONF]}),
    ),
    (
        ("systemd_unit", {"name": "app", "content": "[Service]\nExecStart=/x\n"}),
        ("service", {"name": "app", "state": "started", "enabled": True}),
        ("command", {"shell": "x", "unless": "y", "changed_when": "always"}),
        ("command", {"shell": "x", "changed_when": "never"}),
    ),
    (
        ("package", {}),
        ("service", {"name": "app", "state": "started", "enabled": True}),
        ("reboot", {"only_if_required": True}),
    ),
    (
        ("file", {"path": "/etc/list", "content": "x"}),
        ("command", {"shell": "x", "creates": "/etc/list"}),
        ("link", {"path": "/etc/current", "target": "list"}),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][0])
def test_would_change_is_kept_and_nothing_else_changes(host: CheckHost, row: Any) -> None:
    resources.register("package", Package())
    try:
        plan = steps(*row)
        before = sorted(str(path) for path in host.folder.rglob("*"))
        said = check(host, plan)
        assert sorted(str(path) for path in host.folder.rglob("*")) == before
        done = apply(host, plan)
    finally:
        resources.unregister("package")
    assert len(said) == len(done) == len(plan)
    for number, status in enumerate(said):
        allowed = (WOULD_CHANGE, KNOWN_AFTER_APPLY) if done[number] else (OK, KNOWN_AFTER_APPLY)
        assert status in allowed, plan[number]
    assert WOULD_CHANGE in said


def test_a_command_that_only_looks_is_ok_in_a_check(host: CheckHost) -> None:
    assert check(host, steps(("command", {"shell": "x", "changed_when": "never"}))) == [OK]
