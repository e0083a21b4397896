"""What is kept of one host, and of the rollout as a whole, while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from fleet.rollout.states import MEANINGS, Meaning, State


class Outcome(str, Enum):
    """How the work of a state ended on a host. The first five are what a host can say; two others nobody heard."""

    OK = "ok"
    CURRENT = "current"  # preflight: the wanted version is loaded already
    BLOCKED = "blocked"  # before the drain: it may not be touched
    SKIPPED = "skipped"  # drain: not free by the deadline, or drained by somebody else
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"


#: These count against the one budget.
COUNTED = frozenset((Outcome.FAILED, Outcome.UNREACHABLE, Outcome.TIMED_OUT))


@dataclass(frozen=True)
class Result:
    """What came of an action. ``number`` is the action's: one of an earlier life of the host is not taken.

    ``way_back``: fetching, whether the previous packages are at hand. ``detail`` is kept for people.
    """

    host: str
    number: int
    outcome: Outcome
    reason: str | None = None
    way_back: bool | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HostRecord:
    """One host. ``number`` counts its transitions and names its action.

    ``counted``: why it counts against the budget, once. ``turned``: why it does not go forward any more, whatever its
    state. ``last``: the state in which that was found.
    """

    state: State = State.WAITING
    number: int = 0
    counted: str | None = None
    turned: str | None = None
    last: str | None = None
    way_back: bool = False
    touched: bool = False

    @property
    def meaning(self) -> Meaning:
        return MEANINGS[self.state]

    def detail(self) -> dict[str, Any]:
        """As the store keeps it, beside state and number."""
        # By hand: asdict copies deeply, which is most of what a decision costs.
        return {
            "counted": self.counted,
            "turned": self.turned,
            "last": self.last,
            "way_back": self.way_back,
            "touched": self.touched,
        }

    @classmethod
    def kept(cls, state: str, number: int, detail: Mapping[str, Any]) -> HostRecord:
        """The record that :meth:`detail` was of."""
        names = ("counted", "turned", "last", "way_back", "touched")
        return cls(State(state), number, **{name: detail[name] for name in names})


class Phase(str, Enum):
    """What the rollout as a whole is about."""

    RUNNING = "running"
    PAUSED = "paused"  # begins nothing new, keeps its claims
    STOPPING = "stopping"  # the budget is spent: what is in hand ends
    CANCELLING = "cancelling"  # the operator's word: what is in hand ends
    ENDED = "ended"


@dataclass(frozen=True)
class Control:
    """The rollout as a whole. ``reason`` is why it is not running; times are seconds since the epoch.

    ``forgiven``: failures before the operator's last resume, which the budget does not see any more.
    ``accepted``: the operator has let this stage's gate pass. ``down`` and ``idle`` are what was last observed.
    """

    phase: Phase = Phase.RUNNING
    reason: str | None = None
    outcome: str | None = None
    stage: int = 0
    soak_until: float | None = None
    forgiven: int = 0
    accepted: int = -1
    down: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As the store keeps it."""
        return {**asdict(self), "phase": self.phase.value, "down": list(self.down), "idle": list(self.idle)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Control:
        """The control that :meth:`as_json` was of."""
        names = ("reason", "outcome", "stage", "soak_until", "forgiven", "accepted")
        return cls(
            Phase(document["phase"]),
            **{name: document[name] for name in names},
            down=tuple(document["down"]),
            idle=tuple(document["idle"]),
        )
