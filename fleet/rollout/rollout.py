"""A rolling upgrade as decisions: what begins next, and what a result means for everything else.

:class:`Rollout` reaches no host. Its caller asks :meth:`Rollout.next` for actions, carries each out, and gives the
results to :meth:`Rollout.take`; anything an operator says comes by ``pause``, ``resume``, ``cancel``, ``roll_back``.
Every call that decides something keeps it in the store before it returns, so an action that was handed out is always
of a state that is kept. After a crash :meth:`Rollout.load` hands out again what was in hand, under the same numbers: a
host that has a number's work in its journal answers from there.

One thread calls it. After an error of the store the object is of no use; load the rollout again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fleet.core.errors import RefusedError
from fleet.rollout import gate
from fleet.rollout.documents import document_of, from_document
from fleet.rollout.limits import Limits
from fleet.rollout.members import Member, Unit
from fleet.rollout.port import Clock, Persistence, Transition
from fleet.rollout.queue import StageQueue
from fleet.rollout.record import COUNTED, Control, HostRecord, Phase, Result
from fleet.rollout.stages import stages_of
from fleet.rollout.states import Availability, State
from fleet.rollout.steps import RESTING, Situation, after_result, at_rest, moved
from fleet.rollout.strategy import Strategy
from fleet.rollout.window import Window


@dataclass(frozen=True)
class Action:
    """Something to be done on a host now: the work of ``state``. ``number`` names it, here and in its journal."""

    host: str
    state: State
    number: int


class Rollout:
    """See the module. Made by :meth:`register` or :meth:`load`."""

    def __init__(
        self, run: str, strategy: Strategy, members: Sequence[Member], store: Persistence, clock: Clock
    ) -> None:
        self.run = run
        self.strategy = strategy
        self.members = tuple(members)
        self.stages = stages_of(strategy, members)
        self.limits = Limits(strategy, members)
        self.control = Control()
        self._store = store
        self._clock = clock
        self._now = clock.now()
        self._revision = 0
        self._unusable = False
        self._units = {name: unit for stage in self.stages for unit in stage.units for name in unit.names}
        self._stage_of = {name: place for place, stage in enumerate(self.stages) for name in stage.hosts}
        self._may_fail = strategy.max_failures.of(len(self._units))
        self._hosts = {name: HostRecord() for name in self._units}
        self._open = Counter(self._stage_of.values())
        self._in_hand: dict[str, None] = {}  # neither waiting nor final; a dict, for its order
        self._counted: dict[str, None] = {}
        self._handed: dict[str, int] = {}
        self._queue = StageQueue(())
        self._transitions: list[Transition] = []
        self._kept_control = self.control

    # ---- coming to be ----

    @classmethod
    def register(
        cls,
        run: str,
        strategy: Strategy,
        members: Sequence[Member],
        store: Persistence,
        clock: Clock,
        *,
        down: Collection[str] = (),
        idle: Collection[str] = (),
    ) -> Rollout:
        """A new rollout. Raises RefusedError where another has one of its hosts, and where nothing is to be done."""
        rollout = cls(run, strategy, members, store, clock)
        if not rollout._hosts:
            raise RefusedError(
                "there is no host to upgrade", remedy="see the plan for what leaves each host out"
            )
        rollout._observe(down, idle)
        rollout._enqueue()
        claims = {member.claim or member.name: member.name for member in members if member.takes_part}
        if len(claims) != len(rollout._hosts):
            raise RefusedError(
                "two hosts of the inventory are reached at the same address", remedy="name the machine once"
            )
        document = document_of(strategy, members)
        rollout._revision = store.register_rollout(run, document, rollout.control.as_json(), claims)
        rollout._kept_control = rollout.control
        return rollout

    @classmethod
    def load(cls, run: str, store: Persistence, clock: Clock) -> Rollout:
        """The rollout as it was kept, and from now on this caller's alone."""
        kept = store.take_up_rollout(run)
        strategy, members = from_document(kept.document)
        rollout = cls(run, strategy, members, store, clock)
        rollout._revision = kept.revision
        rollout.control = rollout._kept_control = Control.from_json(kept.control)
        rollout.limits.observe(rollout.control.down)
        for host, (state, number, detail) in kept.hosts.items():
            rollout._put(host, HostRecord.kept(state, number, detail))
        rollout._enqueue()
        return rollout

    # ---- the caller's loop ----

    def next(self) -> list[Action]:
        """What is to be begun now, each action once. Empty: take results, or wait; :meth:`wake_at` says how long."""
        with self._decision():
            gate.advance(self)
            if self.control.phase is Phase.RUNNING and (self.limits.down or not self.limits.full):
                alike = not self.limits.down  # a unit that is down already needs less room than others
                for unit in self._queue.take(self.limits.room_for, self.window_open, alike=alike):
                    self._begin(unit)
            gate.notice_stuck(self)
        return [self._hand_out(host) for host in self._in_hand if self._is_new(host)]

    def take(self, results: Iterable[Result]) -> int:
        """Take results, of one host or of thousands, in one commit. Returns how many were of current actions.

        A result of an action that is over (given twice, or from before a crash) changes nothing.
        """
        # Failures first: what they stop must not go on in the same breath.
        in_order = sorted(results, key=lambda result: result.outcome not in COUNTED)
        taken = 0
        with self._decision():
            for result in in_order:
                if not self._is_current(result):
                    continue
                taken += 1
                host = result.host
                self._move(host, after_result(self._hosts[host], result, self._at(host)))
                if result.outcome in COUNTED:
                    gate.review(self)
                self._settle(self._units[host])
            gate.review(self)
        return taken

    def observe(self, *, down: Collection[str], idle: Collection[str] = ()) -> None:
        """Take note of all hosts that are down or drained by others now, and of those on which nobody works."""
        with self._decision():
            if self.control.phase is not Phase.ENDED:
                self._observe(down, idle)

    def wake_at(self) -> datetime | None:
        """When :meth:`next` has something to say though no result came: a soak ends, a window opens. None: never."""
        if self.control.phase is not Phase.RUNNING:
            return None
        now = self._clock.now()
        if self.control.soak_until is not None:
            left = self.control.soak_until - now.timestamp()
            return now + timedelta(seconds=max(0.0, left))
        opens = (max((one.opens(now) for one in self._windows(unit)), default=now) for unit in self._queue)
        return min((at for at in opens if at > now), default=None)

    def waits_for(self) -> str | None:
        """Why nothing is begun though hosts wait, in words; None where they need only wait for those in hand."""
        return gate.waits_for(self)

    # ---- the operator ----

    def pause(self, reason: str = "the operator paused it") -> None:
        """Begin nothing new. Hosts that are not changed yet go back to their users, the others end."""
        with self._decision():
            if self.control.phase is Phase.RUNNING:
                self.turn(Phase.PAUSED, reason)

    def resume(self) -> None:
        """Go on after a pause: its reason is accepted, and the budget begins anew."""
        with self._decision():
            if self.control.phase is Phase.PAUSED:
                accepted = self.control.stage if self.stage_is_over else self.control.accepted
                self.set(phase=Phase.RUNNING, reason=None, forgiven=len(self._counted), accepted=accepted)

    def cancel(self) -> None:
        """Begin nothing more at all; it ends when what is in hand has."""
        with self._decision():
            if self.control.phase in (Phase.RUNNING, Phase.PAUSED):
                self.turn(Phase.CANCELLING, "the operator cancelled it")
            gate.review(self)

    def roll_back(self) -> list[str]:
        """While paused: bring hosts that failed back to their previous packages. Returns which can be."""
        with self._decision():
            if self.control.phase is not Phase.PAUSED:
                return []
            able = [
                host
                for host, record in self._hosts.items()
                if record.state is State.FAILED and record.touched and record.way_back
            ]
            for host in able:
                self._move(host, moved(self._hosts[host], State.ROLLBACK_INSTALLING))
        return able

    # ---- what others may see ----

    @property
    def hosts(self) -> Mapping[str, HostRecord]:
        """Every host that takes part."""
        return self._hosts

    @property
    def counted(self) -> Collection[str]:
        """Hosts that failed, were unreachable or overdue, in the order found."""
        return self._counted.keys()

    @property
    def may_fail(self) -> int:
        """How many hosts may."""
        return self._may_fail

    @property
    def in_hand(self) -> Collection[str]:
        """Hosts that are neither waiting nor at an end."""
        return self._in_hand.keys()

    @property
    def waiting_units(self) -> StageQueue:
        """Units of this stage that could begin."""
        return self._queue

    @property
    def now(self) -> datetime:
        """The time of the decision that is being made."""
        return self._now

    @property
    def stage_is_over(self) -> bool:
        """Whether every host of the current stage has come to an end."""
        return self._open[self.control.stage] == 0

    @property
    def is_over(self) -> bool:
        """Whether every host has."""
        return not any(self._open.values())

    # ---- for gate.py ----

    def set(self, **changes: Any) -> None:
        """Change the control; kept with the decision that is being made."""
        self.control = replace(self.control, **changes)

    def turn(self, phase: Phase, reason: str) -> None:
        """Begin nothing more; what was drained and not changed is given back."""
        self.set(phase=phase, reason=reason)
        for host in list(self._in_hand):
            self._settle(self._units[host])

    def enter_stage(self, stage: int) -> None:
        """Let the units of this stage begin."""
        self.set(stage=stage, soak_until=None)
        self._enqueue()

    def window_open(self, unit: Unit) -> bool:
        """Whether the unit may be disturbed at this hour."""
        return all(window.is_open(self._now) for window in self._windows(unit))

    # ---- within a decision ----

    @contextmanager
    def _decision(self) -> Iterator[None]:
        """Decide, then keep it. What fails on the way leaves an object that is ahead of the store, and unusable."""
        if self._unusable:
            raise RefusedError(
                "the store did not take this rollout's last decision",
                remedy=f"when the store works again: fleet resume {self.run}",
            )
        self._unusable = True
        self._now = self._clock.now()
        yield
        control = self.control.as_json() if self.control != self._kept_control else None
        if self._transitions or control is not None:
            ended = self.control.phase is Phase.ENDED
            self._revision = self._store.commit_rollout(
                self.run, self._revision, self._transitions, control, ended=ended
            )
            self._kept_control = self.control
            self._transitions = []
        self._unusable = False

    def _move(self, host: str, record: HostRecord) -> None:
        self._transitions.append((host, record.number, record.state.value, record.detail()))
        self._put(host, record)

    def _put(self, host: str, record: HostRecord) -> None:
        """Make this the host's record, and count it where it is counted."""
        before, now = self._hosts[host].meaning, record.meaning
        self._hosts[host] = record
        self._open[self._stage_of[host]] += before.final - now.final
        if now.availability is Availability.IN_SERVICE:
            self.limits.release(host)
        else:
            self.limits.hold(host)
        if now.final or record.state is State.WAITING:
            self._in_hand.pop(host, None)
        else:
            self._in_hand[host] = None
        if record.counted is not None:
            self._counted[host] = None

    def _at(self, host: str) -> Situation:
        unit = self._units[host]
        mates = [self._hosts[name] for name in unit.names if name != host]

        def may_go_on() -> bool:
            running = self.control.phase is Phase.RUNNING
            return running and self.window_open(unit) and not self.limits.exceeded_at(host)

        return Situation(may_go_on, mates, self.strategy.on_failure)

    def _settle(self, unit: Unit) -> None:
        """Move the hosts of a unit that have no work in hand, until nothing follows from anything any more."""
        again = True
        while again:
            again = False
            for host in (name for name in unit.names if self._hosts[name].state in RESTING):
                after = at_rest(self._hosts[host], self._at(host))
                if after is not None:
                    self._move(host, after)
                    again = True
        self._wait_again(unit)

    def _wait_again(self, unit: Unit) -> None:
        left = [host for host in unit.names if not self._hosts[host].meaning.final]
        if left and all(self._hosts[host].state is State.WAITING for host in left):
            if self._stage_of[left[0]] == self.control.stage:
                self._queue.add(unit)
        else:
            self._queue.remove(unit)

    def _begin(self, unit: Unit) -> None:
        for host in unit.names:
            if self._hosts[host].state is State.WAITING:
                self._move(host, moved(self._hosts[host], State.PREFLIGHT))

    def _enqueue(self) -> None:
        units = self.stages[self.control.stage].units
        self._queue = StageQueue(units)
        self._queue.prefer(self.control.idle)
        for unit in units:
            self._wait_again(unit)

    def _observe(self, down: Collection[str], idle: Collection[str]) -> None:
        self.limits.observe(down)
        known = {member.name for member in self.members}
        self.set(down=tuple(sorted(self.limits.down)), idle=tuple(sorted(known.intersection(idle))))
        self._queue.prefer(self.control.idle)

    def _windows(self, unit: Unit) -> Collection[Window]:
        return (self.strategy.window,) if self.strategy.window is not None else unit.windows

    def _is_current(self, result: Result) -> bool:
        record = self._hosts.get(result.host)
        return record is not None and record.meaning.work and record.number == result.number

    def _is_new(self, host: str) -> bool:
        record = self._hosts[host]
        return record.meaning.work and self._handed.get(host) != record.number

    def _hand_out(self, host: str) -> Action:
        record = self._hosts[host]
        self._handed[host] = record.number
        return Action(host, record.state, record.number)
