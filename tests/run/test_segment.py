"""Following a worker's journal through lost connections, reboots, cancels and a killed worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.agent import protocol
from fleet.core.connection import ConnectionSettings, Endpoint
from fleet.core.errors import (
    AuthenticationFailed,
    ConnectFailed,
    ConnectionLost,
    HostFailed,
    HostKeyMismatch,
    HostUnreachable,
    Interrupted,
)
from fleet.run.control import Control
from fleet.run.link import Link
from fleet.run.segment import SegmentPlayer, Work, finished_segment

PLAN = {"format": 1, "run": "r1", "host": "h", "segment": 0, "last": True, "steps": []}
WORK = Work(PLAN, {}, "anna", "laptop")
SETTINGS = ConnectionSettings("h", Endpoint("192.0.2.1", known_hosts=(Path("/nowhere"),)))


class PlayedTime(Control):
    """A control whose clock moves only by waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def wait(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> float:
        return self.seconds


class ScriptedAgent:
    """Plays messages; an exception in the script is raised where it stands."""

    def __init__(self, script: list[Any], boot_id: str = "b1", control: PlayedTime | None = None) -> None:
        self.hello: Mapping[str, Any] = {"boot_id": boot_id}
        self.script = deque(script)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.control = control
        self.alive = True

    def request(self, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> Any:
        self.asked.append((method, params or {}))
        return {"live": True, "last_seq": 0, "sent": True}

    def pump(self, seconds: float) -> list[Mapping[str, Any]]:
        if self.control is not None:
            self.control.seconds += seconds
        if not self.script:
            return []
        item = self.script.popleft()
        if isinstance(item, BaseException):
            self.alive = False
            raise item
        return [item]

    def close(self) -> None:
        pass


def record(seq: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "record": {"seq": seq, "kind": kind, "segment": 0, **fields}}


def result(seq: int, step: str, status: str) -> dict[str, Any]:
    return record(seq, "result", step=step, status=status)


def player(agents: list[Any], control: PlayedTime | None = None) -> tuple[SegmentPlayer, list[str]]:
    control = control or PlayedTime()
    queue = deque(agents)
    published: list[str] = []

    def connect(settings: ConnectionSettings) -> Any:
        item = queue.popleft() if len(queue) > 1 else queue[0]
        if isinstance(item, BaseException):
            raise item
        return item

    link = Link(SETTINGS, connect, control)
    return SegmentPlayer("h", link, lambda kind, **data: published.append(kind), control), published


def test_a_lost_connection_is_attached_again_from_the_last_record_seen() -> None:
    first = ScriptedAgent([result(3, "a", "changed"), ConnectionLost("silent")])
    second = ScriptedAgent([result(3, "a", "changed"), result(5, "b", "ok"), record(6, "end", status="done")])
    one, published = player([first, ConnectFailed("refused"), second])
    outcome = one.apply(WORK)
    assert outcome.status == protocol.SEGMENT_DONE
    assert list(outcome.results) == ["a", "b"]
    assert outcome.changed == 1
    assert second.asked[0] == ("attach", {"run": "r1", "after_seq": 3})
    assert published == ["step_result", "host_reconnecting", "step_result"]


def test_a_killed_worker_fails_the_host_with_the_command_that_goes_on() -> None:
    one, _ = player(
        [ScriptedAgent([record(2, "intent", step="a"), {"type": "idle", "run": "r1", "last_seq": 2}])]
    )
    with pytest.raises(HostFailed, match="fleet resume r1"):
        one.apply(WORK)
    assert one.worker_died


def test_a_reboot_is_over_only_with_another_valid_boot_id() -> None:
    booting = AuthenticationFailed("System is booting up. Unprivileged users are not permitted to log in yet")
    before = ScriptedAgent(
        [
            record(2, "reboot", step="r", boot_id="b1", deadline_s=600),
            record(3, "end", status="reboot"),
            {"type": "idle", "run": "r1", "last_seq": 3},
            ConnectionLost("gone"),
        ]
    )
    same_boot, unreadable = ScriptedAgent([], "b1"), ScriptedAgent([], "")
    after = ScriptedAgent([result(5, "r", "changed"), record(6, "end", status="done")], "b2")
    one, published = player([before, same_boot, ConnectFailed("down"), booting, unreadable, after])
    outcome = one.apply(WORK)
    assert outcome.status == protocol.SEGMENT_DONE
    assert outcome.results["r"]["status"] == "changed"
    assert "host_rebooting" in published
    assert after.asked[0][0] == "start"
    assert after.asked[0][1]["after_seq"] == 3


def test_a_reboot_that_is_read_about_only_afterwards_is_not_waited_for() -> None:
    before = ScriptedAgent([record(1, "begin"), ConnectionLost("cut by the reboot")])
    after = ScriptedAgent(
        [
            record(2, "reboot", step="r", boot_id="b1", deadline_s=600),
            record(3, "end", status="reboot"),
            result(5, "r", "changed"),
            record(6, "end", status="done"),
        ],
        "b2",
    )
    one, _ = player([before, after])
    assert one.apply(WORK).status == protocol.SEGMENT_DONE
    assert [method for method, _ in after.asked] == ["attach", "start"]


def test_a_reboot_that_never_comes_ends_at_its_deadline() -> None:
    control = PlayedTime()
    before = ScriptedAgent(
        [record(2, "reboot", step="r", boot_id="b1", deadline_s=30), record(3, "end", status="reboot")],
        control=control,
    )
    one, _ = player([before, ScriptedAgent([], "b1")], control)
    with pytest.raises(HostFailed, match="still the same boot"):
        one.apply(WORK)
    assert control.seconds < 90


def test_a_host_that_refuses_to_reboot_is_a_failed_step_not_a_timeout() -> None:
    agent = ScriptedAgent(
        [
            record(2, "reboot", step="r", boot_id="b1", deadline_s=600),
            record(3, "end", status="reboot"),
            result(4, "r", "failed"),
            record(5, "end", status="failed", reason="reboot is inhibited"),
        ]
    )
    one, _ = player([agent])
    outcome = one.apply(WORK)
    assert (outcome.status, outcome.reason) == ("failed", "reboot is inhibited")


def test_the_first_interrupt_is_sent_to_the_worker_once() -> None:
    control = PlayedTime()
    agent = ScriptedAgent([record(2, "progress", step="a", text="x"), record(3, "end", status="cancelled")])
    one, _ = player([agent], control)
    control.interrupt()
    assert one.apply(WORK).status == protocol.SEGMENT_CANCELLED
    assert [method for method, _ in agent.asked] == ["start", "cancel"]


def test_the_second_interrupt_leaves_the_host_alone() -> None:
    control = PlayedTime()
    control.interrupt()
    control.interrupt()
    agent = ScriptedAgent([])
    one, _ = player([agent], control)
    with pytest.raises(Interrupted):
        one.apply(WORK)
    assert [method for method, _ in agent.asked] == ["start"]


def test_a_host_that_never_comes_back_is_unreachable_at_the_deadline() -> None:
    control = PlayedTime()
    agents = [ScriptedAgent([ConnectionLost("silent")]), ConnectFailed("no answer")]
    one, _ = player(agents, control)
    with pytest.raises(HostUnreachable, match="no answer"):
        one.apply(WORK)
    assert control.seconds <= Link.RECONNECT_DEADLINE_S + 20


def test_another_host_key_after_a_lost_connection_is_not_waited_away() -> None:
    one, _ = player([ScriptedAgent([ConnectionLost("silent")]), HostKeyMismatch("not the one on file")])
    with pytest.raises(HostKeyMismatch):
        one.apply(WORK)


def test_only_a_segment_with_a_done_end_is_finished() -> None:
    step = {"seq": 1, "kind": "result", "step": "a", "status": "changed"}
    assert finished_segment([step]) is None
    assert finished_segment([step, {"seq": 2, "kind": "end", "status": "failed"}]) is None
    done = finished_segment([step, {"seq": 2, "kind": "end", "status": "done"}])
    assert done is not None
    assert done.changed == 1
