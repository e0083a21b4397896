"""What the agent's unit file can name, and how often it can run."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.modules import load
from fleet.modules.arguments import converted
from fleet.modules.base import ArgumentProblem, Context
from tests.facts import healthy_facts

AGENT = load("agent")
UNFIT = ["/srv/my metrics", "/srv/%h", '/srv/"x"', "/srv/$HOME", "/srv/../etc", "/srv/.hidden", "/", "/a;b"]


def steps(**args: Any) -> list[Any]:
    wanted = converted(args, AGENT.arguments, "agent")
    return list(AGENT.steps(wanted, healthy_facts(), {}, Context(prefix="1.agent", task="t")))


@pytest.mark.parametrize("folder", UNFIT)
def test_a_directory_that_a_unit_file_would_read_otherwise_is_refused(folder: str) -> None:
    (problem,) = AGENT.check({"textfile_directory": folder}, False)
    assert folder in problem.message
    with pytest.raises(ArgumentProblem, match="textfile_directory must be"):
        steps(textfile_directory=folder)


def test_a_template_is_judged_once_it_is_rendered() -> None:
    assert AGENT.check({"textfile_directory": "{{ folder }}"}, False) == []


def test_an_interval_that_divides_no_day_is_refused_with_those_that_do() -> None:
    with pytest.raises(ArgumentProblem, match=r'interval must be one of 5m, .*12h, 1d, not "7m"'):
        steps(interval="7m")


def test_every_interval_makes_a_timer_of_its_own() -> None:
    timers = [steps(interval=each)[-1]["args"]["content"] for each in AGENT.arguments["interval"].choices]
    assert len(set(timers)) == len(timers)
    assert all(timer.count("OnCalendar=") == 1 and "Persistent=true" in timer for timer in timers)
