"""The closed set of states: from each there is an end, and what a state says of a host's users is true to its place."""

from __future__ import annotations

import pytest

from fleet.rollout.record import HostRecord
from fleet.rollout.states import (
    BACKWARD,
    BEFORE_DRAIN,
    FOLLOWING,
    FORWARD,
    LEGAL,
    MEANINGS,
    Availability,
    State,
)
from fleet.rollout.steps import moved


def reachable(start: State) -> set[State]:
    found, left = {start}, [start]
    while left:
        for state in LEGAL[left.pop()] - found:
            found.add(state)
            left.append(state)
    return found


def test_every_state_has_a_meaning_and_can_be_reached() -> None:
    assert set(MEANINGS) == set(LEGAL) == set(State)
    assert reachable(State.WAITING) == set(State)


@pytest.mark.parametrize("state", State)
def test_every_state_comes_to_an_end(state: State) -> None:
    assert any(MEANINGS[end].final for end in reachable(state))
    if MEANINGS[state].final:
        assert LEGAL[state] <= {State.ROLLBACK_INSTALLING}, "only an operator brings a host back from its end"
    else:
        assert LEGAL[state]


def test_a_host_is_out_from_its_drain_until_it_is_given_back() -> None:
    out = Availability.OUT
    drain, given_back = FORWARD.index(State.DRAINING), FORWARD.index(State.DONE)
    assert all(MEANINGS[state].availability is out for state in FORWARD[drain:given_back])
    assert all(MEANINGS[state].availability is out for state in BACKWARD[:-1])
    assert all(MEANINGS[state].availability is Availability.RESERVED for state in BEFORE_DRAIN)
    serving = {state for state in State if MEANINGS[state].availability is Availability.IN_SERVICE}
    for state in serving - {State.WAITING}:
        before = {other for other in State if state in LEGAL[other]}
        allowed = {State.UNDRAINING, State.ROLLBACK_UNDRAINING, State.RETURNING, State.WAITING, *BEFORE_DRAIN}
        assert before <= allowed, (
            f"{state.value} is in service and follows a state in which nobody gives it back"
        )


def test_packages_are_changed_only_behind_a_drain() -> None:
    before = {state for state in State if State.INSTALLING in LEGAL[state]}
    assert before == {State.DRAINED}
    assert {state for state in State if State.DRAINED in LEGAL[state]} == {State.DRAINING}


def test_no_second_restart_is_tried_without_a_change() -> None:
    """C04: a host whose GPU another driver took at boot is not rebooted in the hope of better."""
    assert {state for state in State if State.RESTARTING in LEGAL[state]} == {State.INSTALLING}
    assert {state for state in State if State.ROLLBACK_RESTARTING in LEGAL[state]} == {
        State.ROLLBACK_INSTALLING
    }


def test_a_transition_outside_the_set_is_a_bug() -> None:
    for state in State:
        for after in set(State) - LEGAL[state]:
            with pytest.raises(AssertionError, match="is never followed by"):
                moved(HostRecord(state), after)
    assert FOLLOWING[State.BENCHMARKING] is State.PROVEN
