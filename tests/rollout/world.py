"""Stand-ins for what surrounds a rollout: a clock, a store in memory, and hosts that know what was done to them.

The hosts are the witness: what they count (transactions, who is drained) comes from the work that reached them, not
from what the rollout believes.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from fleet.core.errors import RefusedError
from fleet.rollout.amounts import Amount
from fleet.rollout.members import Member
from fleet.rollout.port import Transition
from fleet.rollout.record import Outcome, Phase, Result
from fleet.rollout.rollout import Action, Rollout
from fleet.rollout.states import State
from fleet.rollout.strategy import Strategy

RUN = "7f3a12c4d5e6"
NOON = datetime(2026, 12, 1, 12, 0, tzinfo=timezone.utc)
OLD, NEW = "570.172.08", "580.159.04"


class PlayedClock:
    """A clock that goes when it is told to."""

    def __init__(self, at: datetime = NOON) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def go_on(self, **by: float) -> None:
        self.at += timedelta(**by)


@dataclass
class KeptInMemory:
    document: Mapping[str, Any]
    control: Mapping[str, Any]
    revision: int
    hosts: dict[str, tuple[str, int, Mapping[str, Any]]] = field(default_factory=dict)


class Cut(Exception):
    """The controller was killed here."""


class MemoryStore:
    """Keeps what it is given through JSON, as a database would. ``cut_before`` and ``cut_after`` kill at a commit."""

    def __init__(self) -> None:
        self.kept: dict[str, KeptInMemory] = {}
        self.claims: dict[str, str] = {}
        self.commits = 0
        self.history: list[Transition] = []
        self.cut_before: int | None = None
        self.cut_after: int | None = None

    def register_rollout(
        self, run: str, document: Mapping[str, Any], control: Mapping[str, Any], claims: Mapping[str, str]
    ) -> int:
        taken = [claim for claim in claims if claim in self.claims]
        if taken:
            raise RefusedError(f"rollout {self.claims[taken[0]]} has {taken[0]}")
        self.claims.update(dict.fromkeys(claims, run))
        self.kept[run] = KeptInMemory(_through_json(document), _through_json(control), 1)
        return 1

    def commit_rollout(
        self,
        run: str,
        revision: int,
        transitions: Sequence[Transition],
        control: Mapping[str, Any] | None,
        *,
        ended: bool = False,
    ) -> int:
        self.commits += 1
        if self.commits == self.cut_before:
            raise Cut
        kept = self.kept[run]
        if kept.revision != revision:
            raise RefusedError("taken up by another process")
        for host, number, state, detail in transitions:
            kept.hosts[host] = (state, number, _through_json(detail))
            self.history.append((host, number, state, detail))
        if control is not None:
            kept.control = _through_json(control)
        if ended:
            self.claims = {claim: other for claim, other in self.claims.items() if other != run}
        kept.revision += 1
        if self.commits == self.cut_after:
            raise Cut
        return kept.revision

    def take_up_rollout(self, run: str) -> KeptInMemory:
        self.kept[run].revision += 1
        return copy.deepcopy(self.kept[run])


def _through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


class Hosts:
    """What is true of the hosts. Work of a number that is in a host's journal is answered from there, as agents do."""

    def __init__(self, names: Collection[str]) -> None:
        self.version = dict.fromkeys(names, OLD)
        self.drained: set[str] = set()
        self.dead: set[str] = set()
        self.transactions: dict[str, list[str]] = {name: [] for name in names}
        self.began: list[tuple[str, State]] = []
        self._journal: dict[tuple[str, int], Result] = {}

    def act(self, action: Action, outcome: Outcome = Outcome.OK, reason: str | None = None) -> Result:
        """Do an action's work, or answer from the journal."""
        name = (action.host, action.number)
        if name not in self._journal:
            self.began.append((action.host, action.state))
            if outcome in (Outcome.OK, Outcome.SKIPPED):
                self._do(action, outcome)
            if outcome is Outcome.UNREACHABLE:
                self.dead.add(action.host)
            way_back = True if action.state is State.FETCHING else None
            self._journal[name] = Result(*name, outcome, reason, way_back)
        return self._journal[name]

    @property
    def out(self) -> set[str]:
        """Hosts that nobody can use."""
        return self.drained | self.dead

    def _do(self, action: Action, outcome: Outcome) -> None:
        host, state = action.host, action.state
        if state is State.DRAINING:
            self.drained.add(host)
        elif state in (State.UNDRAINING, State.ROLLBACK_UNDRAINING, State.RETURNING):
            self.drained.discard(host)
        elif state in (State.INSTALLING, State.ROLLBACK_INSTALLING):
            assert host in self.drained, f"{host} is changed while people work on it"
            self.version[host] = NEW if state is State.INSTALLING else OLD
            self.transactions[host].append(self.version[host])


def members(*shape: str) -> list[Member]:
    """``"a1@r1"`` is host a1 of domain r1; ``"a1@r1/u"`` moves with others of unit u."""
    found = []
    for text in shape:
        rest, _, unit = text.partition("/")
        name, _, domain = rest.partition("@")
        found.append(Member(name, unit or name, domain or None))
    return found


def some(count: int) -> list[Member]:
    return [Member(f"gpu{number:03d}", f"gpu{number:03d}") for number in range(1, count + 1)]


def strategy(**changes: Any) -> Strategy:
    """No canary and no questions, unless said; amounts as operators write them."""
    amounts = ("max_unavailable", "max_unavailable_per_domain", "max_failures")
    read = {key: Amount.read(value) if key in amounts else value for key, value in changes.items()}
    if "batches" in read:
        read["batches"] = tuple(Amount.read(part) for part in read["batches"].split(","))
    if "max_unavailable_per_domain" in read:
        read.setdefault("failure_domain", "rack")
    return Strategy(**{"canary": 0, "confirm": False, **read})


class Bench:
    """A rollout with a store, a clock and hosts around it."""

    def __init__(self, the_members: Sequence[Member], the_strategy: Strategy, **observed: Any) -> None:
        self.clock = PlayedClock()
        self.store = MemoryStore()
        self.hosts = Hosts([member.name for member in the_members])
        self.plans: dict[tuple[str, State], tuple[Outcome, str | None]] = {}
        self.rollout = Rollout.register(RUN, the_strategy, the_members, self.store, self.clock, **observed)

    def will(self, host: str, state: State, outcome: Outcome, reason: str | None = None) -> None:
        """Let the work of this state end so."""
        self.plans[(host, state)] = (outcome, reason)

    def answer(self, action: Action) -> Result:
        return self.hosts.act(action, *self.plans.get((action.host, action.state), (Outcome.OK, None)))

    def reload(self) -> None:
        self.rollout = Rollout.load(RUN, self.store, self.clock)

    def until(self, state: State) -> list[Action]:
        """Play until actions of this state are handed out, and hand them over undone."""
        for _ in range(1000):
            actions = self.rollout.next()
            held = [action for action in actions if action.state is state]
            self.rollout.take([self.answer(action) for action in actions if action.state is not state])
            if held:
                return held
        raise AssertionError(f"{state} never came")

    def play(self) -> Phase:
        """Play until nothing more is begun."""
        while actions := self.rollout.next():
            self.rollout.take([self.answer(action) for action in actions])
        return self.rollout.control.phase

    def states(self) -> dict[str, str]:
        return {host: record.state.value for host, record in self.rollout.hosts.items()}
