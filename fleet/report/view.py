"""The picture of a run that its events add up to. Every way of showing a run reads it from here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fleet.core.events import Event
from fleet.report.health import summary
from fleet.report.words import printable

RUNNING = "running"

#: End statuses in the order recaps list them: what is well first, what needs the operator last.
ENDS = (
    "converged",
    "skipped",
    "pending",
    "cancelled",
    "interrupted",
    "failed",
    "blocked",
    "locked",
    "unreachable",
)
#: How a step that needs nothing more has ended.
WELL = frozenset({"ok", "changed", "skipped"})
#: What a resume would go on with.
LEFT_OVER = frozenset({"cancelled", "interrupted", "failed", "blocked", "locked", "unreachable"})


@dataclass
class StepView:
    """One planned step of a host. ``status`` is None until something is known.

    ``task`` is the task's name; ``title`` tells the steps of one task apart, and is what people see.
    """

    id: str
    task: str
    segment: int
    title: str = ""
    status: str | None = None
    checked: str | None = None
    reason: str | None = None
    diff: list[Any] | None = None
    duration_s: float | None = None
    exit_code: int | None = None

    def __post_init__(self) -> None:
        self.title = self.title or self.task


@dataclass
class HostView:
    """Where one host is. ``note`` is the words beside its bar; ``status`` is RUNNING until it ended.

    ``rule`` is the id of what blocked it; ``postponed`` are tasks that the controller cannot compile
    before an earlier one has run.
    """

    name: str
    status: str = RUNNING
    note: str = "waiting"
    steps: dict[str, StepView] = field(default_factory=dict)
    current: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    reason: str | None = None
    remedy: str | None = None
    rule: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    report_path: str | None = None
    facts: Mapping[str, Any] | None = None
    simulated: bool | None = None
    postponed: dict[str, StepView] = field(default_factory=dict)
    findings: list[Mapping[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Steps planned so far; a later segment adds to it."""
        return len(self.steps)

    @property
    def done(self) -> int:
        """Steps that are over and well, or already found as wanted; a failed or cancelled one is not done."""
        if self.status == "converged":
            return self.total
        return sum((step.status or step.checked) in WELL for step in self.steps.values())

    @property
    def changed(self) -> int:
        """Steps that changed something."""
        return self.counts.get("changed", 0)

    @property
    def health(self) -> list[tuple[str, str]]:
        """(severity, words) of what the health rules found at the end, a line per cause."""
        return summary(self.findings)

    @property
    def unknown(self) -> list[StepView]:
        """Steps that the check pass could not foresee, and tasks not even compiled."""
        unforeseen = [step for step in self.steps.values() if step.checked == "known_after_apply"]
        return [*unforeseen, *self.postponed.values()]

    @property
    def cause(self) -> str | None:
        """The reason, after the id of the rule that blocked the host, if one did."""
        return f"{self.rule}: {self.reason}" if self.rule and self.reason else self.reason

    def place(self, step: str) -> str:
        """``3/21``: where the step stands among those planned so far."""
        return f"{list(self.steps).index(step) + 1}/{self.total}"


class RunView:
    """Adds up events, in order. Text from hosts is made printable on the way in; facts are not."""

    def __init__(self) -> None:
        self.run = ""
        self.playbook = ""
        self.inventory = ""
        self.check = False
        self.hosts: dict[str, HostView] = {}
        self.started_at: str | None = None
        self.now: str | None = None
        self.exit_code: int | None = None
        self.duration_s: float | None = None

    def handle(self, event: Event) -> HostView | None:
        """Take one event in; return the host it is about."""
        self.run = event.run
        self.now = event.at
        if event.host is None:
            self._run_event(event)
            return None
        host = self.hosts.setdefault(event.host, HostView(event.host))
        host.started_at = host.started_at or event.at
        update = _UPDATES.get(event.kind)
        if update is not None:
            update(host, event)
        return host

    @property
    def counts(self) -> dict[str, int]:
        """Hosts per status, in the order of :data:`ENDS`, running ones last."""
        found = Counter(host.status for host in self.hosts.values())
        return {status: found[status] for status in (*ENDS, RUNNING) if found[status]}

    @property
    def changed(self) -> int:
        """Steps changed on all hosts."""
        return sum(host.changed for host in self.hosts.values())

    @property
    def left_over(self) -> bool:
        """Whether a resume has something to go on with."""
        return not self.check and any(host.status in LEFT_OVER for host in self.hosts.values())

    @property
    def reports(self) -> str | None:
        """The folder of the reports."""
        paths = [host.report_path for host in self.hosts.values() if host.report_path]
        return paths[0].rpartition("/")[0] or None if paths else None

    def _run_event(self, event: Event) -> None:
        if event.kind == "run_started":
            self.started_at = event.at
            self.exit_code = self.duration_s = None
            self.playbook = printable(str(event.data.get("playbook", "")))
            self.inventory = printable(str(event.data.get("inventory", "")))
            self.check = bool(event.data.get("check"))
            for name in event.data.get("hosts", ()):
                self.hosts.setdefault(name, HostView(name))
        elif event.kind == "run_ended":
            self.exit_code = event.data.get("exit_code")
            self.duration_s = event.data.get("duration_s")


