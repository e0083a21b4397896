"""An engine without systemd is looked at; what it needs is done by a signal, or left to somebody with words."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.host import Host
from fleet.agent.protocol import KNOWN_AFTER_APPLY, OK, WOULD_CHANGE
from fleet.agent.resources import load
from fleet.agent.resources.base import Provides, StepFailed, StepPending

from .fake import FakeEngine

DAEMON_JSON = "/etc/docker/daemon.json"
PID = 4711
TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """A host with an engine that answers and its process, which started some seconds after boot."""

    def __init__(self, host: Host, root: Path) -> None:
        self.host = host
        self.root = root
        self.resource = load("engine_process")
        self.write("etc/docker/daemon.json", "{}")

    def write(self, path: str, text: str) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def process(self, ticks: int, name: str = "dockerd") -> None:
        """The engine's process as /proc shows it, started at a tick of the kernel's."""
        self.write(f"proc/{PID}/comm", name + "\n")
        fields = ["S", *["0"] * 18, str(ticks), "0", "0"]
        self.write(f"proc/{PID}/stat", f"{PID} ({name}) {' '.join(fields)}\n")

    def now_in_ticks(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) * TICKS // 1_000_000_000

    def differences(self, **args: Any) -> list[dict[str, Any]]:
        wanted = {"reflects": [DAEMON_JSON], **args}
        return self.resource.diff(self.resource.read(self.host, wanted), wanted)

    def apply(self, report: Any, **args: Any) -> Any:
        wanted = {"reflects": [DAEMON_JSON], **args}
        return self.resource.apply(self.host, wanted, self.differences(**args), report)


@pytest.fixture
def machine(engine: FakeEngine, host: Host, root: Path) -> Machine:
    made = Machine(host, root)
    made.process(1)
    return made


def test_an_engine_younger_than_its_configuration_is_left_alone(machine: Machine) -> None:
    machine.process(machine.now_in_ticks() + 100)
    assert machine.differences() == []


def test_a_configuration_written_in_the_tick_of_the_start_is_not_newer(machine: Machine) -> None:
    place = machine.root / DAEMON_JSON.lstrip("/")
    written = max(place.stat().st_mtime_ns, place.stat().st_ctime_ns)
    boot = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    machine.process((written - boot) * TICKS // 1_000_000_000)
    assert machine.differences() == []


def test_a_restart_that_is_due_waits_for_somebody(machine: Machine, report: Any) -> None:
    found = machine.differences()
    assert found == [
        {"path": "restart", "before": f"started before {DAEMON_JSON} changed", "after": "restarted"}
    ]
    with pytest.raises(StepPending) as caught:
        machine.apply(report)
    assert f"(process {PID}) must be restarted, since {DAEMON_JSON} changed" in caught.value.what
    assert str(caught.value.remedy).startswith("stop dockerd and start it again")
    assert machine.differences() == found, "it is not forgotten by the next run"


def test_a_restart_by_somebody_is_enough(machine: Machine) -> None:
    assert machine.differences() != []
    machine.process(machine.now_in_ticks() + 100)
    assert machine.differences() == []


def test_a_restart_can_be_due_whatever_the_files_say(machine: Machine, report: Any) -> None:
    machine.process(machine.now_in_ticks() + 100)
    with pytest.raises(StepPending, match="what it reads when it starts changed"):
        machine.apply(report, restart=True)


def test_a_reload_is_one_signal(machine: Machine, report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda *args: sent.append(args))
    machine.apply(report, reload=True)
    assert sent == [(PID, signal.SIGHUP)]
    assert machine.differences(reload=True) == []
    machine.write("etc/docker/daemon.json", '{"debug": true}')
    assert [entry["path"] for entry in machine.differences(reload=True)] == ["reload"]


def test_a_signal_that_does_not_arrive_is_a_failure(
    machine: Machine, report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    with pytest.raises(StepFailed, match="cannot be told to reload: Operation not permitted"):
        machine.apply(report, reload=True)


def test_an_engine_that_does_not_answer_waits_for_somebody(host: Host, root: Path, report: Any) -> None:
    machine = Machine(host, root)
    (root / "proc").mkdir()
    assert machine.differences() == [{"path": "state", "before": "does not answer", "after": "started"}]
    with pytest.raises(StepPending, match="nothing here starts it"):
        machine.apply(report)


@pytest.mark.parametrize("stat", ["", "4711 (dockerd) S 0 0", f"4711 (dockerd) S {'0 ' * 30}"])
def test_a_start_that_cannot_be_told_asks_nobody_for_a_restart(machine: Machine, stat: str) -> None:
    machine.write(f"proc/{PID}/stat", stat)
    assert machine.differences() == []


def test_an_engine_seen_by_its_socket_only_is_not_called_stale(machine: Machine) -> None:
    machine.process(1, name="socat")
    assert machine.differences() == []


def test_what_a_check_pass_says_of_it(machine: Machine) -> None:
    found = [{"path": "state", "before": "does not answer", "after": "started"}]
    assert machine.resource.forecast({}, Provides()) == WOULD_CHANGE != OK
    assert machine.resource.outlook({}, found, Provides(packages=["docker.io"])) == KNOWN_AFTER_APPLY
    assert machine.resource.outlook({}, found, Provides()) is None
