"""Commands: output in files, deadlines and cancellation kept, package managers only ever interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.agent import process
from fleet.agent.process import SIGINT_LEADER, TAIL_BYTES, Result, run


def shell(script: str, **options: object) -> Result:
    options.setdefault("deadline_s", 30.0)
    return run(["/bin/sh", "-c", script], **options)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_exit_code_and_both_streams() -> None:
    result = shell("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr, result.signal) == (3, "out\n", "err\n", None)
    assert not result.ok


def test_a_signal_is_not_an_exit_code() -> None:
    result = shell("kill -9 $$")
    assert (result.exit_code, result.signal, result.ending()) == (None, 9, "killed by SIGKILL")


def test_nothing_of_the_caller_reaches_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_TEST_LEAK", "1")
    lines = set(shell("env", env={"MINE": "yes"}).stdout.splitlines())
    names = {line.split("=")[0] for line in lines}
    assert "MINE=yes" in lines
    assert f"PATH={process.PATH}" in lines
    assert names <= {
        "PATH",
        "LC_ALL",
        "LANG",
        "HOME",
        "USER",
        "LOGNAME",
        "PWD",
        "SHLVL",
        "_",
        "MINE",
        "OLDPWD",
    }


def test_standard_input_is_the_text_or_nothing() -> None:
    big = "x" * 300_000  # more than a pipe holds
    assert shell("wc -c", stdin=big).stdout.strip() == "300000"
    assert shell("wc -c").stdout.strip() == "0"


def test_it_has_a_session_of_its_own_and_no_files_of_ours(tmp_path: Path) -> None:
    with open(tmp_path / "ours", "w") as ours:
        os.set_inheritable(ours.fileno(), True)
        result = shell("ls -l /proc/self/fd; cut -d' ' -f6 /proc/self/stat; echo $$")
    assert str(tmp_path) not in result.stdout
    session, leader = result.stdout.split()[-2:]
    assert session == leader


def test_output_comes_as_whole_characters() -> None:
    pieces: list[tuple[str, str]] = []
    # the two bytes of é are written apart
    shell(
        r"printf '\303'; sleep 0.3; printf '\251\377'; echo e >&2",
        on_output=lambda t, s: pieces.append((s, t)),
    )
    assert "".join(text for stream, text in pieces if stream == "stdout") == "é\udcff"
    assert ("stderr", "e\n") in pieces


def test_only_the_end_of_a_long_output_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_PUNCH_BYTES", 1024 * 1024)
    seen = 0

    def count(text: str, stream: str) -> None:
        nonlocal seen
        seen += len(text)

    result = shell("head -c 5000000 /dev/zero | tr '\\0' a; echo end", on_output=count)
    assert len(result.stdout) == TAIL_BYTES
    assert result.stdout.endswith("aaaend\n")
    assert seen == 5_000_004


def test_a_script_may_write_to_dev_stderr() -> None:
    assert shell("echo one > /dev/stderr; echo two >&2").stderr.endswith("two\n")


def test_a_daemon_that_keeps_the_output_open_does_not_hold_us() -> None:
    result = shell("sleep 60 & echo $!")
    pid = int(result.stdout)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_at_the_deadline_the_whole_group_ends() -> None:
    result = shell("sleep 60 & echo $!; wait", deadline_s=0.3)
    assert result.timed_out
    assert result.ending() == "stopped at its deadline"
    assert not alive(int(result.stdout))


def test_what_ignores_term_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "TERM_GRACE_S", 0.3)
    result = shell("trap '' TERM; echo $$; while :; do sleep 0.1; done", deadline_s=0.2)
    assert (result.timed_out, result.signal) == (True, signal.SIGKILL)
    assert not alive(int(result.stdout))


def test_a_cancelled_command_gets_time_to_clean_up(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"trap 'echo cleaned; exit 0' TERM; touch {ready}; while :; do sleep 0.05; done"
    result = shell(script, cancelled=ready.exists)
    assert result.cancelled
    assert result.stdout == "cleaned\n"


def test_a_package_manager_is_only_interrupted_and_its_children_are_left_alone(tmp_path: Path) -> None:
    ready, child = tmp_path / "ready", tmp_path / "child"
    script = (
        f"trap 'echo int' INT; trap 'echo term' TERM; "
        f"sh -c 'trap \"echo hit >> {child}\" INT TERM; touch {ready}; sleep 0.5; echo done >> {child}'; "
        "echo finished; exit 7"
    )
    result = shell(script, cancelled=ready.exists, interrupt=SIGINT_LEADER)
    assert (result.exit_code, result.cancelled) == (7, True)
    assert result.stdout == "int\nfinished\n"
    assert child.read_text() == "done\n"


def test_a_package_manager_that_never_ends_is_reported_not_killed() -> None:
    result = shell(
        "trap '' INT; echo $$; sleep 60", deadline_s=0.2, interrupt=SIGINT_LEADER, sigint_grace_s=0.2
    )
    pid = int(result.stdout)
    assert (result.running_pid, result.exit_code, result.timed_out) == (pid, None, True)
    assert alive(pid)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_interrupts_work_below_a_parent_that_ignores_them() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        result = run(["sleep", "60"], deadline_s=0.2, interrupt=SIGINT_LEADER, sigint_grace_s=20.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.signal == signal.SIGINT


def test_named_output_files_are_for_root_alone(tmp_path: Path) -> None:
    shell("echo hi", output_path=str(tmp_path / "7"))
    assert (tmp_path / "7.stdout").read_text() == "hi\n"
    assert (tmp_path / "7.stdout").stat().st_mode & 0o777 == 0o600


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is bound to happen; a minute is far more than it can take."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_command_outlives_its_killed_worker_unharmed(tmp_path: Path) -> None:
    script = "touch ready; until [ -e go ]; do sleep 0.02; done; seq 100000; echo err >&2; echo $? > done"
    program = (
        "import sys; from fleet.agent.process import run; "
        "run(['sh', '-c', sys.argv[1]], deadline_s=60, cwd=sys.argv[2], output_path=sys.argv[2] + '/out')"
    )
    worker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            program,
            script,
            str(tmp_path),
        ]
    )
    until((tmp_path / "ready").exists)
    worker.kill()
    worker.wait()
    (tmp_path / "go").touch()
    until(lambda: (tmp_path / "done").exists() and (tmp_path / "done").read_text() == "0\n")
    assert (tmp_path / "out.stdout").read_text().endswith("99999\n100000\n")
    assert (tmp_path / "out.stderr").read_text() == "err\n"


def test_without_pidfd_it_works_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_pidfd_open", lambda pid: None)
    assert shell("echo a; exit 2").exit_code == 2
    assert shell("sleep 60", deadline_s=0.1).timed_out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_has_only_its_own_rights(tmp_path: Path) -> None:
    account = process.Account("someone", 64321, 64322, [64322, 64323], "/home/someone", "/bin/sh")
    result = shell(
        "id -u; id -G; echo $HOME; echo e > /dev/stderr", account=account, output_path=str(tmp_path / "o")
    )
    assert result.stdout.split() == ["64321", "64322", "64323", "/home/someone"]
    assert result.stderr == "e\n"


def test_the_last_lines_of_an_output_are_one_for_a_message() -> None:
    assert process.last_lines(["one", "two", "", "  three", " ", "four\n"]) == "two / three / four"
    assert process.last_lines(["one", "two"], 1) == "two"
    assert process.last_lines(["", " "]) == ""
