"""One host's part of a run: hello, facts, then segment after segment until nothing is left.

Four hops from the command line to a change on a host: ``Engine.play`` -> ``HostRun.run`` ->
``SegmentPlayer.apply`` -> the agent's worker.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fleet.agent import protocol
from fleet.audit.health import evaluate
from fleet.core.errors import (
    FleetError,
    HostBlocked,
    HostError,
    HostFailed,
    HostInterrupted,
    HostLocked,
    HostPending,
    HostUnreachable,
)
from fleet.modules.base import ControllerResult
from fleet.playbook.compile import CompiledSegment, HostCompiler
from fleet.run import outcome as ended
from fleet.run.control import Control
from fleet.run.identity import MachineRegistry, is_this_machine
from fleet.run.link import Link
from fleet.run.outcome import HostOutcome
from fleet.run.segment import (
    Publish,
    SegmentOutcome,
    SegmentPlayer,
    Work,
    finished_segment,
    interrupted,
)

CLOCK_TOLERANCE_S = 300.0


@dataclass(frozen=True)
class SegmentInputs:
    """What a segment was compiled from, and the hash that came out: enough to compile it again.

    ``now_unix`` is the controller's clock when the facts arrived, ``ssh_client`` the address the host saw
    the connection come from.
    """

    segment: int
    facts: Mapping[str, Any]
    answers: Mapping[str, Any]
    now_unix: float
    ssh_client: str | None
    plan_hash: str


@dataclass(frozen=True)
class TakenUp:
    """A segment of an earlier life of this run: ``started`` on the host, or even ``finished`` there."""

    inputs: SegmentInputs
    started: bool
    finished: SegmentOutcome | None


class Ledger(Protocol):
    """Where this host's progress is kept, so that a killed controller can take it up again."""

    def save(self, host: str, inputs: SegmentInputs) -> None:
        """Keep these inputs; :meth:`applying` makes them durable."""

    def applying(self, host: str, segment: int) -> None:
        """Commit that the worker of this segment is about to be started."""

    def saved(self, host: str) -> list[SegmentInputs]:
        """The inputs kept for this host, in segment order."""


@dataclass(frozen=True)
class RunContext:
    """What every host of a run shares."""

    run: str
    check: bool
    operator: str
    controller: str
    control: Control
    machines: MachineRegistry
    ledger: Ledger
    resuming: bool = False
    again: str = ""


