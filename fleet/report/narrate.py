"""What is worth a line as it happens: events to lines, by verbosity. Used by both consoles."""

from __future__ import annotations

from dataclasses import dataclass

import fleet
from fleet.core.events import Event
from fleet.report.diff import INDENT, diff_lines
from fleet.report.style import DIM, PLAIN, ROLES, STRONG, Span, line
from fleet.report.summary import check_words
from fleet.report.view import HostView, RunView, StepView, seconds_between
from fleet.report.words import duration, plural, printable, run_name

#: Step results shown without ``-v``.
NOTABLE = frozenset(
    {"changed", "failed", "interrupted", "cancelled", "pending", "would_change", "known_after_apply"}
)
STILL_SECONDS = 30.0


@dataclass(frozen=True)
class Verbosity:
    """``level``: -1 quiet, 0 what changed, 1 also what did not, 2 also what steps print."""

    level: int = 0
    diff: bool = False


def header(view: RunView) -> list[Span]:
    """``fleet 0.1.0 · run 7f3a12 · provision · lab.yaml · 4 hosts``."""
    hosts = plural(len(view.hosts), "host")
    mode = ["check: nothing will be changed"] if view.check else []
    words = [f"run {run_name(view.run)}", view.playbook, view.inventory, hosts, *mode]
    return line(Span(f"fleet {fleet.__version__}", STRONG), *(f" · {word}" for word in words if word))


class Narrator:
    """Turns events into lines. ``view`` has taken in the event already."""

    def __init__(self, view: RunView, verbosity: Verbosity) -> None:
        self._view = view
        self._verbosity = verbosity
        self._begun: dict[str, str] = {}

    def lines(self, event: Event) -> list[list[Span]]:
        """The lines for one event, often none."""
        if self._verbosity.level < 0 or event.host is None:
            return []
        host = self._view.hosts[event.host]
        tell = getattr(self, f"_{event.kind}", None)
        return tell(host, event) if tell is not None else []

    @property
    def _verbose(self) -> bool:
        return self._verbosity.level >= 1

    def _said(self, host: HostView, word: str, rest: str, role: str | None = None) -> list[Span]:
        names = min(max((len(name) for name in self._view.hosts), default=0), 32)
        words = f"{word.replace('_', ' '):<{17 if self._view.check else 11}}"
        shown = Span(words, ROLES.get(word, PLAIN) if role is None else role)
        return line(f"{host.name:<{names}}  ", shown, f"  {rest}")

    def _host_connected(self, host: HostView, event: Event) -> list[list[Span]]:
        hello = event.data.get("hello") or {}
        words = f"{hello.get('hostname', '')}, Python {hello.get('python', '')}, {hello.get('user', '')}"
        return [self._said(host, "connected", printable(words), DIM)] if self._verbose else []

    def _host_plan(self, host: HostView, event: Event) -> list[list[Span]]:
        words = f"{plural(len(event.data.get('steps', ())), 'step')} in segment {event.data.get('segment')}"
        return [self._said(host, "planned", words, DIM)] if self._verbose else []

    def _check_result(self, host: HostView, event: Event) -> list[list[Span]]:
        step = host.steps[str(event.data.get("step"))]
        if step.checked != "failed" and not self._view.check:
            return []
        if step.checked not in NOTABLE and not self._verbose:
            return []
        return self._step(host, step, step.checked or "", None)

    def _step_started(self, host: HostView, event: Event) -> list[list[Span]]:
        self._begun[host.name] = event.at
        if not self._verbose:
            return []
        place = host.place(str(event.data.get("step")))
        return [self._said(host, "started", f"[{place}] {host.note}", DIM)]

    def _step_progress(self, host: HostView, event: Event) -> list[list[Span]]:
        if self._verbosity.level >= 2:
            return [self._said(host, "progress", host.note, DIM)]
        return self._still(host, event)

    def _step_output(self, host: HostView, event: Event) -> list[list[Span]]:
        if self._verbosity.level < 2:
            return self._still(host, event)
        text = str(event.data.get("text", ""))
        return [line(Span(f"{host.name}{INDENT}{printable(part)}", DIM)) for part in text.splitlines()]

    def _still(self, host: HostView, event: Event) -> list[list[Span]]:
        """A line now and then from a long step, so that a log shows it is alive."""
        waited = seconds_between(self._begun.get(host.name), event.at)
        if waited is None or waited < STILL_SECONDS:
            return []
        self._begun[host.name] = event.at
        return [self._said(host, "still", host.note, DIM)]

    def _step_result(self, host: HostView, event: Event) -> list[list[Span]]:
        step = host.steps[str(event.data.get("step"))]
        if step.status not in NOTABLE and not self._verbose:
            return []
        return self._step(host, step, step.status or "", step.duration_s)

    def _step(self, host: HostView, step: StepView, status: str, took: float | None) -> list[list[Span]]:
        words = f"{step.title}{_took(took)}{f': {step.reason}' if step.reason else ''}"
        return [self._said(host, status, words), *(diff_lines(step.diff) if self._verbosity.diff else [])]

    def _controller_result(self, host: HostView, event: Event) -> list[list[Span]]:
        """Messages and warnings always; a refusal ends the host, whose line then says it."""
        kind = str(event.data.get("kind"))
        finding = event.data.get("finding") or {}
        if str(finding.get("id")).startswith("health.") and not self._verbose:
            return []  # the recap has them, a line per cause
        shown = {"message": "message", "finding": "note"}.get(kind)
        if kind == "known_after_apply" and (self._view.check or self._verbose):
            shown = kind
        if kind in ("ok", "skipped") and self._verbose:
            shown = kind
        said = (event.data.get("task"), finding.get("gpu"), event.data.get("text"))
        words = ": ".join(printable(str(each or "")) for each in said if each is not None)
        return [self._said(host, shown, words.rstrip(": "))] if shown else []

    def _host_reconnecting(self, host: HostView, event: Event) -> list[list[Span]]:
        return [self._said(host, "reconnecting", printable(str(event.data.get("reason") or "")))]

    def _host_rebooting(self, host: HostView, event: Event) -> list[list[Span]]:
        return [self._said(host, "rebooting", "waiting for it to come back")]

    def _host_ended(self, host: HostView, event: Event) -> list[list[Span]]:
        quiet = host.status in ("converged", "skipped") and not host.changed
        if quiet and not self._verbose:
            return []
        took = seconds_between(host.started_at, host.ended_at)
        status, amount = host.status, f"{host.changed} changed" if host.changed else ""
        if status == "converged":
            status, amount = check_words(host.counts) if self._view.check else (status, amount or "0 changed")
        unchanged = self._found_as_wanted(host) if self._verbose and not self._view.check else []
        already = any(step.reason == host.reason for step in host.steps.values())
        reason = "" if already else host.cause or ""
        words = "  ".join(word for word in (amount, reason) if word)
        end = self._said(host, status, (words + _took(took)).strip(), ROLES.get(host.status, PLAIN))
        return [*unchanged, end]

    def _found_as_wanted(self, host: HostView) -> list[list[Span]]:
        """Steps that the check pass settled: where nothing differs, no step result follows."""
        settled = [step for step in host.steps.values() if step.status is None]
        good = [step for step in settled if step.checked in ("ok", "skipped")]
        return [one for step in good for one in self._step(host, step, step.checked or "", None)]


def _took(seconds: float | None) -> str:
    """`` (1m02s)``; nothing for what took less than a second."""
    return f" ({duration(seconds)})" if seconds is not None and seconds >= 1 else ""
