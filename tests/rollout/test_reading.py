"""A strategy is read from inventory and command line, and refused with its place before anything moves."""

from __future__ import annotations

import json
from datetime import datetime, time, timezone
from pathlib import Path

import pytest

from fleet.core.errors import InputError
from fleet.inventory import load_inventory
from fleet.rollout.amounts import Amount
from fleet.rollout.documents import document_of, from_document
from fleet.rollout.members import Member
from fleet.rollout.reading import read_strategy
from fleet.rollout.strategy import OnFailure, Strategy
from fleet.rollout.window import Window

WHOLE = """\
all:
  vars:
    rollout:
      canary: 1
      batches: "10%,50%"
      max_unavailable: 20%
      failure_domain: rack
      max_unavailable_per_domain: 1
      max_failures: 2
      soak: 10m
      window: {start: "22:30", end: "02:30"}
      on_failure: rollback
  children:
    a: {vars: {rack: a}, hosts: {"gpu[01:05]": {}}}
    b: {vars: {rack: b}, hosts: {"gpu[06:10]": {maintenance_window: {start: "20:00", end: "23:00"}}}}
"""


def read(tmp_path: Path, text: str, **words: object) -> tuple[Strategy, list[Member]]:
    path = tmp_path / "site.yaml"
    path.write_text(text, encoding="utf-8")
    return read_strategy(list(load_inventory(path).hosts.values()), words)


def refused(tmp_path: Path, text: str, **words: object) -> list[str]:
    with pytest.raises(InputError) as error:
        read(tmp_path, text, **words)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in error.value.problems]


def with_rollout(*lines: str) -> str:
    body = "\n".join(f"      {line}" for line in lines)
    return f"all:\n  vars:\n    rack: a\n    rollout:\n{body}\n  hosts: {{gpu01: {{}}, gpu02: {{}}, gpu03: {{}}}}\n"


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    strategy, members = read(tmp_path, WHOLE)
    assert strategy == Strategy(
        canary=1,
        batches=(Amount(percent=10), Amount(percent=50)),
        max_unavailable=Amount(percent=20),
        failure_domain="rack",
        max_unavailable_per_domain=Amount(count=1),
        max_failures=Amount(count=2),
        soak_s=600.0,
        window=Window(time(22, 30), time(2, 30)),
        on_failure=OnFailure.ROLLBACK,
    )
    assert [one.domain for one in members] == ["a"] * 5 + ["b"] * 5
    assert members[9].window == Window(time(20, 0), time(23, 0))


def test_the_defaults_move_one_host_at_a_time_and_wait_at_the_first_failure(tmp_path: Path) -> None:
    strategy, _ = read(tmp_path, "all: {hosts: {gpu01: {}, gpu02: {}}}\n")
    assert (strategy.max_unavailable.of(2), strategy.max_failures.of(2)) == (1, 0)
    assert (strategy.on_failure, strategy.confirm) == (OnFailure.PAUSE, True)


