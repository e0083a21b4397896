"""What begins when, what a failure leads to, and what an operator's word does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.core.errors import RefusedError
from fleet.rollout.record import Outcome, Phase, Result
from fleet.rollout.rollout import Rollout
from fleet.rollout.states import FORWARD, MEANINGS, State
from fleet.rollout.strategy import OnFailure
from fleet.rollout.window import Window
from tests.rollout.world import NEW, OLD, RUN, Bench, members, some, strategy

BACK = OnFailure.ROLLBACK


def test_a_clean_roll_upgrades_every_host_once_and_gives_its_claims_back() -> None:
    bench = Bench(some(5), strategy(max_unavailable=2))
    assert bench.play() is Phase.ENDED
    assert bench.rollout.control.outcome == "done"
    assert set(bench.hosts.version.values()) == {NEW}
    assert all(done == [NEW] for done in bench.hosts.transactions.values())
    assert (bench.hosts.drained, bench.store.claims) == (set(), {})


def test_one_host_goes_through_every_state_in_order() -> None:
    bench = Bench(some(1), strategy())
    bench.play()
    assert [state for _, _, state, _ in bench.store.history] == [state.value for state in FORWARD[1:]]
    assert [number for _, number, _, _ in bench.store.history] == list(range(1, len(FORWARD)))
    assert [state for _, state in bench.hosts.began] == [one for one in FORWARD if MEANINGS[one].work]


def test_nothing_beyond_a_canary_that_fails_is_touched() -> None:
    bench = Bench(some(6), strategy(canary=1, max_unavailable=3, max_failures=5, on_failure=BACK))
    bench.will("gpu001", State.BENCHMARKING, Outcome.FAILED, "20 % slower than before")
    assert bench.play() is Phase.ENDED
    control = bench.rollout.control
    assert (control.outcome, control.reason) == (
        "stopped",
        "gpu001 of the canary failed at benchmarking: 20 % slower than before",
    )
    assert {host for host, _ in bench.hosts.began} == {"gpu001"}
    assert bench.hosts.transactions["gpu001"] == [NEW, OLD]
    assert bench.states()["gpu001"] == "rolled_back"
    assert bench.hosts.drained == set()


def test_the_stage_behind_the_canary_waits_for_the_operators_word() -> None:
    bench = Bench(some(3), strategy(canary=1, confirm=True))
    assert bench.play() is Phase.PAUSED
    assert "your word" in str(bench.rollout.control.reason)
    assert [bench.hosts.version[name] for name in ("gpu001", "gpu002")] == [NEW, OLD]
    bench.reload()
    assert bench.play() is Phase.PAUSED, "taking it up is not the operator's word"
    bench.rollout.resume()
    assert bench.play() is Phase.ENDED
    assert set(bench.hosts.version.values()) == {NEW}


@pytest.mark.parametrize(
    ("state", "outcome", "word"),
    [
        (State.DRAINING, Outcome.SKIPPED, "skipped"),
        (State.PREFLIGHT, Outcome.BLOCKED, "blocked"),
        (State.PREFLIGHT, Outcome.CURRENT, "already"),
    ],
)
def test_a_canary_that_proves_nothing_opens_nothing(state: State, outcome: Outcome, word: str) -> None:
    bench = Bench(some(3), strategy(canary=1))
    bench.will("gpu001", state, outcome)
    assert bench.play() is Phase.PAUSED
    assert "the canary proves nothing" in str(bench.rollout.control.reason)
    assert word in str(bench.rollout.control.reason)
    assert bench.hosts.version["gpu002"] == OLD
    bench.rollout.resume()
    assert bench.play() is Phase.ENDED
    assert bench.hosts.version["gpu002"] == NEW


def test_failed_unreachable_and_overdue_hosts_spend_one_budget() -> None:
    bench = Bench(some(9), strategy(max_unavailable=9, max_failures=2))
    bench.will("gpu001", State.INSTALLING, Outcome.FAILED)
    bench.will("gpu002", State.PREFLIGHT, Outcome.UNREACHABLE)
    bench.will("gpu003", State.RESTARTING, Outcome.TIMED_OUT)
    assert bench.play() is Phase.PAUSED
    assert list(bench.rollout.counted) == ["gpu002", "gpu001", "gpu003"]
    kinds = [bench.rollout.hosts[name].counted for name in bench.rollout.counted]
    assert kinds == ["unreachable", "failed", "timed_out"]
    assert "3 hosts did not come through, and 2 may" in str(bench.rollout.control.reason)


def test_resuming_accepts_what_happened_and_the_budget_begins_anew() -> None:
    bench = Bench(some(6), strategy(max_unavailable="100%", batches="1,1,1,1,1", max_failures=1))
    for number in range(1, 5):
        bench.will(f"gpu{number:03d}", State.VERIFYING, Outcome.FAILED)
    assert bench.play() is Phase.PAUSED
    assert list(bench.rollout.counted) == ["gpu001", "gpu002"]
    bench.reload()
    assert bench.play() is Phase.PAUSED
    bench.rollout.resume()
    assert bench.play() is Phase.PAUSED
    assert list(bench.rollout.counted) == ["gpu001", "gpu002", "gpu003", "gpu004"]
    bench.rollout.resume()
    assert bench.play() is Phase.ENDED


def test_a_host_that_fails_twice_counts_once() -> None:
    bench = Bench(some(4), strategy(max_failures=1, on_failure=BACK, max_unavailable=2))
    bench.will("gpu001", State.VERIFYING, Outcome.FAILED, "GPU missing")
    bench.will("gpu001", State.ROLLBACK_VERIFYING, Outcome.FAILED, "still missing")
    assert bench.play() is Phase.ENDED
    assert bench.rollout.control.outcome == "done"
    assert bench.states()["gpu001"] == "quarantined"
    record = bench.rollout.hosts["gpu001"]
    assert (record.turned, record.last, record.counted) == ("GPU missing", "verifying", "failed")
    assert bench.hosts.drained == {"gpu001"}


def test_when_the_budget_is_spent_what_is_drained_but_not_changed_is_given_back() -> None:
    bench = Bench(some(3), strategy(max_unavailable=3))
    first, second, third = bench.until(State.DRAINING)
    bench.rollout.take([bench.answer(first), bench.answer(second)])
    bench.rollout.take([Result(third.host, third.number, Outcome.UNREACHABLE)])
    changed = {host for host, state in bench.hosts.began if state is State.INSTALLING}
    assert bench.play() is Phase.PAUSED
    assert changed == set()
    # The first two were at the transaction when the third was lost: they are helped by being finished.
    assert bench.states() == {"gpu001": "done", "gpu002": "done", "gpu003": "failed"}


def test_a_pause_gives_back_what_is_not_changed_and_resuming_begins_it_anew() -> None:
    bench = Bench(some(2), strategy(max_unavailable=2))
    (first, second) = bench.until(State.DRAINING)
    bench.rollout.pause()
    bench.rollout.take([bench.answer(first), bench.answer(second)])
    assert bench.play() is Phase.PAUSED
    assert bench.states() == {"gpu001": "waiting", "gpu002": "waiting"}
    assert bench.hosts.drained == set()
    assert set(bench.hosts.version.values()) == {OLD}
    bench.rollout.resume()
    assert bench.play() is Phase.ENDED
    assert all(done == [NEW] for done in bench.hosts.transactions.values())


def test_cancel_ends_when_what_is_in_hand_has_ended() -> None:
    bench = Bench(some(4), strategy(max_unavailable=2))
    held = bench.until(State.RESTARTING)
    bench.rollout.cancel()
    assert bench.rollout.control.phase is Phase.CANCELLING
    bench.rollout.take([bench.answer(action) for action in held])
    assert bench.play() is Phase.ENDED
    assert bench.rollout.control.outcome == "cancelled"
    assert list(bench.states().values()) == ["done", "done", "waiting", "waiting"]
    assert bench.store.claims == {}


def test_cancel_before_anything_began_ends_at_once() -> None:
    bench = Bench(some(2), strategy())
    bench.rollout.cancel()
    assert bench.rollout.control.phase is Phase.ENDED
    assert bench.rollout.next() == []


def test_nodes_that_others_have_down_count_and_a_host_that_is_down_counts_once() -> None:
    bench = Bench(some(4), strategy(max_unavailable=2), down=["gpu003"])
    assert {action.host for action in bench.rollout.next()} == {"gpu001", "gpu003"}
    bench.rollout.observe(down=["gpu003", "gpu004"])
    assert bench.rollout.next() == []


def test_after_every_decision_what_is_loaded_is_what_was_decided() -> None:
    bench = Bench(
        members("a1/u", "a2/u", "b", "c"), strategy(max_unavailable=3, max_failures=2, on_failure=BACK)
    )
    bench.will("a2", State.VERIFYING, Outcome.FAILED, "GPU missing")
    bench.will("b", State.DRAINING, Outcome.SKIPPED, "a job")
    while actions := bench.rollout.next():
        for action in actions:
            bench.rollout.take([bench.answer(action)])
            before = bench.rollout
            bench.reload()
            assert dict(bench.rollout.hosts) == dict(before.hosts)
            assert bench.rollout.control == before.control
    assert bench.states() == {"a1": "rolled_back", "a2": "rolled_back", "b": "skipped", "c": "done"}


def test_who_was_down_is_still_known_after_a_crash() -> None:
    bench = Bench([*some(2), replace(some(3)[2], left_out="not in --limit")], strategy(max_unavailable=1))
    bench.rollout.observe(down=["gpu003"], idle=["gpu002"])
    bench.reload()
    assert bench.rollout.next() == []
    bench.rollout.observe(down=[], idle=["gpu002"])
    bench.reload()
    assert [action.host for action in bench.rollout.next()] == ["gpu002"]


def test_a_failure_stops_what_ended_well_in_the_same_burst() -> None:
    bench = Bench(some(2), strategy(max_unavailable=2))
    first, second = bench.until(State.FETCHING)
    failed = Result(second.host, second.number, Outcome.FAILED)
    bench.rollout.take([bench.answer(first), failed])
    assert bench.states() == {"gpu001": "waiting", "gpu002": "failed"}


def test_a_host_that_went_down_meanwhile_keeps_others_from_being_drained() -> None:
    bench = Bench([*some(2), replace(some(3)[2], left_out="not in --limit")], strategy(max_unavailable=1))
    (action,) = bench.until(State.FETCHING)
    bench.rollout.observe(down=["gpu003"])
    bench.rollout.take([bench.answer(action)])
    assert bench.states()["gpu001"] == "waiting"
    assert bench.rollout.next() == []
    assert "gpu003" in str(bench.rollout.waits_for())
    bench.rollout.observe(down=[])
    assert [one.state for one in bench.rollout.next()] == [State.PREFLIGHT]


def test_one_that_went_down_in_the_same_domain_keeps_it_from_being_drained_others_go_on() -> None:
    fleet = members("a1@r1", "a2@r1", "b1@r2", "b2@r2")
    bench = Bench(fleet, strategy(max_unavailable=4, max_unavailable_per_domain=1))
    actions = bench.until(State.FETCHING)
    bench.rollout.observe(down=["a2"])
    bench.rollout.take([bench.answer(action) for action in actions])
    assert bench.states() == {"a1": "waiting", "a2": "waiting", "b1": "draining", "b2": "waiting"}


def test_when_failed_hosts_take_up_the_limit_it_pauses_and_says_so() -> None:
    bench = Bench(some(4), strategy(max_unavailable=1, max_failures=3))
    bench.will("gpu001", State.VERIFYING, Outcome.FAILED)
    assert bench.play() is Phase.PAUSED
    assert bench.rollout.control.reason == "as many hosts as may be are out of service already: gpu001"


def test_one_host_of_a_domain_at_a_time_while_other_domains_go_on() -> None:
    fleet = members("a1@r1", "a2@r1", "b1@r2", "b2@r2")
    bench = Bench(fleet, strategy(max_unavailable=4, max_unavailable_per_domain=1))
    assert {action.host for action in bench.until(State.PREFLIGHT)} == {"a1", "b1"}
    bench.reload()
    assert bench.play() is Phase.ENDED


def test_a_unit_is_drained_whole_changed_whole_and_given_back_whole() -> None:
    bench = Bench(members("a1/u", "a2/u", "b"), strategy(max_unavailable=2))
    first, second = bench.until(State.DRAINING)
    bench.rollout.take([bench.answer(first)])
    assert bench.rollout.next() == []
    bench.rollout.take([bench.answer(second)])
    assert {(action.host, action.state) for action in bench.rollout.next()} == {
        ("a1", State.INSTALLING),
        ("a2", State.INSTALLING),
    }
    bench.reload()
    first, second = bench.until(State.BENCHMARKING)
    bench.rollout.take([bench.answer(first)])
    assert bench.rollout.next() == []
    bench.rollout.take([bench.answer(second)])
    assert [action.state for action in bench.rollout.next()] == [State.UNDRAINING] * 2


def test_a_unit_rolls_back_whole() -> None:
    bench = Bench(members("a1/u", "a2/u"), strategy(max_unavailable=2, on_failure=BACK))
    bench.will("a2", State.CONTAINER_CHECK, Outcome.FAILED)
    bench.play()
    assert bench.hosts.version == {"a1": OLD, "a2": OLD}
    assert bench.states() == {"a1": "rolled_back", "a2": "rolled_back"}
    assert list(bench.rollout.counted) == ["a2"]


@pytest.mark.parametrize(("policy", "state"), [(BACK, "rollback_installing"), (OnFailure.PAUSE, "failed")])
def test_when_one_of_a_unit_fails_the_others_go_no_step_further(policy: OnFailure, state: str) -> None:
    bench = Bench(members("a1/u", "a2/u"), strategy(max_unavailable=2, on_failure=policy))
    first, second = bench.until(State.INSTALLING)
    bench.rollout.take([Result(second.host, second.number, Outcome.UNREACHABLE)])
    bench.rollout.take([bench.answer(first)])
    assert bench.states() == {"a1": state, "a2": "failed"}
    assert list(bench.rollout.counted) == ["a2"]


def test_a_unit_of_which_one_may_not_be_touched_stays_as_it_is() -> None:
    bench = Bench(members("a1/u", "a2/u", "b"), strategy(max_unavailable=2))
    bench.will("a2", State.DRAINING, Outcome.SKIPPED, "a job until 18:00")
    assert bench.play() is Phase.ENDED
    assert bench.states() == {"a1": "skipped", "a2": "skipped", "b": "done"}
    assert bench.hosts.drained == set()
    assert list(bench.rollout.counted) == []


def test_a_stage_soaks_by_the_wall_clock_even_over_a_crash() -> None:
    bench = Bench(some(2), strategy(canary=1, soak_s=600.0))
    bench.play()
    assert bench.rollout.wake_at() == bench.clock.at.replace(minute=10)
    bench.clock.go_on(minutes=9)
    bench.reload()
    assert bench.rollout.next() == []
    assert bench.rollout.waits_for() == "the canary soaks"
    bench.clock.go_on(minutes=1)
    assert [action.host for action in bench.rollout.next()] == ["gpu002"]


def test_a_canary_that_goes_down_while_it_soaks_opens_nothing() -> None:
    bench = Bench(some(2), strategy(canary=1, soak_s=600.0, max_unavailable=2))
    bench.play()
    bench.rollout.observe(down=["gpu001"])
    bench.clock.go_on(minutes=11)
    assert bench.play() is Phase.PAUSED
    assert "gpu001" in str(bench.rollout.control.reason)


def test_outside_its_window_nothing_begins_and_nothing_drained_is_changed() -> None:
    bench = Bench(some(1), strategy(window=Window.read("12:00-12:30")))
    (action,) = bench.until(State.DRAINING)
    bench.clock.go_on(minutes=30)
    bench.rollout.take([bench.answer(action)])
    assert bench.play() is Phase.RUNNING
    assert bench.states() == {"gpu001": "waiting"}
    assert bench.hosts.drained == set()
    opens = bench.rollout.wake_at()
    assert opens is not None
    bench.clock.at = opens
    assert bench.play() is Phase.ENDED


def test_idle_hosts_go_first_where_hosts_go_as_they_are_drained() -> None:
    bench = Bench(some(5), strategy(as_drained=True, max_unavailable=2), idle=["gpu004", "gpu005"])
    assert {action.host for action in bench.rollout.next()} == {"gpu004", "gpu005"}


def test_hosts_that_failed_are_brought_back_on_the_operators_word() -> None:
    bench = Bench(some(2), strategy())
    bench.will("gpu001", State.VERIFYING, Outcome.FAILED)
    assert bench.play() is Phase.PAUSED
    assert bench.rollout.roll_back() == ["gpu001"]
    bench.play()
    assert bench.states()["gpu001"] == "rolled_back"
    assert bench.hosts.version["gpu001"] == OLD


def test_without_a_way_back_a_host_that_fails_stays_drained() -> None:
    bench = Bench(some(1), strategy(on_failure=BACK, no_rollback=True))
    (action,) = bench.until(State.FETCHING)
    bench.rollout.take([Result(action.host, action.number, Outcome.OK, way_back=False)])
    bench.will("gpu001", State.VERIFYING, Outcome.FAILED)
    bench.play()
    assert bench.states() == {"gpu001": "failed"}
    assert bench.hosts.drained == {"gpu001"}


def test_a_host_that_cannot_be_given_back_is_quarantined_on_the_new_version() -> None:
    bench = Bench(some(1), strategy(on_failure=BACK))
    bench.will("gpu001", State.UNDRAINING, Outcome.FAILED)
    bench.play()
    assert bench.states() == {"gpu001": "quarantined"}
    assert bench.hosts.version["gpu001"] == NEW


def test_an_overlapping_rollout_is_refused_until_the_first_has_ended() -> None:
    bench = Bench(some(3), strategy())
    with pytest.raises(RefusedError, match=RUN):
        Rollout.register("b" * 12, strategy(), some(1), bench.store, bench.clock)
    Rollout.register("c" * 12, strategy(), members("other"), bench.store, bench.clock)
    bench.play()
    Rollout.register("b" * 12, strategy(), some(1), bench.store, bench.clock)


def test_of_two_processes_the_one_that_took_it_up_last_decides() -> None:
    bench = Bench(some(2), strategy())
    first = bench.rollout
    bench.reload()
    with pytest.raises(RefusedError, match="taken up"):
        first.next()
    with pytest.raises(RefusedError, match="did not take"):
        first.next()
    assert bench.play() is Phase.ENDED


def test_a_result_given_twice_or_late_changes_nothing() -> None:
    bench = Bench(some(1), strategy())
    (action,) = bench.rollout.next()
    result = bench.answer(action)
    assert bench.rollout.take([result, result]) == 1
    before = bench.states()
    assert bench.rollout.take([result]) == 0
    assert bench.states() == before


def test_a_result_that_its_state_cannot_have_is_a_bug_and_is_not_kept() -> None:
    bench = Bench(some(1), strategy())
    (action,) = bench.until(State.INSTALLING)
    commits = bench.store.commits
    with pytest.raises(AssertionError, match="no result of installing"):
        bench.rollout.take([Result(action.host, action.number, Outcome.SKIPPED)])
    assert bench.store.commits == commits