def seconds_between(start: str | None, end: str | None) -> float | None:
    """From one RFC 3339 time to another; None when either is missing or not a time."""
    if not start or not end:
        return None
    try:
        first, second = (datetime.fromisoformat(at.replace("Z", "+00:00")) for at in (start, end))
        return max(0.0, (second - first).total_seconds())
    except (ValueError, TypeError):
        return None


def titles(steps: Sequence[tuple[str, str]]) -> list[str]:
    """What people see of steps given as (id, task): ``Docker Engine (service)`` where a task has several."""
    often = Counter(task for _, task in steps)
    return [
        f"{task} ({name.rpartition('.')[2]})" if often[task] > 1 and "." in name else task
        for name, task in steps
    ]


def _words(value: Any) -> str | None:
    return printable(str(value)).strip() if value else None


def _connected(host: HostView, event: Event) -> None:
    host.status, host.note = RUNNING, "connected"
    hello = event.data.get("hello") or {}
    if isinstance(hello.get("simulated"), bool):
        host.simulated = hello["simulated"]


def _facts(host: HostView, event: Event) -> None:
    host.facts = event.data.get("facts") or {}
    if isinstance(host.facts.get("simulated"), bool):
        host.simulated = host.facts["simulated"]
    host.note = "facts read"


def _plan(host: HostView, event: Event) -> None:
    segment = int(event.data.get("segment", 0))
    planned = [
        (str(step["id"]), _words(step.get("task")) or step["id"]) for step in event.data.get("steps", ())
    ]
    for (name, task), title in zip(planned, titles(planned), strict=True):
        host.steps[name] = StepView(name, task, segment, title)
    host.note = "checking"


def _step(host: HostView, event: Event) -> StepView:
    name = str(event.data.get("step"))
    task = _words(event.data.get("task")) or name
    return host.steps.setdefault(name, StepView(name, task, 0))


def _checked(host: HostView, event: Event) -> None:
    step = _step(host, event)
    step.checked = event.data.get("status")
    step.reason = _words(event.data.get("reason"))
    step.diff = event.data.get("diff")


def _started(host: HostView, event: Event) -> None:
    step = _step(host, event)
    host.current = step.id
    host.note = step.title


def _progress(host: HostView, event: Event) -> None:
    words = _words(event.data.get("text"))
    if words:
        step = _step(host, event)
        host.note = f"{step.title}: {words}"


def _result(host: HostView, event: Event) -> None:
    step = _step(host, event)
    step.status = event.data.get("status")
    step.reason = _words(event.data.get("reason"))
    step.diff = event.data.get("diff")
    step.duration_s = event.data.get("duration_s")
    step.exit_code = event.data.get("exit_code")
    if host.current == step.id:
        host.current = None


def _controller(host: HostView, event: Event) -> None:
    """What the controller said while it compiled: only what outlives the moment is kept."""
    kind, data = event.data.get("kind"), event.data
    task, text = _words(data.get("task")) or "", _words(data.get("text")) or ""
    finding = data.get("finding")
    if isinstance(finding, Mapping):
        host.findings.append(finding)
        health = str(finding.get("id")).startswith("health.")  # shown together: HostView.health
        if kind == "finding" and finding.get("severity") == "warning" and not health:
            host.warnings.append(text)
    if kind == "known_after_apply":
        name = str(data.get("id") or task)
        host.postponed[name] = StepView(name, task, 0, checked="known_after_apply", reason=text or None)


def _reconnecting(host: HostView, event: Event) -> None:
    host.note = f"connection lost, reconnecting: {_words(event.data.get('reason')) or 'silent'}"


def _rebooting(host: HostView, event: Event) -> None:
    host.note = "rebooting"


def _ended(host: HostView, event: Event) -> None:
    host.status = str(event.data.get("status"))
    host.ended_at = event.at
    host.current = None
    host.reason = _words(event.data.get("reason"))
    host.remedy = _words(event.data.get("remedy"))
    host.rule = _words(event.data.get("rule"))
    host.counts = dict(event.data.get("counts") or {})
    host.report_path = event.data.get("report_path")
    host.note = host.reason or host.status


_UPDATES = {
    "host_connected": _connected,
    "host_facts": _facts,
    "host_plan": _plan,
    "check_result": _checked,
    "step_started": _started,
    "step_progress": _progress,
    "step_result": _result,
    "controller_result": _controller,
    "host_reconnecting": _reconnecting,
    "host_rebooting": _rebooting,
    "host_ended": _ended,
}