def test_the_command_line_wins_key_by_key(tmp_path: Path) -> None:
    strategy, _ = read(tmp_path, WHOLE, max_unavailable="3", as_drained=True)
    assert (strategy.max_unavailable, strategy.as_drained) == (Amount(count=3), True)
    assert (strategy.batches, strategy.soak_s) == ((), 600.0)
    strategy, _ = read(tmp_path, with_rollout("as_drained: true"), batches="1,2")
    assert (len(strategy.batches), strategy.as_drained) == (2, False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("batches: ten", "batches must be a number of hosts or a share"),
        ("batches: 1,0,2", "batches must not hold an empty batch"),
        ("max_unavailable: 120%", "max_unavailable must not be above 100%"),
        ("max_unavailable: -1", "max_unavailable must be a number of hosts"),
        ("max_unavailable: true", "max_unavailable must be a number of hosts"),
        ("max_failures: [1]", "max_failures must be a number of hosts"),
        ("canary: 10%", "canary must be a number of hosts, not '10%'"),
        ("canary: 9", "canary: 9 hosts, but only 3 are to be upgraded"),
        ("soak: soon", "soak must be seconds"),
        ("window: 22:30", "window must be such as"),
        ('window: "22:30-22:30"', "window must not end when it starts"),
        ('window: {start: "22:30"}', "window must be such as"),
        ("on_failure: panic", "on_failure must be pause, rollback or stop"),
        ("no_rollback: 7", "no_rollback must be true or false"),
        ("unit: 1rack", "unit must be the name of an inventory variable"),
        ("unit: rak", "unit: no host has a variable rak that is a text or a number; did you mean rack?"),
        ("unit: rack", "max_unavailable: unit rack a moves 3 hosts at once, and only 1 may be out"),
        ("max_unavailabel: 1", "rollout: there is no max_unavailabel; did you mean max_unavailable?"),
        ("max_unavailable: 10%", "max_unavailable: 10% of 3 hosts is less than one host"),
        ("failure_domain: rack", "failure_domain needs max_unavailable_per_domain beside it"),
        ("max_unavailable_per_domain: 1", "max_unavailable_per_domain needs failure_domain beside it"),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(tmp_path: Path, line: str, message: str) -> None:
    problems = refused(tmp_path, with_rollout(line))
    column = 7 + line.index(":") + 2
    # A unit that is too large is wrong at the limit where one is written, else it is the whole run's.
    place = "" if line == "unit: rack" else f"site.yaml:5:{column}: "
    assert len(problems) == 1
    assert problems[0].startswith(place + message)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    problems = refused(tmp_path, with_rollout("soak: x", "on_failure: y", "frob: z"), canary="many")
    assert [problem.split(": ")[0] for problem in problems] == [
        "site.yaml:5:13",
        "site.yaml:6:19",
        "site.yaml:7:13",
        "canary must be a number of hosts, not 'many'",
    ]


def test_a_domain_that_a_host_does_not_have_is_refused_at_the_host(tmp_path: Path) -> None:
    text = WHOLE.replace("b: {vars: {rack: b}, hosts", "b: {hosts")
    problems = refused(tmp_path, text)
    hosts = "gpu06, gpu07, gpu08 and 2 more"
    said = f"failure_domain is rack, which {hosts} do not have: give it to every host"
    assert problems == [f"site.yaml:15:17: {said}"]


def test_hosts_that_differ_about_the_run_are_refused_with_both_places(tmp_path: Path) -> None:
    text = "all:\n  vars: {rollout: {canary: 1}}\n  hosts:\n    gpu01:\n    gpu02: {rollout: {canary: 2}}\n"
    (problem,) = refused(tmp_path, text)
    assert problem.startswith(
        "site.yaml:5:22: rollout is about the whole run, but gpu02 has another one than gpu01"
    )
    assert "site.yaml:2:19" in problem


def test_as_drained_and_batches_exclude_each_other(tmp_path: Path) -> None:
    assert "exclude each other" in refused(tmp_path, with_rollout("as_drained: true", "batches: 1,2"))[0]


def test_strategy_and_members_come_back_from_the_store_as_they_were(tmp_path: Path) -> None:
    strategy, members = read(tmp_path, WHOLE)
    document = json.loads(json.dumps(document_of(strategy, members)))
    assert from_document(document) == (strategy, members)


@pytest.mark.parametrize(
    ("text", "hour", "minute", "is_open", "opens"),
    [
        ("22:30-02:30", 23, 0, True, (1, 23, 0)),
        ("22:30-02:30", 2, 29, True, (1, 2, 29)),
        ("22:30-02:30", 2, 30, False, (1, 22, 30)),
        ("09:00-17:00", 8, 59, False, (1, 9, 0)),
        ("09:00-17:00", 17, 0, False, (2, 9, 0)),
    ],
)
def test_a_window_is_open_from_its_start_until_just_before_its_end(
    text: str, hour: int, minute: int, is_open: bool, opens: tuple[int, int, int]
) -> None:
    at = datetime(2026, 12, 1, hour, minute, tzinfo=timezone.utc)
    window = Window.read(text)
    assert window.is_open(at) is is_open
    assert window.opens(at) == datetime(2026, 12, *opens, tzinfo=timezone.utc)


def test_shares_are_rounded_down_without_losing_a_host_to_arithmetic() -> None:
    assert [Amount.read("29%").of(100), Amount.read("10%").of(64), Amount.read("3").of(2)] == [29, 6, 3]
    assert str(Amount.read("12.5%")) == "12.5%"
