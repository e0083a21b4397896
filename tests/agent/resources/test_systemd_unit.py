"""Unit files: written, loaded, enabled, started, restarted when they change, taken away in order."""

from __future__ import annotations

import pytest

from fleet.agent.resources.base import StepFailed
from fleet.agent.resources.systemd_unit import RESOURCE
from tests.agent.resources.fakes import FakeHost, Systemd, converge, differences

UNIT = {"name": "app", "content": "[Service]\nExecStart=/bin/app\n", "enabled": True, "started": True}
PATH = "/etc/systemd/system/app.service"


@pytest.fixture
def booted(host: FakeHost) -> FakeHost:
    Systemd(host)
    (host.folder / "etc/systemd/system").mkdir(parents=True)
    return host


def test_a_new_unit_is_written_loaded_enabled_and_started(booted: FakeHost) -> None:
    converge(booted, RESOURCE, UNIT)
    assert booted.text(PATH) == UNIT["content"]
    assert booted.argvs() == [
        "systemctl daemon-reload",
        "systemctl enable app.service",
        "systemctl start -- app.service",
    ]


def test_changed_contents_restart_it(booted: FakeHost) -> None:
    converge(booted, RESOURCE, UNIT)
    booted.commands.clear()
    converge(booted, RESOURCE, {**UNIT, "content": "[Service]\nExecStart=/bin/app --fast\n"})
    assert booted.argvs() == ["systemctl daemon-reload", "systemctl restart -- app.service"]


def test_a_file_written_but_not_loaded_is_loaded(booted: FakeHost) -> None:
    converge(booted, RESOURCE, UNIT)
    assert isinstance(booted.answer, Systemd)
    booted.answer.units["app.service"]["NeedDaemonReload"] = "yes"
    booted.invalidate()
    booted.commands.clear()
    converge(booted, RESOURCE, UNIT)
    assert booted.argvs() == ["systemctl daemon-reload"]


def test_it_is_taken_away_in_order(booted: FakeHost) -> None:
    converge(booted, RESOURCE, UNIT)
    booted.commands.clear()
    converge(booted, RESOURCE, {"name": "app", "state": "absent"})
    assert booted.argvs() == ["systemctl disable --now app.service", "systemctl daemon-reload"]
    assert not (booted.folder / PATH.lstrip("/")).exists()


def test_only_the_file_is_asked_for(booted: FakeHost) -> None:
    converge(booted, RESOURCE, {"name": "app", "content": "[Service]\n"})
    assert booted.argvs() == ["systemctl daemon-reload"]


def test_a_unit_without_contents_is_refused(booted: FakeHost) -> None:
    args = {"name": "app", "enabled": True}
    with pytest.raises(StepFailed, match="has no contents"):
        RESOURCE.apply(booted, args, differences(booted, RESOURCE, args), None)  # type: ignore[arg-type]
