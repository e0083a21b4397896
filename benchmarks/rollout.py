"""Seconds to decide an upgrade of 10,000 simulated hosts, 2 % failing, every limit watched from outside.

Run: ``python benchmarks/rollout.py [HOSTS]``. The class is the one that upgrades real hosts; only the hosts and their
time are simulated, so results come in any order. Decided twice with decisions kept in memory as JSON: in batches with a
limit for each rack, and in units of 18 that move as one. Then by rack again with every decision in SQLite, waited for,
in bursts as a controller takes results that came while it wrote. The budget is a minute each (issue 6). Exits 1 if a
limit was broken, a host upgraded twice, or what is loaded differs from what was decided.
"""

from __future__ import annotations

import heapq
import json
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from sys import argv
from typing import Any

from fleet.rollout.amounts import Amount
from fleet.rollout.members import Member
from fleet.rollout.port import Persistence, Transition
from fleet.rollout.record import COUNTED, Outcome, Phase, Result
from fleet.rollout.rollout import Action, Rollout
from fleet.rollout.states import BEFORE_DRAIN, State
from fleet.rollout.strategy import OnFailure, Strategy, limits_of
from fleet.store import RolloutRow, Store

FAILING = 0.02
RACK = 40
UNIT = 18
#: Results of so many simulated seconds are taken together.
BURST_S, STORE_BURST_S = 5.0, 60.0
#: Simulated seconds of each state's work, on average.
WORK_S = {State.DRAINING: 1800.0, State.INSTALLING: 240.0, State.RESTARTING: 420.0, State.BENCHMARKING: 90.0}
FAILS_AT = (State.PREFLIGHT, State.INSTALLING, State.RESTARTING, State.VERIFYING, State.BENCHMARKING)
ENDS = (Outcome.FAILED, Outcome.FAILED, Outcome.UNREACHABLE, Outcome.TIMED_OUT)


class KeptAsJson:
    """The least that keeps decisions: what a store is given, as text."""

    def __init__(self) -> None:
        self.document = self.control = ""
        self.texts: dict[str, tuple[str, int, str]] = {}

    def register_rollout(self, run: str, document: Any, control: Any, claims: Mapping[str, str]) -> int:
        self.document, self.control = json.dumps(document), json.dumps(control)
        return 1

    def commit_rollout(
        self, run: str, revision: int, transitions: Sequence[Transition], control: Any, *, ended: bool = False
    ) -> int:
        for host, number, state, detail in transitions:
            self.texts[host] = (state, number, json.dumps(detail))
        if control is not None:
            self.control = json.dumps(control)
        return revision + 1

    def take_up_rollout(self, run: str) -> RolloutRow:
        hosts = {
            host: (state, number, json.loads(text)) for host, (state, number, text) in self.texts.items()
        }
        return RolloutRow(run, json.loads(self.document), json.loads(self.control), 1, "", None, hosts)


