"""Plays one segment on one host: check pass, then a worker whose journal is followed to its end.

Whatever happens to the connection meanwhile, the worker goes on; this class attaches again from the
last sequence number it has seen, so no record is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleet.agent import protocol
from fleet.core.errors import ConnectionLost, HostFailed, Interrupted
from fleet.run.control import Control
from fleet.run.link import Link

Record = Mapping[str, Any]


class Publish(Protocol):
    """Publishes one event about this host."""

    def __call__(self, kind: str, /, **data: Any) -> None: ...


@dataclass
class SegmentOutcome:
    """How a segment ended: ``status`` is one of protocol.SEGMENT_*, ``results`` by step id in order."""

    status: str
    results: dict[str, Record] = field(default_factory=dict)
    reason: str | None = None

    @property
    def changed(self) -> int:
        """How many steps changed something."""
        return sum(record["status"] == protocol.CHANGED for record in self.results.values())


@dataclass(frozen=True)
class Work:
    """One segment to play: the plan, its secret values by reference id, and who asks."""

    plan: Mapping[str, Any]
    secrets: Mapping[str, str]
    operator: str
    controller: str

    @property
    def run(self) -> str:
        """The run's id."""
        return str(self.plan["run"])

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """The plan's steps."""
        steps: Sequence[Mapping[str, Any]] = self.plan["steps"]
        return steps


