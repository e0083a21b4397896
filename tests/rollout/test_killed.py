"""Killed at every state of every host in every way, each host is upgraded exactly once.

Three cuts: before a decision is kept; after it is kept and before it is acted on; after a host has acted and before
its result was taken. The rollout is the production class, the hosts are the witness.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleet.rollout.members import Member
from fleet.rollout.record import Outcome, Phase
from fleet.rollout.states import MEANINGS, State
from fleet.rollout.strategy import OnFailure
from tests.rollout.world import NEW, OLD, Bench, Cut, members, strategy

HOSTS = ("a1", "a2", "b1")
FLEET = members("a1@r1", "a2@r1", "b1@r2")
UNIT = members("a1@r1/u", "a2@r1/u", "b1@r2")
WORK = [state for state in State if MEANINGS[state].work]
UPGRADE = [state for state in WORK if "rollback" not in state.value and state is not State.RETURNING]
ROLLBACK = [state for state in WORK if "rollback" in state.value]


def bench_of(fleet: Sequence[Member], failing: str | None = None, returning: str | None = None) -> Bench:
    said = strategy(max_unavailable=2, max_failures=3, on_failure=OnFailure.ROLLBACK)
    bench = Bench(fleet, said)
    if failing:
        bench.will(failing, State.VERIFYING, Outcome.FAILED, "GPU missing")
    if returning:
        bench.will(returning, State.DRAINING, Outcome.SKIPPED, "a job until 18:00")
    return bench


def play_with_cut(bench: Bench, host: str, state: State, cut: str) -> int:
    """Play to the end, the controller killed at each coming of ``host`` to ``state``. Returns how often it was."""
    killed = 0
    while True:
        try:
            actions = bench.rollout.next()
            if not actions:
                return killed
            for action in actions:
                here = (action.host, action.state) == (host, state) and killed == 0
                if here and cut == "kept, not acted on":
                    raise Cut
                result = bench.answer(action)
                if here and cut == "acted on, result not taken":
                    raise Cut
                if here and cut == "result not kept":
                    bench.store.cut_before = bench.store.commits + 1
                if here and cut == "result kept, nothing after":
                    bench.store.cut_after = bench.store.commits + 1
                bench.rollout.take([result])
        except Cut:
            killed += 1
            bench.reload()


CUTS = ["kept, not acted on", "acted on, result not taken", "result not kept", "result kept, nothing after"]


@pytest.mark.parametrize("fleet", [FLEET, UNIT], ids=["alone", "in a unit"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("state", UPGRADE, ids=[state.value for state in UPGRADE])
@pytest.mark.parametrize("host", HOSTS)
def test_each_host_is_upgraded_exactly_once(host: str, state: State, cut: str, fleet: list[Member]) -> None:
    bench = bench_of(fleet)
    assert play_with_cut(bench, host, state, cut) == 1
    assert bench.rollout.control.phase is Phase.ENDED
    assert bench.hosts.transactions == {name: [NEW] for name in HOSTS}
    assert bench.hosts.drained == set()
    assert sorted(bench.hosts.began) == sorted((name, one) for name in HOSTS for one in UPGRADE)
    assert bench.store.claims == {}


@pytest.mark.parametrize("fleet", [FLEET, UNIT], ids=["alone", "in a unit"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("state", ROLLBACK, ids=[state.value for state in ROLLBACK])
@pytest.mark.parametrize("host", HOSTS)
def test_each_host_that_fails_is_rolled_back_exactly_once(
    host: str, state: State, cut: str, fleet: list[Member]
) -> None:
    bench = bench_of(fleet, failing=host)
    assert play_with_cut(bench, host, state, cut) == 1
    back = {one.name for one in fleet if one.unit == next(m.unit for m in fleet if m.name == host)}
    assert bench.hosts.transactions == {name: [NEW, OLD] if name in back else [NEW] for name in HOSTS}
    assert bench.hosts.drained == set()
    assert set(bench.rollout.counted) == {host}


@pytest.mark.parametrize("fleet", [FLEET, UNIT], ids=["alone", "in a unit"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_given_back_is_given_back_exactly_once(
    host: str, cut: str, fleet: list[Member]
) -> None:
    bench = bench_of(fleet, returning=host)
    assert play_with_cut(bench, host, State.RETURNING, cut) == 1
    assert bench.hosts.began.count((host, State.RETURNING)) == 1
    assert bench.hosts.transactions[host] == []
    assert bench.hosts.drained == set()


def test_every_work_state_is_killed_above() -> None:
    assert {*UPGRADE, *ROLLBACK, State.RETURNING} == set(WORK)


@pytest.mark.parametrize("kind", ["cut_before", "cut_after"])
def test_killed_at_every_commit_in_turn_it_comes_to_the_same_end(kind: str) -> None:
    whole = bench_of(FLEET, failing="a2", returning="b1")
    whole.play()
    for commit in range(1, whole.store.commits + 1):
        bench = bench_of(FLEET, failing="a2", returning="b1")
        setattr(bench.store, kind, commit)
        killed = play_with_cut(bench, "nobody", State.WAITING, "")
        assert killed == 1
        assert bench.states() == whole.states()
        assert bench.hosts.transactions == whole.hosts.transactions
        assert sorted(bench.hosts.began) == sorted(whole.hosts.began)


@pytest.mark.parametrize("kind", ["cut_before", "cut_after"])
def test_killed_while_the_operator_speaks_the_word_is_kept_or_was_never_said(kind: str) -> None:
    for word in ("pause", "cancel"):
        bench = bench_of(FLEET)
        bench.until(State.DRAINING)
        setattr(bench.store, kind, bench.store.commits + 1)
        with pytest.raises(Cut):
            getattr(bench.rollout, word)()
        bench.reload()
        said = bench.rollout.control.phase is not Phase.RUNNING
        assert said is (kind == "cut_after")
        bench.play()
        if bench.rollout.control.phase is Phase.PAUSED:
            bench.rollout.resume()
            bench.play()
        assert bench.hosts.drained == set()
        assert all(done in ([], [NEW]) for done in bench.hosts.transactions.values())
