"""A session over real pipes, as the controller's end sees it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.channel import Channel, Closed
from fleet.agent.lease import Lease
from fleet.agent.protocol import LINE_LIMIT, LineBuffer, decode, plan_hash
from tests.agent.core.harness import BOOT_1, PYTHON, FakeHost, Session, plan, results, step

ROOT = Path(__file__).parents[3]


def test_hello_says_who_the_host_is(host: FakeHost) -> None:
    hello = host.session().hello
    assert hello["type"] == "hello"
    assert hello["protocol"] == 1
    assert hello["python_complete"] is True
    assert hello["missing_modules"] == []
    assert hello["uid"] == os.geteuid()
    assert hello["boot_id"] == BOOT_1
    assert hello["hostname"] == socket.gethostname()
    assert abs(hello["clock_unix"] - time.time()) < 60
    assert hello["lease"] is None
    assert hello["open_runs"] == []
    assert hello["systemd"] is False
    assert hello["simulated"] is False


def test_hello_names_the_lease_and_the_open_runs(host: FakeHost) -> None:
    host.play(plan(step("a"), last=False))
    hello = host.session().hello
    assert hello["lease"]["run"] == "run-1"
    assert hello["lease"]["operator"] == "me"
    assert hello["lease"]["live"] is False
    assert hello["open_runs"] == [{"run": "run-1", "segment": 0, "status": "done", "last_seq": 4}]


def test_finish_ends_the_hosts_part_of_the_run(host: FakeHost) -> None:
    host.play(plan(step("a"), last=False))
    session = host.session()
    assert session.request("finish", run="run-1") == {"released": True}
    assert session.request("finish", run="run-1") == {"released": False}
    assert host.session().hello["open_runs"] == []
    assert host.lease() is None


def test_finish_right_after_an_end_waits_for_the_worker_to_leave(host: FakeHost) -> None:
    session = host.session()
    session.request("start", plan=plan(step("a"), last=False), secrets={})
    session.records_to_end()
    assert session.request("finish", run="run-1") == {"released": True}


def test_finish_leaves_a_working_worker_alone(host: FakeHost) -> None:
    session = host.session()
    session.request("start", plan=plan(step("w", "wait")), secrets={})
    session.records_until(lambda record: record["kind"] == "output")
    assert session.request("finish", run="run-1") == {"released": False}
    assert session.request("unlock", run="run-1") == {"released": False}
    assert host.lease() is not None


def test_check_writes_nothing_and_scrubs_its_answer(host: FakeHost) -> None:
    session = host.session()
    host.set("a", "hunter2hunter2")
    wanted = plan(step("a", value="x"), step("b"))
    answer = session.request("check", plan=wanted, secrets={"s": "hunter2hunter2"})
    assert answer["hash"] == plan_hash(wanted)
    assert [result["status"] for result in answer["results"]] == ["would_change", "would_change"]
    assert answer["results"][0]["diff"] == [{"path": "a", "before": "********", "after": "x"}]
    assert not Path(host.paths.state).exists()
    assert not Path(host.paths.runtime).exists()


def test_a_real_agent_without_fakes_checks_a_file(host: FakeHost, tmp_path: Path) -> None:
    argv = (PYTHON, "-S", "-E", "-m", "fleet.agent", "session")
    session = Session({**host.environment(), "PWD": str(ROOT)}, argv)
    target = tmp_path / "motd"
    wanted = plan(step("f", "file", path=str(target), content="hello\n"))
    first = session.request("check", plan=wanted, secrets={})["results"][0]
    assert first["status"] == "would_change"
    target.write_text("hello\n")
    assert session.request("check", plan=wanted, secrets={})["results"][0]["status"] == "ok"
    assert session.request("bye") == {}
    assert session.process.wait(20) == 0
    session.close()


def test_the_connection_may_go_while_the_worker_goes_on(host: FakeHost) -> None:
    first = host.session()
    wanted = plan(step("w", "wait"), step("b"))
    started = first.request("start", plan=wanted, secrets={}, operator="me", controller="here")
    assert started == {"attempt": 1, "unit": None, "resumed": False}
    seen = first.records_until(lambda record: record["kind"] == "output")
    first.close()
    assert first.process.returncode == 0
    second = host.session()
    assert second.hello["lease"]["live"] is True
    assert second.hello["open_runs"][0]["status"] is None
    attached = second.request("attach", run="run-1", after_seq=seen[-1]["seq"])
    assert attached == {"live": True, "last_seq": seen[-1]["seq"]}
    host.set("go")
    rest = second.records_to_end()
    assert [record["seq"] for record in seen + rest] == [1, 2, 3, 4, 5, 6, 7]
    assert results(rest) == {"w": "changed", "b": "changed"}
    assert host.applied() == ["waited", "b"]


def test_starting_a_run_whose_worker_lives_joins_it(host: FakeHost) -> None:
    first, second = host.session(), host.session()
    wanted = plan(step("w", "wait"))
    first.request("start", plan=wanted, secrets={})
    first.records_until(lambda record: record["kind"] == "output")
    assert second.request("start", plan=wanted, secrets={}) == {"attempt": 1, "unit": None, "resumed": True}
    other = second.ask("start", plan=plan(step("x")), secrets={})
    assert "another plan" in other["error"]["message"]
    host.set("go")
    assert second.records_to_end()[-1]["status"] == "done"
    assert first.records_to_end()[-1]["status"] == "done"
    assert host.applied() == ["waited"]


def test_starting_what_was_done_tells_again_how_it_went(host: FakeHost) -> None:
    wanted = plan(step("a"))
    host.play(wanted)
    session = host.session()
    assert session.request("start", plan=wanted, secrets={}) == {"attempt": 1, "unit": None, "resumed": True}
    assert [record["kind"] for record in session.records_to_end()] == ["begin", "intent", "result", "end"]
    assert host.lease() is None
    assert host.applied() == ["a"]


def test_a_resumed_start_tells_what_lasts_of_earlier_attempts_but_no_earlier_end(host: FakeHost) -> None:
    wanted = plan(step("a"), step("b", fail=True))
    host.play(wanted)
    host.set("repaired")
    kinds = ["result", "begin", "intent", "result", "end"]
    session = host.session()
    session.request("start", plan=wanted, secrets={}, after_seq=0)
    records = session.records_to_end()
    assert [record["kind"] for record in records] == kinds
    assert [record["seq"] for record in records] == [3, 7, 8, 9, 10]
    again = host.session()
    again.request("start", plan=wanted, secrets={}, after_seq=8)
    assert [record["seq"] for record in again.records_to_end()] == [9, 10]


def test_the_journal_can_be_read_whole(host: FakeHost) -> None:
    wanted = plan(step("a"))
    host.play(wanted)
    answer = host.session().request("journal", run="run-1")
    assert [record["kind"] for record in answer["records"]] == ["begin", "intent", "result", "end"]
    assert answer["plan"] == wanted
    assert answer["live"] is False
    assert host.session().request("journal", run="nothing-here") == {
        "records": [],
        "plan": None,
        "live": False,
    }


def test_exec_streams_output_and_gives_the_exit_code(host: FakeHost) -> None:
    session = host.session()
    script = "cat; echo to stderr >&2; exit 3"
    answer = session.request("exec", shell=script, stdin="from stdin\n", deadline_s=20)
    assert answer == {"exit_code": 3, "signal": None, "timed_out": False}
    texts = dict.fromkeys(("stdout", "stderr"), "")
    for output in session.outputs:
        texts[output["stream"]] += output["text"]
    assert texts == {"stdout": "from stdin\n", "stderr": "to stderr\n"}
    assert session.request("exec", argv=["sh", "-c", "kill -9 $$"])["signal"] == signal.SIGKILL
    assert session.request("exec", argv=["sleep", "600"], deadline_s=0.1)["timed_out"] is True
    missing = session.ask("exec", argv=["/no/such/command"])
    assert missing["error"]["kind"] == "failed"


def test_exec_as_nobody(host: FakeHost) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    session = host.session()
    assert session.request("exec", argv=["id", "-un"], become_user="nobody")["exit_code"] == 0
    assert session.outputs[0]["text"] == "nobody\n"
    unknown = session.ask("exec", argv=["id"], become_user="no-such-user-here")
    assert "no user no-such-user-here" in unknown["error"]["message"]


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        ({"type": "request", "id": 1, "method": "dance"}, "bad_request", "no such method: dance"),
        ({"type": "request", "id": 1}, "bad_request", "method"),
        ({"type": "request", "id": 1, "method": "check", "params": []}, "bad_request", "params"),
        ({"type": "request", "id": 1, "method": "check", "params": {}}, "bad_request", "a plan is an object"),
        ({"type": "record", "id": 1}, "bad_request", "not a record"),
        (
            {"type": "request", "id": 1, "method": "attach", "params": {"run": "../x"}},
            "bad_request",
            "id of a run",
        ),
        ({"type": "request", "id": 1, "method": "query", "params": {"queries": 3}}, "bad_request", "queries"),
        ({"type": "request", "id": 1, "method": "exec", "params": {}}, "bad_request", "argv"),
    ],
)
def test_a_bad_request_gets_an_error_and_the_session_goes_on(
    host: FakeHost, message: dict[str, Any], kind: str, words: str
) -> None:
    session = host.session()
    session.send(message)
    answer = session.message()
    assert answer["id"] == 1
    assert answer["error"]["kind"] == kind
    assert words in answer["error"]["message"]
    assert "Traceback" not in str(answer)
    assert session.request("journal", run="x")["live"] is False


@pytest.mark.parametrize(
    "line", [b"garbage\n", b"[1]\n", b'{"id":1}\n', b"[" * 100_000 + b"\n", b"\xff\xfe\n"]
)
def test_what_is_not_the_protocol_is_refused_and_ends_the_session(host: FakeHost, line: bytes) -> None:
    session = host.session()
    session.send_raw(line)
    answer = session.message()
    assert answer["id"] is None
    assert answer["error"]["kind"] == "bad_request"
    assert session.process.wait(20) == 0


def test_a_line_without_an_end_is_refused_at_the_limit(host: FakeHost) -> None:
    session = host.session()
    try:
        for _ in range(LINE_LIMIT // (1 << 20) + 2):
            session.send_raw(b"x" * (1 << 20))
    except BrokenPipeError:
        pass  # it has hung up already
    assert f"more than {LINE_LIMIT} bytes" in session.message()["error"]["message"]


def test_a_bug_is_said_to_be_one_with_its_traceback(host: FakeHost) -> None:
    wrong = plan({"id": "a", "resource": "thing", "args": {}})
    error = host.session().ask("check", plan=wrong, secrets={})["error"]
    assert error["kind"] == "bug"
    assert "KeyError" in error["traceback"]


def test_nothing_a_library_prints_reaches_the_wire(host: FakeHost) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from fleet.agent import session, hello\n"
        "real = session.make_hello\n"
        "def noisy(*a, **k):\n"
        "    import os; print('noise'); os.system('echo noise'); return real(*a, **k)\n"
        "session.make_hello = noisy; session.main([], None)\n"
    )
    session = Session(host.environment(), (sys.executable, "-S", "-E", "-c", script))
    assert session.hello["type"] == "hello"
    assert "noise" in session.errors()
    session.close()


def test_silence_closes_the_channel_and_beats_keep_it_open() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(theirs.fileno(), theirs.fileno(), beat_s=0.01, silence_s=0.3, last_words_s=3600)
    lines = LineBuffer()
    for _ in range(5):
        assert decode(lines.feed(ours.recv(100))[0])["type"] == "beat"
        ours.sendall(b'{"type":"beat"}\n')
    assert not channel.gone()
    with pytest.raises(Closed):
        channel.receive(20)
    assert channel.gone()
    ours.close()
    theirs.close()


def test_a_session_whose_worker_dies_says_so_and_can_start_it_again(host: FakeHost) -> None:
    session = host.session()
    wanted = plan(step("w", "wait"))
    session.request("start", plan=wanted, secrets={})
    session.records_until(lambda record: record["kind"] == "output")
    held = host.lease()
    assert held is not None
    os.kill(held["pid"], signal.SIGKILL)
    end = session.records_to_end()[-1]
    assert end["status"] == "lost"
    assert end["seq"] == 3
    host.wait(lambda: not Lease(host.paths).worker_alive())
    host.set("go")
    answer = session.request("start", plan=wanted, secrets={})
    assert answer == {"attempt": 2, "unit": None, "resumed": True}
    assert session.records_to_end()[-1]["status"] == "done"
