"""What follows for a host: from the result of its work, and from what its unit and the rollout have come to.

Pure: a record and a situation in, the next record out. :class:`fleet.rollout.rollout.Rollout` applies it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from fleet.rollout.record import COUNTED, HostRecord, Outcome, Result
from fleet.rollout.states import BEFORE_DRAIN, FOLLOWING, LEGAL, UNDER_CHANGE, State
from fleet.rollout.strategy import OnFailure

_MATE = "another host of its unit cannot go"
_MATE_FAILED = "another host of its unit failed, and the unit moves as one"


@dataclass(frozen=True)
class Situation:
    """What a host's next state depends on, beside its own record.

    ``may_go_on``: whether it may be taken out, or changed once it is out (running, window open, limits kept); asked
    late because it may take a moment to say. ``mates``: the other hosts of its unit.
    """

    may_go_on: Callable[[], bool]
    mates: Collection[HostRecord]
    on_failure: OnFailure

    @property
    def unit_turned(self) -> bool:
        """Whether a host of the unit will not come to the new version."""
        return any(mate.turned is not None for mate in self.mates)

    @property
    def unit_retreats(self) -> bool:
        """Whether a host of the unit, all of which began together, has gone back to waiting."""
        return any(mate.state is State.WAITING for mate in self.mates)

    @property
    def unit_changes(self) -> bool:
        """Whether a host of the unit is being changed already, so that the others must follow."""
        return any(mate.state in UNDER_CHANGE for mate in self.mates)


def moved(record: HostRecord, state: State, **changes: object) -> HostRecord:
    """The record after a transition. One outside the closed set is a bug."""
    if state not in LEGAL[record.state]:
        raise AssertionError(f"{record.state.value} is never followed by {state.value}")
    after = replace(record, state=state, number=record.number + 1, **changes)  # type: ignore[arg-type]
    return replace(after, touched=after.touched or state is State.INSTALLING)


def after_result(record: HostRecord, result: Result, situation: Situation) -> HostRecord:
    """The record once the work of its state has ended."""
    outcome, state = result.outcome, record.state
    if outcome in COUNTED:
        return _after_failure(record, result, situation)
    if outcome is Outcome.OK:
        return _after_success(record, result, situation)
    said = result.reason or outcome.value
    if outcome is Outcome.CURRENT and state is State.PREFLIGHT:
        return moved(record, State.CURRENT)
    if outcome is Outcome.BLOCKED and state in BEFORE_DRAIN:
        return moved(record, State.BLOCKED, turned=said, last=state.value)
    if outcome is Outcome.SKIPPED and state is State.DRAINING:
        return moved(record, State.RETURNING, turned=said, last=state.value)
    raise AssertionError(f"{outcome.value} is no result of {state.value}")


def _after_success(record: HostRecord, result: Result, situation: Situation) -> HostRecord:
    state = record.state
    if state in BEFORE_DRAIN:
        if situation.unit_turned:
            return moved(record, State.SKIPPED, turned=_MATE, last=state.value)
        if situation.unit_retreats or not situation.may_go_on():
            return moved(record, State.WAITING)
        return moved(record, FOLLOWING[state], way_back=bool(result.way_back))
    if state is State.RETURNING:
        return moved(record, State.WAITING if record.turned is None else State.SKIPPED)
    if state in UNDER_CHANGE and situation.unit_turned:
        return _turned_back(record, situation, turned=_MATE_FAILED, last=state.value)
    return moved(record, FOLLOWING[state])


def _after_failure(record: HostRecord, result: Result, situation: Situation) -> HostRecord:
    state = record.state
    if record.turned is None:
        said = result.reason or result.outcome.value
        record = replace(record, turned=said, last=state.value)
    record = replace(record, counted=record.counted or result.outcome.value)
    if state in BEFORE_DRAIN:
        return moved(record, State.FAILED)
    if state is State.DRAINING:
        # What fleet drained is given back; what it cannot reach may be anything.
        return moved(record, State.FAILED if result.outcome is Outcome.UNREACHABLE else State.RETURNING)
    if state in UNDER_CHANGE:
        if result.outcome is Outcome.UNREACHABLE:
            return moved(record, State.FAILED)
        return _turned_back(record, situation)
    # The new version is proven, or the old one does not come back: neither is helped by changing packages again.
    return moved(record, State.QUARANTINED)


def _turned_back(record: HostRecord, situation: Situation, **changes: object) -> HostRecord:
    back = situation.on_failure is OnFailure.ROLLBACK and record.way_back
    return moved(record, State.ROLLBACK_INSTALLING if back else State.FAILED, **changes)


#: The states that :func:`at_rest` may have an answer for.
RESTING = frozenset((State.WAITING, State.DRAINED, State.PROVEN))


def at_rest(record: HostRecord, situation: Situation) -> HostRecord | None:
    """Where a host with no work in hand goes because of the others of its unit, or of the rollout; None: nowhere."""
    state = record.state
    if state is State.WAITING and situation.unit_turned:
        return moved(record, State.SKIPPED, turned=_MATE, last=state.value)
    if state is State.DRAINED:
        if situation.unit_turned:
            return moved(record, State.RETURNING, turned=_MATE, last=state.value)
        if situation.unit_changes:
            return moved(record, State.INSTALLING)
        if situation.unit_retreats or not situation.may_go_on():
            return moved(record, State.RETURNING)
        arrived = all(mate.state in _DRAINED_OR_THERE for mate in situation.mates)
        return moved(record, State.INSTALLING) if arrived else None
    if state is State.PROVEN:
        if situation.unit_turned:
            return _turned_back(record, situation, turned=_MATE_FAILED, last=state.value)
        arrived = all(mate.state in _AT_OR_PAST_PROVEN for mate in situation.mates)
        return moved(record, State.UNDRAINING) if arrived else None
    return None


_AT_OR_PAST_PROVEN = frozenset((State.PROVEN, State.UNDRAINING, State.DONE, State.CURRENT))
_DRAINED_OR_THERE = frozenset((State.DRAINED, State.DONE, State.CURRENT))
