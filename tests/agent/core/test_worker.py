"""The worker, as real processes: what is applied, how often, and what the journal says of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fleet.agent.lease import Lease
from fleet.agent.pending import Pending
from fleet.agent.protocol import canonical
from tests.agent.core.harness import BOOT_1, BOOT_2, FakeHost, plan, results, step


def test_applies_each_step_in_order_and_a_second_run_changes_nothing(host: FakeHost) -> None:
    wanted = plan(step("a"), step("b"), step("c"))
    records = host.play(wanted)
    assert host.applied() == ["a", "b", "c"]
    assert results(records) == {"a": "changed", "b": "changed", "c": "changed"}
    assert records[-1]["status"] == "done"
    assert records[-1]["counts"] == {"changed": 3}
    again = host.play(dict(wanted, run="run-2"))
    assert results(again) == {"a": "ok", "b": "ok", "c": "ok"}
    assert not [record for record in again if record["kind"] == "intent"]
    assert host.applied() == ["a", "b", "c"]


def test_the_intent_comes_before_the_apply_and_the_result_after(host: FakeHost) -> None:
    records = host.play(plan(step("a", say="hello\n")))
    assert [record["kind"] for record in records] == ["begin", "intent", "output", "result", "end"]
    assert [record["seq"] for record in records] == [1, 2, 3, 4, 5]
    assert records[1]["total"] == 1
    assert records[1]["task"] == "make a"
    assert records[2]["text"] == "hello\n"
    assert records[3]["diff"] == [{"path": "a", "before": None, "after": "wanted"}]


# The records of the plan below, uninterrupted: begin; intent and result of a and b; intent, notified and
# result of c; intent, handled and result of d; intent and result of e; end.
EDGES = [f"{moment}:{number}" for number in range(2, 15) for moment in ("before", "after")]


@pytest.mark.parametrize("crash", EDGES)
def test_killed_at_any_edge_of_the_journal_no_step_is_lost_or_applied_twice(
    host: FakeHost, crash: str
) -> None:
    wanted = plan(
        step("a"), step("b"), step("c", notify=["restart"]), step("d", handler="restart"), step("e")
    )
    session = host.session(FAKE_CRASH=crash)
    session.request("start", plan=wanted, secrets={})
    assert session.records_to_end()[-1]["status"] == ("done" if crash == "after:14" else "lost")
    host.wait(lambda: not Lease(host.paths).worker_alive())
    assert host.lease() is not None
    session.request("start", plan=wanted, secrets={})
    assert session.records_to_end()[-1]["status"] == "done"
    host.wait(lambda: not Lease(host.paths).worker_alive())
    assert host.applied() == ["a", "b", "c", "d", "e"]
    work = host.history().current
    assert work is not None
    statuses = {name: result["status"] for name, result in work.results.items()}
    assert statuses == dict.fromkeys("abcde", "changed")
    assert "restart" not in Pending(host.paths)
    assert host.lease() is None


def test_a_worker_killed_before_its_begin_is_an_error_and_can_be_started_again(host: FakeHost) -> None:
    session = host.session(FAKE_CRASH="before:1")
    response = session.ask("start", plan=plan(step("a")), secrets={})
    assert response["error"]["kind"] == "failed"
    assert "before it began" in response["error"]["message"]
    assert host.applied() == []
    assert host.lease() is None, "a run that has touched nothing holds nothing"
    assert host.session().hello["open_runs"] == []
    session.request("start", plan=plan(step("a")), secrets={})
    assert session.records_to_end()[-1]["status"] == "done"


@pytest.mark.parametrize(("moment", "applied"), [("before", ["a"]), ("after", ["a", "b"])])
def test_a_convergent_step_killed_in_its_apply_takes_effect_once(
    host: FakeHost, moment: str, applied: list[str]
) -> None:
    wanted = plan(step("a"), step("b", crash=moment, notify=["restart"]), step("c"))
    assert host.play(wanted)[-1]["status"] == "lost"
    assert host.applied() == applied
    assert "restart" in Pending(host.paths), "whatever happens now, the handler will run"
    assert results(host.play(wanted)) == {"a": "changed", "b": "changed", "c": "changed"}
    assert host.applied() == ["a", "b", "c"]


def test_a_command_outlives_its_killed_worker_and_is_not_run_twice_at_once(host: FakeHost) -> None:
    go, log = host.world / "go", host.world / "log"
    script = f"echo begin >> {log}; echo running; until [ -e {go} ]; do sleep 0.01; done; echo end >> {log}"
    wanted = plan(step("s", "shell", argv=["sh", "-c", script]))
    session = host.session()
    session.request("start", plan=wanted, secrets={})
    session.records_until(lambda record: record["kind"] == "output")
    held = host.lease()
    assert held is not None
    os.kill(held["pid"], signal.SIGKILL)
    assert session.records_to_end()[-1]["status"] == "lost"
    session.request("start", plan=wanted, secrets={})
    waiting = session.records_until(lambda record: record["kind"] == "progress")[-1]
    assert "left by a killed worker" in waiting["text"]
    assert host.get("log") == "begin\n"
    host.set("go")
    assert session.records_to_end()[-1]["status"] == "done"
    assert host.get("log") == "begin\nend\nbegin\nend\n"


def test_a_command_interrupted_in_its_apply_is_not_repeated(host: FakeHost) -> None:
    wanted = plan(step("a", "once", crash="after"), step("b"))
    assert host.play(wanted)[-1]["status"] == "lost"
    records = host.play(wanted)
    assert results(records)["a"] == "interrupted"
    assert records[-1]["status"] == "interrupted"
    assert host.applied() == ["a"]
    assert host.lease() is not None, "an operator must look before anything else happens here"
    assert host.play(wanted)[-1]["status"] == "interrupted", "and starting again does not help"
    assert host.applied() == ["a"]


def test_a_failed_step_ends_the_segment_and_is_tried_again_on_resume(host: FakeHost) -> None:
    wanted = plan(step("a"), step("b", fail=True), step("c"))
    records = host.play(wanted)
    assert results(records) == {"a": "changed", "b": "failed"}
    assert records[-1]["status"] == "failed"
    assert "cannot make b" in records[-1]["reason"]
    assert next(record for record in records if record.get("status") == "failed")["remedy"] == "repair it"
    assert host.lease() is None
    host.set("repaired")
    assert results(host.play(wanted)) == {"a": "changed", "b": "changed", "c": "changed"}
    assert host.applied() == ["a", "b", "c"]


def test_an_ignored_failure_lets_the_rest_go_on(host: FakeHost) -> None:
    records = host.play(plan(step("a", fail=True, ignore_errors=True), step("b")))
    assert results(records) == {"a": "failed", "b": "changed"}
    assert records[-1]["status"] == "done"
    assert records[-1]["counts"] == {"failed": 1, "changed": 1}


def test_a_change_that_does_not_last_is_a_failure(host: FakeHost) -> None:
    records = host.play(plan(step("a", refuse=True)))
    assert results(records) == {"a": "failed"}
    assert "still differs: a" in records[-1]["reason"]


def test_a_bug_in_a_resource_is_named_one_and_ends_the_segment_cleanly(host: FakeHost) -> None:
    records = host.play(plan(step("a", bug=True, ignore_errors=True), step("b")))
    assert results(records) == {"a": "failed"}
    result = next(record for record in records if record["kind"] == "result")
    assert result["reason"].startswith("bug in fleet: KeyError")
    assert any("Traceback" in record["text"] for record in records if record["kind"] == "output")
    assert records[-1]["status"] == "failed"


def test_an_unknown_kind_of_resource_fails_its_step(host: FakeHost) -> None:
    records = host.play(plan(step("a", "no_such_kind")))
    assert "no_such_kind" in records[-1]["reason"]


def test_conditions_see_what_came_before_also_in_an_earlier_segment(host: FakeHost) -> None:
    host.set("b", "wanted")
    records = host.play(plan(step("a"), step("b"), step("q", "once", exit_code=3), last=False))
    assert records[-1]["status"] == "done"
    assert host.lease() is not None
    second = plan(
        step("c", when={"changed": "a"}),
        step("d", when={"changed": "b"}),
        step("e", when={"exit_code": {"step": "q", "in": [3]}}),
        step("f", when={"not": {"any": [{"changed": "a"}, {"reboot_required": True}]}}),
        segment=1,
    )
    assert results(host.play(second)) == {"c": "changed", "d": "skipped", "e": "changed", "f": "skipped"}
    assert host.lease() is None


def test_a_notification_survives_a_failed_run_and_is_handled_by_the_next(host: FakeHost) -> None:
    first = plan(step("config", notify=["restart it"]), step("b", fail=True), step("h", handler="restart it"))
    assert host.play(first)[-1]["status"] == "failed"
    assert "restart it" in Pending(host.paths)
    second = plan(step("config"), step("h", handler="restart it", restart=True), run="run-2")
    assert results(host.play(second)) == {"config": "ok", "h": "changed"}
    assert "restart it" not in Pending(host.paths)
    third = dict(second, run="run-3")
    assert results(host.play(third)) == {"config": "ok", "h": "skipped"}


def test_a_handler_that_fails_stays_pending(host: FakeHost) -> None:
    wanted = plan(step("config", notify=["restart"]), step("h", handler="restart", fail=True))
    assert host.play(wanted)[-1]["status"] == "failed"
    assert "restart" in Pending(host.paths)


def test_a_step_that_failed_without_changing_anything_notifies_nobody(host: FakeHost) -> None:
    host.play(plan(step("config", fail=True, notify=["restart"])))
    assert "restart" not in Pending(host.paths)


def test_a_step_that_waits_for_leave_ends_its_segment_and_frees_the_host(host: FakeHost) -> None:
    command = "fleet provision lab.yaml --limit h --disrupt"
    waiting = step("b", leave=command, ignore_errors=True, notify=["restart"])
    wanted = plan(step("a"), waiting, step("c"))
    records = host.play(wanted)
    assert results(records) == {"a": "changed", "b": "pending"}
    said = records[-2]
    assert (said["reason"], said["remedy"]) == ("somebody uses b", command)
    assert records[-1]["status"] == "pending"
    assert records[-1]["counts"] == {"changed": 1, "pending": 1}
    assert host.lease() is None
    assert "restart" not in Pending(host.paths)


def test_with_leave_a_new_run_tries_the_pending_step_again(host: FakeHost) -> None:
    wanted = plan(step("a"), step("b", leave="say yes"), step("c"))
    assert host.play(wanted)[-1]["status"] == "pending"
    assert results(host.play(wanted)) == {"a": "changed", "b": "pending"}
    host.set("leave")
    again = host.play(dict(wanted, run="run-2"))
    assert results(again) == {"a": "ok", "b": "changed", "c": "changed"}
    assert host.applied() == ["a", "b", "c"]


def test_secrets_are_used_and_appear_nowhere_on_the_disk(host: FakeHost) -> None:
    secret = 'pa"ss wörd/1'
    host.set("secret", secret)
    wanted = plan(step("a", value={"$secret": "s"}, say={"$secret": "s"}), step("b", fail=True))
    records = host.play(wanted, secrets={"s": secret})
    assert host.get("a") == secret
    assert results(records)["a"] == "changed"
    kept = [
        path.read_bytes()
        for folder in (host.paths.state, host.paths.runtime)
        for base, _, names in os.walk(folder)
        for path in [Path(base, name) for name in names]
        if path.is_file()
    ]
    assert kept
    for spelling in (secret, canonical(secret)[1:-1]):
        assert not [data for data in kept if spelling.encode() in data]
    assert "********" in canonical(records)


def test_the_output_kept_is_capped_and_the_rest_counted(host: FakeHost) -> None:
    records = host.play(plan(step("a", say="x" * 100_000)))
    output = [record["text"] for record in records if record["kind"] == "output"]
    assert sum(map(len, output)) < 70_000
    assert output[-1] == f"({100_000 - 65536} more characters of output were not kept)\n"


def test_cancel_stops_at_the_next_step_edge_and_releases_the_lease(host: FakeHost) -> None:
    session = host.session()
    session.request("start", plan=plan(step("w", "wait"), step("b")), secrets={})
    session.records_until(lambda record: record["kind"] == "output")
    assert session.request("cancel", run="run-1") == {"sent": True}
    host.set("go")
    end = session.records_to_end()[-1]
    assert end["status"] == "cancelled"
    assert results(host.journal()) == {"w": "changed"}
    assert host.applied() == ["waited"]
    host.wait(lambda: not Lease(host.paths).worker_alive())
    assert host.lease() is None
    assert session.request("cancel", run="run-1") == {"sent": False}
    assert results(host.play(plan(step("w", "wait"), step("b")))) == {"w": "changed", "b": "changed"}


def test_a_step_that_listens_is_cancelled_itself(host: FakeHost) -> None:
    session = host.session()
    session.request("start", plan=plan(step("w", "wait", asks=True), step("b")), secrets={})
    session.records_until(lambda record: record["kind"] == "output")
    session.request("cancel", run="run-1")
    assert session.records_to_end()[-1]["status"] == "cancelled"
    assert results(host.journal()) == {"w": "cancelled"}


def test_a_deadline_ends_a_command_and_its_children(host: FakeHost) -> None:
    script = f"sleep 600 & echo $! > {host.world}/child; wait"
    records = host.play(plan(step("s", "shell", argv=["sh", "-c", script], deadline_s=0.5)))
    assert "stopped at its deadline" in records[-1]["reason"]
    child = int(host.get("child") or "0")
    host.wait(lambda: not _runs(child))


def test_a_deadline_ends_a_step_that_runs_no_command(host: FakeHost) -> None:
    records = host.play(plan(step("w", "wait", deadline_s=0.2)))
    assert "not done within its deadline of 0.2 s" in records[-1]["reason"]
    assert results(records) == {"w": "failed"}


def test_sigterm_leaves_the_step_at_its_intent_and_resume_goes_on(host: FakeHost) -> None:
    session = host.session()
    session.request("start", plan=plan(step("w", "wait"), step("b")), secrets={})
    session.records_until(lambda record: record["kind"] == "output")
    held = host.lease()
    assert held is not None
    os.kill(held["pid"], signal.SIGTERM)
    assert session.records_to_end()[-1]["status"] == "lost"
    assert [record["kind"] for record in host.journal()] == ["begin", "intent", "output"]
    assert host.lease() is not None
    host.set("go")
    assert results(host.play(plan(step("w", "wait"), step("b")))) == {"w": "changed", "b": "changed"}


def test_a_reboot_ends_the_segment_and_is_proven_by_another_boot_id(host: FakeHost) -> None:
    wanted = plan(step("a"), step("r", "reboot"), last=False)
    records = host.play(wanted)
    assert [record["kind"] for record in records][-2:] == ["reboot", "end"]
    assert records[-2]["boot_id"] == BOOT_1
    assert records[-1]["status"] == "reboot"
    assert host.lease() is not None
    assert host.get("reboots") == "asked\n"
    assert host.play(wanted)[-1]["status"] == "reboot", "the same boot id: it never went down"
    assert host.get("reboots") == "asked\nasked\n"
    host.set("boot_id", BOOT_2)
    assert results(host.play(wanted)) == {"a": "changed", "r": "changed"}
    assert host.get("reboots") == "asked\nasked\n"
    host.set("boot_id", "33333333-3333-3333-3333-333333333333")
    assert host.play(wanted)[-1]["status"] == "done", "a later reboot of somebody else's changes nothing"


def test_an_unreadable_boot_id_proves_nothing(host: FakeHost) -> None:
    wanted = plan(step("r", "reboot"), last=False)
    host.play(wanted)
    host.set("boot_id", "cat: boot_id: No such file")
    records = host.play(wanted)
    assert records[-1]["status"] == "failed"
    assert "cannot tell whether the host rebooted" in records[-1]["reason"]


def test_a_refused_reboot_is_a_failure(host: FakeHost) -> None:
    host.set("reboot_refused", "Failed to connect to bus")
    host.play(plan(step("r", "reboot"), last=False))
    assert host.journal()[-1]["status"] == "failed"
    assert host.journal()[-1]["reason"] == "Failed to connect to bus"


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