class SimulatedClock:
    def __init__(self) -> None:
        self.at = datetime(2026, 12, 1, 12, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self.at


class SimulatedHosts:
    """Does the work in simulated time, and watches the limits by what it was told to do alone."""

    def __init__(
        self, members: Sequence[Member], overall: int, per_domain: int | None, chance: random.Random
    ) -> None:
        self.domain = {member.name: member.domain for member in members}
        self.fails = {
            member.name: (chance.choice(FAILS_AT), chance.choice(ENDS))
            for member in chance.sample(list(members), int(len(members) * FAILING))
        }
        self.overall, self.per_domain, self.chance = overall, per_domain, chance
        self.out: set[str] = set()
        self.out_of: Counter[str | None] = Counter()
        self.most_out = self.most_in_domain = self.broken = 0
        self.upgrades: Counter[str] = Counter()
        self.at_work: list[tuple[float, int, Action]] = []
        self.begun = 0

    def begin(self, action: Action, now: float) -> None:
        if action.state not in BEFORE_DRAIN and action.host not in self.out:
            self._take_out(action.host)
        self.begun += 1
        takes = WORK_S.get(action.state, 20.0) * self.chance.uniform(0.5, 2.0)
        heapq.heappush(self.at_work, (now + takes, self.begun, action))

    def ended_by(self, now: float) -> list[Result]:
        results = []
        while self.at_work and self.at_work[0][0] <= now:
            results.append(self._end(heapq.heappop(self.at_work)[2]))
        return results

    def _end(self, action: Action) -> Result:
        host, state = action.host, action.state
        at, end = self.fails.get(host, (None, Outcome.OK))
        outcome = end if state is at else Outcome.OK
        if state is State.INSTALLING and outcome is Outcome.OK:
            self.upgrades[host] += 1
        if outcome is Outcome.UNREACHABLE and host not in self.out:
            self._take_out(host, ours=False)
        given_back = (State.UNDRAINING, State.RETURNING, State.ROLLBACK_UNDRAINING)
        if outcome is Outcome.OK and state in given_back:
            self.out.discard(host)
            self.out_of[self.domain[host]] -= 1
        return Result(host, action.number, outcome, way_back=True if state is State.FETCHING else None)

    def _take_out(self, host: str, *, ours: bool = True) -> None:
        self.out.add(host)
        self.out_of[self.domain[host]] += 1
        here = self.out_of[self.domain[host]]
        self.most_out, self.most_in_domain = max(self.most_out, len(self.out)), max(self.most_in_domain, here)
        over = len(self.out) > self.overall or (self.per_domain is not None and here > self.per_domain)
        self.broken += ours and over


def play(rollout: Rollout, hosts: SimulatedHosts, clock: SimulatedClock, burst_s: float) -> int:
    """To the end. Returns how many bursts of results it took."""
    bursts = 0
    while rollout.control.phase is not Phase.ENDED:
        for action in rollout.next():
            hosts.begin(action, clock.at.timestamp())
        if hosts.at_work:
            ends = max(hosts.at_work[0][0], clock.at.timestamp()) + burst_s
            clock.at = datetime.fromtimestamp(ends, timezone.utc)
            rollout.take(hosts.ended_by(ends))
            bursts += 1
        elif (wake := rollout.wake_at()) is not None:
            clock.at = wake + timedelta(milliseconds=1)
        elif rollout.control.phase is Phase.PAUSED:
            raise SystemExit(f"paused: {rollout.control.reason}")
    return bursts


def measure(
    name: str, members: list[Member], strategy: Strategy, store: Persistence, burst_s: float = BURST_S
) -> bool:
    """One rollout; whether every limit held and every host that can be was upgraded once."""
    clock, chance = SimulatedClock(), random.Random(6)
    overall, by_domain = limits_of(strategy, members)
    per_domain = min(by_domain.values(), default=None)
    hosts = SimulatedHosts(members, overall, per_domain, chance)
    began = time.perf_counter()
    rollout = Rollout.register("f" * 12, strategy, members, store, clock)
    bursts = play(rollout, hosts, clock, burst_s)
    took = time.perf_counter() - began
    began = time.perf_counter()
    again = Rollout.load("f" * 12, store, clock)
    loaded = time.perf_counter() - began
    states = Counter(record.state.value for record in rollout.hosts.values())
    transitions = sum(record.number for record in rollout.hosts.values())
    failed = [record for record in rollout.hosts.values() if record.counted in {one.value for one in COUNTED}]
    good = not hosts.broken and max(hosts.upgrades.values()) == 1 and dict(again.hosts) == dict(rollout.hosts)
    print(f"{name}: {len(members)} hosts, {len(failed)} failing")
    print(
        f"  decided and kept          {took:8.2f} s   {transitions} transitions, {bursts} bursts of results"
    )
    print(f"  loaded again              {loaded:8.2f} s   equal: {dict(again.hosts) == dict(rollout.hosts)}")
    print(f"  out at once               {hosts.most_out:8}     limit {overall}; broken {hosts.broken} times")
    print(f"  out at once in a domain   {hosts.most_in_domain:8}     limit {per_domain or 'none'}")
    print(f"  ended                     {dict(states)}")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"  most memory so far        {most:8} MiB")
    print(flush=True)
    return good


def main() -> None:
    count = int(argv[1]) if len(argv) > 1 else 10_000
    racks = [Member(f"gpu{number:05d}", f"gpu{number:05d}", f"r{number // RACK}") for number in range(count)]
    units = [Member(f"gpu{number:05d}", f"rack {number // UNIT}", None) for number in range(count)]
    common = {"max_failures": Amount(percent=3), "confirm": False, "soak_s": 1800.0}
    by_rack = Strategy(
        canary=0,
        batches=(Amount(percent=10), Amount(percent=50)),
        max_unavailable=Amount(percent=10),
        failure_domain="rack",
        max_unavailable_per_domain=Amount(count=5),
        on_failure=OnFailure.ROLLBACK,
        **common,
    )
    by_unit = Strategy(
        canary=0, max_unavailable=Amount(percent=10), unit="rack", on_failure=OnFailure.ROLLBACK, **common
    )
    good = [
        measure("by rack, in memory", racks, by_rack, KeptAsJson()),
        measure("by unit, in memory", units, by_unit, KeptAsJson()),
    ]
    with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{Path(folder) / 'fleet.db'}") as store:
        good.append(measure("by rack, in SQLite", racks, by_rack, store, STORE_BURST_S))
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