class SegmentPlayer:
    """Plays segments of one host over its link."""

    PUMP_S = 0.5
    CHECK_DEADLINE_S = 300.0
    START_DEADLINE_S = 120.0
    REBOOT_DEADLINE_S = 600.0

    def __init__(self, host: str, link: Link, publish: Publish, control: Control) -> None:
        self._host = host
        self._link = link
        self._publish = publish
        self._control = control
        self._last_seq = 0
        self._cancel_sent = False
        self._reboot: Record = {}
        self.worker_died = False

    def check(self, work: Work) -> list[Mapping[str, Any]]:
        """The check pass: what each step would do. Reads only."""
        answer = self._link.agent.request(
            "check",
            {"plan": work.plan, "secrets": work.secrets},
            secrets_in=True,
            deadline_s=self.CHECK_DEADLINE_S,
        )
        expected = protocol.plan_hash(work.plan)
        if answer["hash"] != expected:
            raise HostFailed(
                f"the plan arrived changed (hash {answer['hash'][:12]}, sent {expected[:12]})",
                host=self._host,
                remedy="this is a bug or a broken connection: run again, and report it if it stays",
            )
        results: list[Mapping[str, Any]] = answer["results"]
        for result in results:
            self._publish("check_result", **result)
        return results

    def apply(self, work: Work) -> SegmentOutcome:
        """Start or take up the worker for this segment and follow it to its end, reboots included."""
        outcome = SegmentOutcome(protocol.SEGMENT_FAILED)
        self._start(work)
        while True:
            end: Record | None = self._follow_to_end(work, outcome)
            if end is not None and end["status"] == protocol.SEGMENT_REBOOT:
                end = self._await_down(work, outcome)
            if end is not None:
                outcome.status, outcome.reason = end["status"], end.get("reason")
                return outcome
            self._await_up()
            self._start(work)

    def _start(self, work: Work) -> None:
        params = {
            "plan": work.plan,
            "secrets": work.secrets,
            "operator": work.operator,
            "controller": work.controller,
            "after_seq": self._last_seq,
        }
        self._cancel_sent = False
        self._link.agent.request("start", params, secrets_in=True, deadline_s=self.START_DEADLINE_S)

    def _follow_to_end(self, work: Work, outcome: SegmentOutcome) -> Record:
        """Follow the journal, attaching again after every lost connection."""
        while True:
            try:
                return self._follow(work, outcome)
            except ConnectionLost as lost:
                self._publish("host_reconnecting", reason=lost.what)
                agent = self._link.reconnect()
                params = {"run": work.run, "after_seq": self._last_seq}
                agent.request("attach", params, deadline_s=self.START_DEADLINE_S)

    def _follow(self, work: Work, outcome: SegmentOutcome) -> Record:
        """Take records until this segment's end record."""
        while True:
            self._control.raise_if_detached(self._host)
            self._maybe_cancel(work)
            for message in self._link.agent.pump(self.PUMP_S):
                if message["type"] == "idle":
                    raise self._worker_gone(work)
                if message["type"] == "record":
                    end = self._take(message["record"], work, outcome)
                    if end is not None:
                        return end

    def _await_down(self, work: Work, outcome: SegmentOutcome) -> Record | None:
        """Wait until the reboot cuts the connection; the end record when the host refused to reboot."""
        reboot = self._reboot
        self._publish("host_rebooting", boot_id=reboot.get("boot_id"), deadline_s=reboot.get("deadline_s"))
        until = self._control.now() + float(reboot.get("deadline_s") or self.REBOOT_DEADLINE_S)
        try:
            # A connection made after the reboot, to read how the segment ended, will not be cut again.
            while self._control.now() < until and not self._rebooted():
                self._control.raise_if_detached(self._host)
                for message in self._link.agent.pump(self.PUMP_S):
                    if message["type"] == "record":
                        end = self._take(message["record"], work, outcome)
                        if end is not None:
                            return end
        except ConnectionLost:
            pass  # what was waited for
        return None

    def _rebooted(self) -> bool:
        """Whether the connection at hand is already one to the new boot."""
        boot_id = self._link.agent.hello.get("boot_id")
        return bool(boot_id) and boot_id != self._reboot.get("boot_id")

    def _await_up(self) -> None:
        if self._link.is_open and self._rebooted():
            return
        boot_id = str(self._reboot.get("boot_id") or "")
        self._link.after_reboot(boot_id, float(self._reboot.get("deadline_s") or self.REBOOT_DEADLINE_S))

    def _maybe_cancel(self, work: Work) -> None:
        if self._control.cancelled and not self._cancel_sent:
            self._cancel_sent = True
            self._link.agent.request("cancel", {"run": work.run})

    def _worker_gone(self, work: Work) -> HostFailed:
        self.worker_died = True
        return HostFailed(
            "the worker on the host died in the middle of a step",
            host=self._host,
            remedy=f"its journal is intact; go on: fleet resume {work.run}",
        )

    def _take(self, record: Record, work: Work, outcome: SegmentOutcome) -> Record | None:
        """Take one record in, once; returned when it is this segment's end."""
        if record["seq"] <= self._last_seq:
            return None
        self._last_seq = record["seq"]
        kind = record["kind"]
        if record.get("segment", work.plan["segment"]) != work.plan["segment"]:
            return None
        if kind in _EVENTS:
            event, fields = _EVENTS[kind]
            self._publish(event, **{name: record.get(name) for name in fields})
        if kind == "result":
            outcome.results[record["step"]] = record
        if kind == "reboot":
            self._reboot = record
        return record if kind == "end" else None


# What each kind of journal record is published as, and which of its fields go along.
_EVENTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "intent": ("step_started", ("step", "task", "index", "total")),
    "result": ("step_result", ("step", "task", "status", "diff", "reason", "exit_code", "duration_s")),
    "output": ("step_output", ("step", "text")),
    "progress": ("step_progress", ("step", "text")),
}


def finished_segment(records: Sequence[Record]) -> SegmentOutcome | None:
    """The outcome of a segment whose journal ``records`` show it done; None when it must go on."""
    if not records or records[-1]["kind"] != "end" or records[-1]["status"] != protocol.SEGMENT_DONE:
        return None
    results = {record["step"]: record for record in records if record["kind"] == "result"}
    return SegmentOutcome(protocol.SEGMENT_DONE, results)


def interrupted(host: str) -> Interrupted:
    """The error of a host that stopped because the operator asked."""
    return Interrupted("stopped at a step edge, as asked", host=host)
