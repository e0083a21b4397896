"""Bad input that only a host's facts bring to light: exit code 2 promises that nothing was touched."""

from __future__ import annotations

from fleet.core.errors import ExitCode, HostUnreachable, InputError
from fleet.run.engine import RunResult
from fleet.run.outcome import HostOutcome


def outcome(host: str, *, touched: bool = False, error: bool = False) -> HostOutcome:
    made = HostOutcome(host, touched=touched)
    if error:
        made.fail(InputError("public_internet is false here"))
    return made


def exit_code(*outcomes: HostOutcome) -> ExitCode:
    return RunResult("7f3a", {one.host: one for one in outcomes}).exit_code


def test_where_no_host_was_touched_it_is_bad_input() -> None:
    assert exit_code(outcome("a", error=True)) == ExitCode.BAD_INPUT
    assert exit_code(outcome("a", error=True), outcome("b")) == ExitCode.BAD_INPUT


def test_where_a_host_was_touched_the_other_one_failed() -> None:
    assert exit_code(outcome("a", error=True), outcome("b", touched=True)) == ExitCode.FAILED


def test_other_ends_are_no_bad_input() -> None:
    lost = HostOutcome("a")
    lost.fail(HostUnreachable("no answer"))
    assert exit_code(lost) == ExitCode.UNREACHABLE
