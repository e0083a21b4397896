"""The parent of a run: starts the processes that measure, hands on their lines, and accounts for every test.

It imports no torch. One child per GPU (or one per rank); when a child ends before its tests do, the test it was
in has failed, and new children are started for the ones after it, so that no test spoils another. Ranks
that say nothing for too long are killed: ``timeout``, ``collective_timeout``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time

from fleet.agent.bench.torch_side import children, plan, results
from fleet.agent.bench.torch_side.failures import UNEXPLAINED
from fleet.agent.bench.torch_side.host_link import LOCK
from fleet.agent.bench.torch_side.ranks import FAILED
from fleet.agent.bench.torch_side.session import BUG, UNUSABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Optional

    Json = dict[str, Any]
    Key = tuple[str, tuple[str, ...]]

THREADS = "OMP_NUM_THREADS"
MOST_THREADS = 16
SILENCE_S = {"quick": 60.0, "full": 150.0, "burn": 150.0}


class Account:
    """What has been printed: each result once, the software once."""

    def __init__(self, held: Callable[[Json], bool] = lambda result: False) -> None:
        self.seen: set[Key] = set()
        self.held: list[Json] = []
        self._holds = held
        self._software = False

    def line(self, text: str) -> None:
        """One line of a child."""
        if text.startswith(results.RESULT):
            result = results.read(text)
            if result is None:
                self._print(results.NOTE + "a result that cannot be read: " + text[:500])
            else:
                self.result(result)
        elif text.startswith(results.SOFTWARE):
            if not self._software:
                self._print(text)
            self._software = True
        elif text.startswith(results.LOAD):
            self._print(text)
        elif text.strip():  # a note, or what a library says: whoever reads the output tells them apart
            self._print(text)

    def result(self, result: Json) -> None:
        """One result; the first for a test counts."""
        key = (result["test"], tuple(result["gpus"]))
        if key in self.seen:
            return
        self.seen.add(key)
        if self._holds(result):
            self.held.append(result)
        else:
            results.emit(result)

    def left(self, owed: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, list[str]]]:
        """Those of ``owed`` that have no result yet, in order."""
        return [(test, list(gpus)) for test, gpus in owed if (test, tuple(gpus)) not in self.seen]

    @staticmethod
    def _print(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


class Conductor:
    """One request's run. ``run()`` is the exit code: 70 where a child met a bug of this code, else 0."""

    def __init__(self, request: Json) -> None:
        self._request = request
        self.group: str = request["group"]
        self.suite: str = request["suite"]
        self.gpus: list[str] = request.get("gpu_uuids", [])
        self._begin = time.monotonic()
        self._code = 0
        self.account = Account(lambda result: self.group == "burn" and len(self.gpus) > 1)
        self._silence_s = float(self.parameters.get("silence_s", SILENCE_S[self.suite]))

    @property
    def parameters(self) -> Json:
        """Of the request; what is left of the deadline."""
        found = dict(self._request.get("parameters", {}))
        if found.get("deadline_s") is not None:
            found["deadline_s"] = max(0.0, found["deadline_s"] - (time.monotonic() - self._begin))
        return found

    def run(self) -> int:
        owed = plan.expected(self.group, self.suite, self.gpus)
        wanted = self.parameters.get("tests")
        if wanted is not None:  # by hand: some of the group's tests only
            owed = [each for each in owed if each[0] in wanted]
        folder = tempfile.mkdtemp(prefix="fleet-bench-")
        try:
            if self.group in plan.SEVERAL_GPUS and len(self.gpus) < 2:
                self._refuse(owed, "skipped", "one_gpu", "this needs two GPUs")
            elif self.group in plan.SEVERAL_GPUS:
                self._alone([each for each in owed if each[0] == "peer.copy"], "peers", [self.gpus], folder)
                self._ranks([each for each in owed if each[0] != "peer.copy"], folder)
            elif self.group == "cpu":
                self._alone(owed, "cpu", [[]], folder)
            else:
                self._alone(owed, "gpu", [[uuid] for uuid in self.gpus], folder)
        finally:
            self._compare_held()
            shutil.rmtree(folder, ignore_errors=True)
        return self._code

    def _compare_held(self) -> None:
        """Results of burn wait for those of the other GPUs, then are printed."""
        if not self.account.held:
            return
        from fleet.agent.bench.torch_side.burn import compare_peers

        compare_peers(self.account.held)
        for result in self.account.held:
            results.emit(result)

    def _refuse(self, owed: Iterable[tuple[str, list[str]]], status: str, reason: str, message: str) -> None:
        for test, gpus in owed:
            self.account.result(results.not_measured(test, gpus, status, reason, message))

    def _alone(
        self, owed: Sequence[tuple[str, list[str]]], role: str, drivers: Sequence[list[str]], folder: str
    ) -> None:
        """Processes that do not talk to each other, each driving ``gpus`` of ``drivers``."""
        environment = {
            LOCK: os.environ.get(LOCK) or os.path.join(folder, "lock"),
            THREADS: os.environ.get(THREADS) or str(threads_each(len(drivers))),
        }
        left = self.account.left(owed)
        while left:
            active = [gpus for gpus in drivers if _of(left, gpus)]
            requests = [self._child(role, gpus, _of(left, gpus)) for gpus in active]
            environments = [environment] * len(requests)
            outcome = children.run(requests, environments, lambda _, line: self.account.line(line))
            for number, gpus in enumerate(active):
                self._account_for(_of(self.account.left(left), gpus), outcome.codes[number])
            left = self.account.left(left)

    def _account_for(self, left: Sequence[tuple[str, list[str]]], code: Optional[int]) -> None:
        """After a child: the first test without a result is the one it ended in."""
        if code == BUG:
            self._code = BUG
        if not left or code == UNUSABLE:
            return
        words = "the process that measured it %s" % how_it_ended(code)
        self._refuse(left[:1], "failed", UNEXPLAINED, words)

    def _ranks(self, owed: Sequence[tuple[str, list[str]]], folder: str) -> None:
        """Ranks for all that is left, and again for what is left after a failure."""
        attempt = 0
        while self.account.left(owed):
            left = self.account.left(owed)
            attempt += 1
            store = os.path.join(folder, "store-%d" % attempt)
            outcome, first_failure = self._one_set_of_ranks(left, store)
            if outcome.silent:
                words = "a rank said nothing for %.0f s; all were ended" % self._silence_s
                remaining = self.account.left(owed)
                self._refuse(remaining[:1], "timeout", "collective_timeout", words)
                words = "not begun after %s hung" % remaining[0][0] if remaining else ""
                self._refuse(remaining[1:], "skipped", "collective_timeout", words)
                return
            self._account_for_ranks(self.account.left(owed), left, outcome, first_failure)

    def _account_for_ranks(
        self,
        left: Sequence[tuple[str, list[str]]],
        begun: Sequence[tuple[str, list[str]]],
        outcome: children.Outcome,
        failure: Optional[Json],
    ) -> None:
        """A failure that a rank told is kept with how the others ended; without one, only that is known."""
        ended = [
            "rank %d %s" % (number, how_it_ended(code))
            for number, code in enumerate(outcome.codes)
            if code not in (0, FAILED, None)
        ]
        if failure is not None:
            failure["message"] = "; ".join([*ended, failure["message"]])
            if ended and failure["reason"] == "collective_timeout":  # they waited for one that had ended
                failure.update(status="failed", reason=UNEXPLAINED)
            self.account.result(failure)
        elif left and not outcome.good:
            self._refuse(left[:1], "failed", UNEXPLAINED, "; ".join(ended) or "the ranks ended early")
        elif left:
            self._refuse(left, "failed", UNEXPLAINED, "the ranks ended without a result")

    def _one_set_of_ranks(
        self, left: Sequence[tuple[str, list[str]]], store: str
    ) -> tuple[children.Outcome, Optional[Json]]:
        """(outcome, the first failure that a rank told)."""
        failures: list[Json] = []

        def on_line(number: int, line: str) -> None:
            result = results.read(line) if line.startswith(results.RESULT) else None
            if result is not None:
                if result["status"] == "measured" or result["reason"] == "wrong_result":
                    self.account.result(result)
                elif result["message"] and result["message"].startswith("rank "):
                    failures.append(result)
                else:
                    self.account.result(result)
            else:
                self.account.line(line)

        count = len(self.gpus)
        requests, environments = [], []
        for number in range(count):
            rank = {"number": number, "count": count, "store": store, "silence_s": self._silence_s}
            requests.append(self._child("rank", self.gpus, left, rank=rank))
            threads = os.environ.get(THREADS) or str(threads_each(count))
            environments.append({"RANK": str(number), "WORLD_SIZE": str(count), THREADS: threads})
        outcome = children.run(requests, environments, on_line, self._silence_s, together=True)
        return outcome, failures[0] if failures else None

    def _child(
        self, role: str, gpus: Sequence[str], owed: Sequence[tuple[str, Sequence[str]]], **more: Any
    ) -> list[str]:
        """The argument of one child."""
        request = plan.request(self.group, self.suite, gpus, self.parameters)
        request.update(role=role, owed=[[test, list(of)] for test, of in owed], **more)
        return [json.dumps(request)]


def _of(owed: Iterable[tuple[str, list[str]]], gpus: Sequence[str]) -> list[tuple[str, list[str]]]:
    """What of ``owed`` a process with these GPUs does: its own, and pairs of its own."""
    members = set(gpus)
    return [(test, of) for test, of in owed if set(of) <= members]


def threads_each(processes: int) -> int:
    """CPU threads for each of ``processes``, so that they do not take each other's."""
    return max(1, min(MOST_THREADS, len(os.sched_getaffinity(0)) // max(1, processes)))


def how_it_ended(code: Optional[int]) -> str:
    """In words: an exit code, or the name of a signal."""
    import signal

    if code is None:
        return "was ended"
    if code < 0:
        return "was ended by %s" % _signal_name(signal, -code)
    return "ended with exit code %d" % code


def _signal_name(signal: Any, number: int) -> str:
    try:
        return str(signal.Signals(number).name)
    except ValueError:
        return "signal %d" % number


def conduct(request: Mapping[str, Any]) -> int:
    """Run ``request`` (:func:`.plan.request`); the exit code."""
    children.end_children_when_terminated()
    try:
        return Conductor(dict(request)).run()
    except children.Terminated:
        return 143
