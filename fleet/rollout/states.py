"""The life of one host in a rollout: its states, which may follow which, and what each means for its users.

A *work* state stands for something that is done on the host; it is committed before that is begun. In the others
nothing is in hand: the host waits for its turn, for the others of its unit, or for nobody any more (final).
What follows which result is decided in :mod:`fleet.rollout.steps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise


class State(str, Enum):
    """Where a host is. The values are what the store keeps: never change one."""

    WAITING = "waiting"
    PREFLIGHT = "preflight"
    BASELINE = "baseline"
    FETCHING = "fetching"
    DRAINING = "draining"
    DRAINED = "drained"
    INSTALLING = "installing"
    RESTARTING = "restarting"
    VERIFYING = "verifying"
    RESTORING = "restoring"
    CONTAINER_CHECK = "container_check"
    BENCHMARKING = "benchmarking"
    PROVEN = "proven"
    UNDRAINING = "undraining"
    DONE = "done"
    RETURNING = "returning"
    ROLLBACK_INSTALLING = "rollback_installing"
    ROLLBACK_RESTARTING = "rollback_restarting"
    ROLLBACK_VERIFYING = "rollback_verifying"
    ROLLBACK_RESTORING = "rollback_restoring"
    ROLLBACK_UNDRAINING = "rollback_undraining"
    ROLLED_BACK = "rolled_back"
    CURRENT = "current"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    FAILED = "failed"
    QUARANTINED = "quarantined"


class Availability(Enum):
    """What a state means for those who want to use the host."""

    IN_SERVICE = "in service"
    RESERVED = "in service, about to be taken out: its place under the limits is kept"
    OUT = "out of service, or not known to be in it"


@dataclass(frozen=True)
class Meaning:
    """What one state is. ``touched``: packages of the host may have been changed by this rollout."""

    words: str
    availability: Availability
    work: bool = False
    touched: bool = False
    final: bool = False


_IN, _KEPT, _OUT = Availability.IN_SERVICE, Availability.RESERVED, Availability.OUT

MEANINGS: Mapping[State, Meaning] = {
    State.WAITING: Meaning("waits for its turn", _IN),
    State.PREFLIGHT: Meaning("may it be touched?", _KEPT, work=True),
    State.BASELINE: Meaning("facts and a quick benchmark before", _KEPT, work=True),
    State.FETCHING: Meaning("the previous packages are fetched, their return simulated", _KEPT, work=True),
    State.DRAINING: Meaning("waits until nobody works on it", _OUT, work=True),
    State.DRAINED: Meaning("drained; waits for the others of its unit", _OUT),
    State.INSTALLING: Meaning("the whole set in one transaction", _OUT, work=True, touched=True),
    State.RESTARTING: Meaning("module reload or reboot", _OUT, work=True, touched=True),
    State.VERIFYING: Meaning("versions, GPUs and RDMA are compared", _OUT, work=True, touched=True),
    State.RESTORING: Meaning("MIG, power limit, clocks, compute mode", _OUT, work=True, touched=True),
    State.CONTAINER_CHECK: Meaning("a container sees the GPUs", _OUT, work=True, touched=True),
    State.BENCHMARKING: Meaning("benchmark against the baseline", _OUT, work=True, touched=True),
    State.PROVEN: Meaning("proven; waits for the others of its unit", _OUT, touched=True),
    State.UNDRAINING: Meaning("goes back to its users", _OUT, work=True, touched=True),
    State.DONE: Meaning("upgraded and in service", _IN, touched=True, final=True),
    State.RETURNING: Meaning("untouched; fleet's own drain is undone", _OUT, work=True),
    State.ROLLBACK_INSTALLING: Meaning("the previous set comes back", _OUT, work=True, touched=True),
    State.ROLLBACK_RESTARTING: Meaning("reload or reboot of the previous set", _OUT, work=True, touched=True),
    State.ROLLBACK_VERIFYING: Meaning("the previous set is verified", _OUT, work=True, touched=True),
    State.ROLLBACK_RESTORING: Meaning("modes are restored after rollback", _OUT, work=True, touched=True),
    State.ROLLBACK_UNDRAINING: Meaning(
        "goes back to its users as it was before", _OUT, work=True, touched=True
    ),
    State.ROLLED_BACK: Meaning("as before, in service", _IN, touched=True, final=True),
    State.CURRENT: Meaning("had the wanted version already", _IN, final=True),
    State.BLOCKED: Meaning("refused before anything was touched", _IN, final=True),
    State.SKIPPED: Meaning("left as it was, in service", _IN, final=True),
    State.FAILED: Meaning("failed; left as it is, out of service", _OUT, final=True),
    State.QUARANTINED: Meaning("failed on its way back; left drained", _OUT, final=True),
}

#: The order of an upgrade that goes well.
FORWARD: tuple[State, ...] = (
    State.WAITING,
    State.PREFLIGHT,
    State.BASELINE,
    State.FETCHING,
    State.DRAINING,
    State.DRAINED,
    State.INSTALLING,
    State.RESTARTING,
    State.VERIFYING,
    State.RESTORING,
    State.CONTAINER_CHECK,
    State.BENCHMARKING,
    State.PROVEN,
    State.UNDRAINING,
    State.DONE,
)
#: The order of a rollback that goes well.
BACKWARD: tuple[State, ...] = (
    State.ROLLBACK_INSTALLING,
    State.ROLLBACK_RESTARTING,
    State.ROLLBACK_VERIFYING,
    State.ROLLBACK_RESTORING,
    State.ROLLBACK_UNDRAINING,
    State.ROLLED_BACK,
)
#: Work on a host that still serves and that a change of mind costs nothing.
BEFORE_DRAIN = frozenset((State.PREFLIGHT, State.BASELINE, State.FETCHING))
#: From the transaction until the host is proven: what fails here is rolled back, where that is wanted.
UNDER_CHANGE = frozenset(FORWARD[FORWARD.index(State.INSTALLING) : FORWARD.index(State.UNDRAINING)])

FOLLOWING: Mapping[State, State] = {
    before: after for way in (FORWARD, BACKWARD) for before, after in pairwise(way)
}


def _legal() -> dict[State, frozenset[State]]:
    """The closed set of transitions."""
    more: dict[State, set[State]] = {state: set() for state in State}
    for before, after in FOLLOWING.items():
        more[before].add(after)
    for state in BEFORE_DRAIN:
        more[state] |= {State.WAITING, State.BLOCKED, State.SKIPPED, State.FAILED}
    more[State.PREFLIGHT].add(State.CURRENT)
    more[State.WAITING].add(State.SKIPPED)  # another host of its unit cannot go
    more[State.DRAINING] |= {State.RETURNING, State.FAILED}
    more[State.DRAINED].add(State.RETURNING)
    more[State.RETURNING] |= {State.WAITING, State.SKIPPED, State.QUARANTINED}
    for state in UNDER_CHANGE:
        more[state] |= {State.ROLLBACK_INSTALLING, State.FAILED}
    more[State.UNDRAINING].add(State.QUARANTINED)
    for state in BACKWARD[:-1]:
        more[state].add(State.QUARANTINED)
    more[State.FAILED].add(State.ROLLBACK_INSTALLING)  # on the operator's word only
    return {state: frozenset(after) for state, after in more.items()}


LEGAL: Mapping[State, frozenset[State]] = _legal()
