"""Every limit holds under any order of results, failures, operators' words, crashes: a state machine by hypothesis.

The model beside it is the hosts themselves (:class:`tests.rollout.world.Hosts`) and sets kept here from what was
handed out; nothing of the rollout's own accounts is asked.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet.rollout.amounts import Amount
from fleet.rollout.members import Member
from fleet.rollout.record import COUNTED, Outcome, Phase
from fleet.rollout.rollout import Action
from fleet.rollout.states import BEFORE_DRAIN, LEGAL, UNDER_CHANGE, State
from fleet.rollout.strategy import OnFailure, check
from fleet.rollout.window import Window
from tests.rollout.world import NEW, OLD, RUN, Bench, strategy

BACK = (
    State.ROLLBACK_INSTALLING,
    State.ROLLBACK_RESTARTING,
    State.ROLLBACK_VERIFYING,
    State.ROLLBACK_RESTORING,
    State.ROLLBACK_UNDRAINING,
)


def allowed(state: State) -> list[Outcome]:
    """How the work of a state can end; success first, and often."""
    kinds = [Outcome.OK] * 6 + [Outcome.FAILED, Outcome.UNREACHABLE, Outcome.TIMED_OUT]
    if state is State.PREFLIGHT:
        kinds.append(Outcome.CURRENT)
    if state in BEFORE_DRAIN:
        kinds.append(Outcome.BLOCKED)
    if state is State.DRAINING:
        kinds.append(Outcome.SKIPPED)
    return kinds


class LimitsHold(RuleBasedStateMachine):
    """A small fleet, driven by chance."""

    @initialize(data=st.data())
    def fleet(self, data: st.DataObject) -> None:
        shape = data.draw(
            st.lists(
                st.tuples(st.sampled_from("ab"), st.sampled_from(["", "", "u", "v"])), min_size=1, max_size=7
            )
        )
        fleet = [
            Member(f"h{number}", f"{unit} {domain}" if unit else f"h{number}", domain)
            for number, (domain, unit) in enumerate(shape)
        ]
        self.units = {one.name: one.unit for one in fleet}
        sizes = Counter(one.unit for one in fleet)
        largest = max(sizes.values())
        self.limit = data.draw(st.integers(largest, len(fleet)))
        self.per_domain = data.draw(st.none() | st.integers(largest, max(4, largest)))
        self.may_fail = data.draw(st.integers(0, 3))
        self.window = data.draw(st.sampled_from([None, Window.read("11:00-14:00")]))
        self.canary = data.draw(st.integers(0, 2))
        self.policy = data.draw(st.sampled_from(OnFailure))
        said = strategy(
            canary=min(self.canary, len(fleet)),
            batches=data.draw(st.sampled_from(["100%", "1,50%", "1"])),
            max_unavailable=self.limit,
            max_failures=self.may_fail,
            soak_s=data.draw(st.sampled_from([0.0, 600.0])),
            window=self.window,
            on_failure=self.policy,
            **({} if self.per_domain is None else {"max_unavailable_per_domain": self.per_domain}),
        )
        assert check(said, fleet) == []
        assert said.max_failures == Amount(count=self.may_fail)
        self.domains = {one.name: str(one.domain) for one in fleet}
        self.bench = Bench(fleet, said)
        self.hand: dict[str, Action] = {}
        self.down: set[str] = set()
        self.bad: set[str] = set()  # told failed, unreachable or overdue since the last resume
        self.in_canary: set[str] = {
            name for stage in self.bench.rollout.stages if stage.gate for name in stage.hosts
        }
        self.said: dict[str, set[Outcome]] = {name: set() for name in self.units}
        self.seen: set[tuple[str, int]] = set()
        self.resumed = 0

    # ---- what may happen ----

    @rule()
    def ask(self) -> None:
        for action in self.bench.rollout.next():
            if (action.host, action.number) not in self.seen:  # after a crash it comes again
                self.seen.add((action.host, action.number))
                self.see(action)
            self.hand[action.host] = action

    @precondition(lambda self: self.hand)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """Any number of hosts answer at once, each in any way that it can."""
        names = data.draw(st.lists(st.sampled_from(sorted(self.hand)), min_size=1, unique=True))
        results = []
        for name in names:
            action = self.hand.pop(name)
            outcome = data.draw(st.sampled_from(allowed(action.state)))
            result = self.bench.hosts.act(action, outcome)
            self.said[name].add(result.outcome)
            if result.outcome in COUNTED:
                self.bad.add(name)
            results.append(result)
        self.bench.rollout.take(results)

    @rule(rounds=st.integers(1, 6))
    def go_well(self, rounds: int) -> None:
        """For a while every host does as it should: without this, chance seldom comes far."""
        for _ in range(rounds):
            self.ask()
            results = [self.bench.hosts.act(action) for action in self.hand.values()]
            self.hand = {}
            for result in results:
                self.said[result.host].add(result.outcome)
                if result.outcome in COUNTED:
                    self.bad.add(result.host)
            self.bench.rollout.take(results)

    @precondition(lambda self: self.hand)
    @rule(data=st.data(), told=st.booleans())
    def crash(self, data: st.DataObject, told: bool) -> None:
        """The controller dies; a host may have ended its work unheard. Everything comes again from the store."""
        if told:
            action = self.hand[data.draw(st.sampled_from(sorted(self.hand)))]
            self.bench.hosts.act(action, data.draw(st.sampled_from(allowed(action.state))))
        before = (
            self.bench.rollout.control,
            dict(self.bench.rollout.hosts),
            list(self.bench.rollout.in_hand),
        )
        out = {name for name in self.units if self.bench.rollout.limits.out(name)}
        waiting = sorted(unit.name for unit in self.bench.rollout.waiting_units)
        held = {name: (one.state, one.number) for name, one in self.hand.items()}
        self.bench.reload()
        rollout = self.bench.rollout
        assert (rollout.control, dict(rollout.hosts)) == before[:2]
        assert {name for name in self.units if rollout.limits.out(name)} == out
        assert sorted(rollout.in_hand) == sorted(before[2])
        assert sorted(unit.name for unit in rollout.waiting_units) == waiting
        self.hand = {}
        self.ask()
        again = {name: (one.state, one.number) for name, one in self.hand.items()}
        assert held.items() <= again.items(), "work that was in hand is handed out again, under its number"

    @rule(data=st.data())
    def others(self, data: st.DataObject) -> None:
        """Others take hosts down and bring them back."""
        self.down = set(data.draw(st.lists(st.sampled_from(sorted(self.units)), max_size=2, unique=True)))
        self.bench.rollout.observe(down=self.down)

    @rule()
    def pause(self) -> None:
        self.bench.rollout.pause()

    @rule()
    def resume(self) -> None:
        if self.bench.rollout.control.phase is Phase.PAUSED:
            self.bad = set()
            self.resumed += 1
        self.bench.rollout.resume()

    @rule(chance=st.integers(0, 9))
    def cancel(self, chance: int) -> None:
        if chance == 0:
            self.bench.rollout.cancel()

    @rule(minutes=st.sampled_from([1, 15, 240]))
    def time_passes(self, minutes: int) -> None:
        self.bench.clock.go_on(minutes=minutes)

    @rule()
    def roll_back(self) -> None:
        self.bench.rollout.roll_back()

    # ---- what must hold ----

    def see(self, action: Action) -> None:
        """The moment an action is handed out is the moment its host is disturbed."""
        host, state = action.host, action.state
        mates = {name for name, unit in self.units.items() if unit == self.units[host]}
        if state is State.PREFLIGHT:
            assert self.bench.rollout.control.phase is Phase.RUNNING
            assert len(self.bad) <= self.may_fail or not self.bad, "nothing begins when the budget is spent"
            if host not in self.in_canary and not self.resumed:
                assert all(self.bench.hosts.version[name] == NEW for name in self.in_canary)
                assert not self.bad & self.in_canary
        if state is State.DRAINING:
            out = self.bench.hosts.out | self.down | {host}
            # Hosts of the same decision are disturbed one after the other; those before are in hand.
            out |= {name for name, one in self.hand.items() if one.state not in BEFORE_DRAIN}
            assert len(out) <= self.limit, f"{sorted(out)} are out and {self.limit} may be"
            if self.per_domain is not None:
                here = [name for name in out if self.domains[name] == self.domains[host]]
                assert len(here) <= self.per_domain
        if state is State.INSTALLING:
            for name in mates:
                assert name in self.bench.hosts.drained or Outcome.CURRENT in self.said[name]
        if state in BACK:
            assert NEW in self.bench.hosts.transactions[host] or not self.bench.hosts.transactions[host]

    @invariant()
    def nobody_is_changed_twice(self) -> None:
        if not hasattr(self, "bench"):
            return
        for host, done in self.bench.hosts.transactions.items():
            assert done in ([], [NEW], [NEW, OLD], [OLD]), f"{host}: {done}"

    @invariant()
    def a_unit_in_service_has_one_version(self) -> None:
        if not hasattr(self, "bench"):
            return
        hosts = self.bench.hosts
        for unit in set(self.units.values()):
            mates = [
                name
                for name in self.units
                if self.units[name] == unit and Outcome.CURRENT not in self.said[name]
            ]
            serving = {hosts.version[name] for name in mates if name not in hosts.out}
            if len(serving) > 1:
                assert any(self.said[name] & COUNTED for name in mates), (
                    f"{unit} mixes {serving} though none failed"
                )

    @invariant()
    def transitions_are_legal_and_numbered(self) -> None:
        if not hasattr(self, "bench"):
            return
        at: dict[str, tuple[int, State]] = {}
        for host, number, state, _ in self.bench.store.history:
            before, was = at.get(host, (0, State.WAITING))
            assert number == before + 1
            assert State(state) in LEGAL[was]
            at[host] = (number, State(state))

    @invariant()
    def memory_and_store_agree(self) -> None:
        if not hasattr(self, "bench"):
            return
        kept = self.bench.store.kept[RUN]
        for host, record in self.bench.rollout.hosts.items():
            if record.number:
                assert kept.hosts[host][:2] == (record.state.value, record.number)
        assert kept.control["phase"] == self.bench.rollout.control.phase.value

    @invariant()
    def an_end_leaves_nothing_behind(self) -> None:
        if not hasattr(self, "bench") or self.bench.rollout.control.phase is not Phase.ENDED:
            return
        assert self.bench.store.claims == {}
        left = {State(state) for state in self.bench.states().values()}
        assert not left & UNDER_CHANGE
        for host, record in self.bench.rollout.hosts.items():
            if record.state in (State.DONE, State.ROLLED_BACK, State.SKIPPED):
                assert host not in self.bench.hosts.drained

    def teardown(self) -> None:
        """Left alone with hosts that do as they should, it comes to rest: an end, a pause, or waiting for others."""
        if not hasattr(self, "bench"):
            return
        self.bench.reload()
        self.bench.rollout.observe(down=[])
        self.hand = {}
        for _ in range(200):
            actions = self.bench.rollout.next()
            wake = self.bench.rollout.wake_at()
            if not actions and wake is None:
                break
            if not actions and wake is not None:
                self.bench.clock.at = wake
            self.bench.rollout.take([self.bench.hosts.act(action) for action in actions])
        assert self.bench.rollout.control.phase in (Phase.ENDED, Phase.PAUSED)
        assert not self.bench.rollout.in_hand


class TestLimitsHold(LimitsHold.TestCase):  # type: ignore[name-defined,misc]
    """Collected by pytest."""

    settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