class HostRun:
    """Plays one play on one host. Never raises for what the host does: the outcome says it."""

    FACTS_DEADLINE_S = 120.0
    QUERY_DEADLINE_S = 600.0

    def __init__(
        self,
        host: str,
        compiler: HostCompiler,
        link: Link,
        publish: Publish,
        context: RunContext,
        *,
        carries_others: bool = False,
    ) -> None:
        self._host = host
        self._compiler = compiler
        self._link = link
        self._publish = publish
        self._context = context
        self._player = SegmentPlayer(host, link, publish, context.control)
        self._outcome = HostOutcome(host)
        self._carries_others = carries_others
        self._waiting: FleetError | None = None
        # Kept in memory until something is applied: a run that changes nothing has nothing to resume.
        self._unsaved: list[SegmentInputs] = []
        self._known: Mapping[str, Any] | None = None
        self._health_wanted: Mapping[str, Any] | None = None

    def run(self) -> HostOutcome:
        """Play everything; close the connection; return how it ended."""
        try:
            self._play()
        except FleetError as error:
            self._outcome.fail(error)
        finally:
            self._close()
        return self._outcome

    def _play(self) -> None:
        self._meet()
        replay: Iterator[TakenUp] = iter(self._replay()) if self._context.resuming else iter(())
        while not self._compiler.done:
            if self._context.control.cancelled:
                raise interrupted(self._host)
            taken = next(replay, None)
            segment = self._compile(taken)
            self._heed(segment)
            if taken is not None and taken.finished is not None:
                self._outcome.touched = True
                self._conclude(taken.finished)
            elif self._context.check:
                self._check_only(segment)
            else:
                self._converge(segment, started=taken is not None and taken.started)
        if self._outcome.touched:
            self._known = self._facts()
            self._publish("host_facts", facts=self._known)
        self._tell_health()
        if self._waiting is not None:
            raise self._waiting

    # -- hello ---------------------------------------------------------------------------------

    def _meet(self) -> None:
        hello = self._link.agent.hello
        self._publish("host_connected", hello=dict(hello))
        self._context.machines.claim(self._host, hello)
        skew = float(hello["clock_unix"]) - time.time()
        if abs(skew) > CLOCK_TOLERANCE_S:
            raise HostBlocked(
                f"the clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the controller's; "
                f"TLS and apt would fail obscurely",
                rule="preflight.clock",
                host=self._host,
                remedy="timedatectl set-ntp true (or: date -u -s @$(date +%s) from a good clock)",
            )
        if not self._context.check:
            self._mind_lease(hello.get("lease"))

    def _mind_lease(self, lease: Mapping[str, Any] | None) -> None:
        if not lease or lease.get("run") == self._context.run:
            return
        run = str(lease.get("run"))
        raise HostLocked(
            f"run {run} of {lease.get('operator')} on {lease.get('controller')} "
            f"has held this host since {lease.get('since')}",
            run=run,
            host=self._host,
            remedy=f"wait for it, or go on with it: fleet resume {run}; if it is dead for good: "
            f"fleet unlock {self._host} --run {run}",
        )

    # -- compiling -----------------------------------------------------------------------------

    def _facts(self) -> Mapping[str, Any]:
        groups = {"groups": self._compiler.fact_groups}
        facts: Mapping[str, Any] = self._link.agent.request("facts", groups, deadline_s=self.FACTS_DEADLINE_S)
        return facts

    def _compile(self, taken: TakenUp | None) -> CompiledSegment:
        if taken is not None:
            return self._recompile(taken.inputs)
        facts, now_unix = self._facts(), time.time()
        self._known = facts
        self._publish("host_facts", facts=facts)
        queries = self._compiler.queries(facts)
        answers = self._answers(queries)
        if not self._context.check and any(query["kind"] == "package_versions" for query in queries):
            self._refuse_pins(facts, answers)
        ssh_client = self._link.agent.seen_from
        segment = self._compiler.segment(facts, answers, now_unix=now_unix, ssh_client=ssh_client)
        self._announce(segment)
        if segment.plan["steps"] and not self._context.check:
            number = segment.plan["segment"]
            inputs = SegmentInputs(number, facts, answers, now_unix, ssh_client, segment.plan_hash)
            self._unsaved.append(inputs)
        return segment

    def _refuse_pins(self, facts: Mapping[str, Any], answers: Mapping[str, Any]) -> None:
        """A version that cannot be had ends the host here, before what would come before it is done."""
        refused = self._compiler.pins_refused(facts, answers)
        for result in refused:
            self._publish("controller_result", **result.as_json())
        if refused:
            raise refusal(refused[0], self._host)

    def _recompile(self, inputs: SegmentInputs) -> CompiledSegment:
        self._compiler.queries(inputs.facts)
        segment = self._compiler.segment(
            inputs.facts, inputs.answers, now_unix=inputs.now_unix, ssh_client=inputs.ssh_client
        )
        if segment.plan_hash != inputs.plan_hash:
            raise HostFailed(
                "the plan is not the one that was interrupted: inventory, playbook or fleet changed since",
                host=self._host,
                remedy=f"start anew: {self._context.again} --limit {self._host}"
                f" (first, if it is still locked: fleet unlock {self._host} --run {self._context.run})",
            )
        self._announce(segment)
        return segment

    def _announce(self, segment: CompiledSegment) -> None:
        steps = [{"id": step["id"], "task": step.get("task", step["id"])} for step in segment.plan["steps"]]
        self._publish(
            "host_plan",
            segment=segment.plan["segment"],
            steps=steps,
            hash=segment.plan_hash,
        )

    def _answers(self, queries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return self._link.answers(queries, self.QUERY_DEADLINE_S) if queries else {}

    def _heed(self, segment: CompiledSegment) -> None:
        """What the controller itself decided while compiling: messages, refusals, waiting for leave.

        A check goes on after a refusal, so that it tells everything; a run does not touch the host.
        """
        waits: ControllerResult | None = None
        for result in segment.controller_results:
            self._publish("controller_result", **result.as_json())
            if result.kind == "known_after_apply":
                self._outcome.counts[protocol.KNOWN_AFTER_APPLY] += 1
            if result.kind == "facts_report":
                self._health_wanted = result.wanted or {}
            if result.kind == "pending":
                waits = waits or result
            if result.stops:
                raise refusal(result, self._host)
        if waits is not None:
            self._waiting = refusal(waits, self._host)

    # -- playing -------------------------------------------------------------------------------

    def _work(self, segment: CompiledSegment) -> Work:
        secrets = {name: secret.reveal() for name, secret in segment.secrets.items()}
        return Work(segment.plan, secrets, self._context.operator, self._context.controller)

    def _check_only(self, segment: CompiledSegment) -> None:
        results = self._player.check(self._work(segment))
        self._outcome.counts.update(result["status"] for result in results)
        failed = next((result for result in results if result["status"] == protocol.FAILED), None)
        if failed is not None:
            raise HostFailed(
                f"{failed['step']}: {failed.get('reason') or 'cannot be read'}",
                host=self._host,
                remedy=failed.get("remedy"),
            )
        self._compiler.feed(results)

    def _converge(self, segment: CompiledSegment, *, started: bool) -> None:
        work = self._work(segment)
        if not work.steps:
            self._compiler.feed(())
            return
        if not started:
            checked = self._player.check(work)
            if all(result["status"] in (protocol.OK, protocol.SKIPPED) for result in checked):
                self._outcome.counts.update(result["status"] for result in checked)
                self._compiler.feed(checked)
                return
        self._refuse_own_reboot(work)
        for inputs in self._unsaved:
            self._context.ledger.save(self._host, inputs)
        self._unsaved.clear()
        self._context.ledger.applying(self._host, work.plan["segment"])
        self._outcome.touched = True
        self._conclude(self._player.apply(work))

    def _conclude(self, result: SegmentOutcome) -> None:
        self._outcome.counts.update(record["status"] for record in result.results.values())
        if result.status == protocol.SEGMENT_DONE:
            self._compiler.feed(result.results.values())
            return
        if result.status == protocol.SEGMENT_CANCELLED:
            raise interrupted(self._host)
        bad = next((r for r in result.results.values() if r["status"] in _BAD and not r.get("ignored")), None)
        reason = (bad or {}).get("reason") or result.reason or "a step failed"
        if result.status != protocol.SEGMENT_INTERRUPTED:
            self._tell_what_is_left()
        go_on = f"when that is mended: fleet resume {self._context.run}"
        if result.status == protocol.SEGMENT_PENDING:
            go_on = f"when nobody minds: {self._context.again} --limit {self._host}"
        remedy = (bad or {}).get("remedy") or go_on
        raise _ERRORS.get(result.status, HostFailed)(str(reason), host=self._host, remedy=str(remedy))

    def _tell_what_is_left(self) -> None:
        """Facts for the report of a host that stops half way: those from before its steps are no longer true."""
        with contextlib.suppress(
            FleetError
        ):  # why the host stops matters more; the report keeps those from before
            self._publish("host_facts", facts=self._facts())

    def _tell_health(self) -> None:
        """What the health rules find in the last facts, for the report of a play that asked for it.

        It blocks nothing and changes no outcome. A run that was taken up with nothing left to do read no facts.
        """
        if self._health_wanted is None or self._known is None:
            return
        for finding in evaluate(self._known, self._health_wanted):
            result = ControllerResult(
                "finding", "Health", finding.what, remedy=finding.remedy, finding=finding
            )
            self._publish("controller_result", **result.as_json())

    def _refuse_own_reboot(self, work: Work) -> None:
        if not any(step["resource"] == "reboot" for step in work.steps):
            return
        if is_this_machine(self._link.agent.hello):
            what = "this host is the controller itself: fleet does not reboot the machine it runs on"
        elif self._carries_others:
            what = "other hosts are reached through this one: fleet does not reboot it"
        else:
            return
        raise HostBlocked(
            what,
            rule="run.own-reboot",
            host=self._host,
            remedy="run from another machine, or reboot it by hand and run again",
        )

    # -- resuming ------------------------------------------------------------------------------

    def _replay(self) -> Iterator[TakenUp]:
        """The segments this run had compiled before, with what the host's journal says of each."""
        records = self._link.agent.request("journal", {"run": self._context.run})["records"]
        if not records:
            return  # nothing was begun here: compile from what is true now
        for inputs in self._context.ledger.saved(self._host):
            mine = [record for record in records if record.get("segment") == inputs.segment]
            yield TakenUp(inputs, bool(mine), finished_segment(mine))

    def _close(self) -> None:
        try:
            if self._outcome.touched and not self._context.control.detached and self._released_by_us():
                self._link.agent.request("finish", {"run": self._context.run})
        except HostUnreachable:
            pass  # the lease names this run; resume or unlock clears it
        finally:
            self._link.close()

    def _released_by_us(self) -> bool:
        """An interrupted or unreachable host keeps its lease: the operator must look.

        So does one whose worker died: a step of it has begun and not ended, and only resuming the very same
        plan knows whether that step may be repeated.
        """
        return not self._player.worker_died and self._outcome.status not in (
            ended.INTERRUPTED,
            ended.UNREACHABLE,
        )


def refusal(result: ControllerResult, host: str) -> FleetError:
    """The error that a controller result which stops a host means."""
    if result.kind == "blocked":
        rule = result.finding.id if result.finding is not None else result.id
        return HostBlocked(result.text, rule=rule, host=host, remedy=result.remedy)
    if result.kind == "pending":
        return HostPending(result.text, host=host, remedy=result.remedy)
    return HostFailed(result.text, host=host, remedy=result.remedy)


_BAD = (protocol.FAILED, protocol.INTERRUPTED, protocol.PENDING)
_ERRORS: Mapping[str, type[HostError]] = {
    protocol.SEGMENT_INTERRUPTED: HostInterrupted,
    protocol.SEGMENT_PENDING: HostPending,
}
