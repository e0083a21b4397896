"""The lease: one run per host, by name, whatever dies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleet.agent.lease import UNREADABLE, Lease, Locked, WorkerAlive
from fleet.agent.paths import Paths
from tests.agent.core.harness import FakeHost, plan, step


@pytest.fixture
def lease(tmp_path: Path) -> Lease:
    return Lease(Paths(str(tmp_path / "state"), str(tmp_path / "run")))


def record(run: str) -> dict[str, str]:
    return {"run": run, "since": "2026-01-01T00:00:00Z", "operator": "ann", "controller": "laptop"}


def test_another_run_is_refused_with_everything_one_needs_to_know(lease: Lease) -> None:
    assert lease.claim(record("run-1")) is False
    with pytest.raises(Locked) as caught:
        lease.claim(record("run-2"))
    assert "run run-1 holds this host since 2026-01-01T00:00:00Z (operator ann, controller laptop)" in str(
        caught.value
    )
    assert lease.claim(record("run-1")) is False, "the same run takes over"


def test_a_take_over_keeps_since(lease: Lease) -> None:
    lease.claim(record("run-1"))
    lease.claim(dict(record("run-1"), since="later", operator="bob"))
    held = lease.read()
    assert held is not None
    assert (held["since"], held["operator"]) == ("2026-01-01T00:00:00Z", "bob")


def test_only_the_run_that_holds_it_can_release_it(lease: Lease) -> None:
    assert lease.release("run-1") is False
    lease.claim(record("run-1"))
    assert lease.release("run-2") is False
    assert lease.release("run-1") is True
    assert lease.read() is None


def test_a_live_worker_keeps_it(lease: Lease) -> None:
    lease.claim(record("run-1"))
    lock = lease.hold("run-1", os.getpid(), "boot")
    assert lease.worker_alive()
    assert lease.claim(record("run-1")) is True
    assert lease.release("run-1") is False
    with pytest.raises(WorkerAlive):
        lease.hold("run-1", os.getpid(), "boot")
    os.close(lock)
    assert not lease.worker_alive()
    assert lease.release("run-1") is True


def test_a_worker_cannot_hold_what_is_not_its_runs(lease: Lease) -> None:
    lease.claim(record("run-1"))
    with pytest.raises(Locked):
        lease.hold("run-2", 1, "boot")


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b'{"run": 5}'])
def test_a_lease_that_makes_no_sense_still_locks_and_can_be_cleared_by_name(
    lease: Lease, tmp_path: Path, raw: bytes
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "lease.json").write_bytes(raw)
    with pytest.raises(Locked):
        lease.claim(record("run-1"))
    assert lease.release(UNREADABLE) is True
    assert lease.claim(record("run-1")) is False


def test_reading_writes_nothing(lease: Lease, tmp_path: Path) -> None:
    assert lease.read() is None
    assert not lease.worker_alive()
    assert lease.release("run-1") is False
    assert list(tmp_path.iterdir()) == []


def test_of_two_runs_started_at_once_one_is_refused(host: FakeHost) -> None:
    first, second = host.session(), host.session()
    for session, run in ((first, "run-1"), (second, "run-2")):
        wanted = plan(step("w", "wait"), run=run)
        params = {"plan": wanted, "secrets": {}, "operator": run, "controller": "c"}
        session.send({"type": "request", "id": 99, "method": "start", "params": params})
    answers = []
    for session in (first, second):
        message = session.message()
        while message["type"] != "response":
            message = session.message()
        answers.append(message)
    refused = [answer["error"] for answer in answers if "error" in answer]
    assert len(refused) == 1
    assert refused[0]["kind"] == "locked"
    held = host.lease()
    assert held is not None
    assert refused[0]["run"] == refused[0]["operator"] == held["run"]
    assert "fleet unlock" in refused[0]["remedy"]


def test_a_dead_worker_of_another_run_still_locks_until_it_is_unlocked(host: FakeHost) -> None:
    host.play(plan(step("a"), step("b", "once", crash="after")))
    session = host.session()
    other = plan(step("z"), run="run-2")
    assert session.ask("start", plan=other, secrets={})["error"]["kind"] == "locked"
    assert session.request("unlock", run="run-2") == {"released": False}
    assert session.request("unlock", run="run-1") == {"released": True}
    session.request("start", plan=other, secrets={})
    assert session.records_to_end()[-1]["status"] == "done"
