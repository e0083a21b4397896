"""The end of a run: one line per host (or per cause, when many share it), the totals, what to do next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.report.health import alike as alike_words
from fleet.report.style import DIM, PLAIN, ROLES, STRONG, WARN, Span, line
from fleet.report.summary import check_words, facts_summary
from fleet.report.view import ENDS, RUNNING, HostView, RunView, StepView
from fleet.report.words import duration, plural, ranges, run_name, wrapped

#: With at most this many hosts each has its line; past it, hosts that ended alike share one.
ALL_SHOWN = 8
ALIKE = 3

_ADDRESS = re.compile(r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b")
_HOST = "HOST"
_NARROWEST = 24


@dataclass(frozen=True)
class Entry:
    """One line of the recap with what hangs below it. ``details`` are wrapped, ``commands`` are not."""

    name: str
    status: str
    role: str
    amount: str
    details: tuple[str, ...]
    commands: tuple[str, ...]


def recap(
    view: RunView, *, width: int = 100, verbose: bool = False, quiet: bool = False, log: str | None = None
) -> list[list[Span]]:
    """The recap's lines, at most ``width`` columns except for commands, which stay in one piece.

    ``quiet`` leaves out the hosts that are well. ``log`` is named when something failed.
    """
    hosts = _in_order(view)
    if quiet or (_nothing_to_say(view) and not verbose):
        hosts = [host for host in hosts if host.status not in ("converged", "skipped") or host.health]
    lines = _table([_entry(view, group) for group in _groups(view, hosts)], width)
    if lines:
        lines.append([])
    lines.append(totals(view))
    if view.left_over:
        lines.append(line("again with what is left: ", Span(f"fleet resume {run_name(view.run)}", STRONG)))
    if log and view.exit_code in (1, 70):
        lines.append(line(Span(f"log: {log}", DIM)))
    return lines


def totals(view: RunView) -> list[Span]:
    """``2 converged · 1 pending · 2m31s · reports/7f3a12 · exit 5``."""
    pieces: list[Span] = []
    if view.check:
        pieces += [Span(words) for words in _check_totals(view)]
    else:
        pieces += [
            Span(f"{count} {status}", ROLES.get(status, PLAIN)) for status, count in view.counts.items()
        ]
        if set(view.counts) <= {"converged", "skipped"}:
            pieces.append(Span(f"changed={view.changed}"))
    if view.duration_s is not None:
        pieces.append(Span(duration(view.duration_s)))
    if view.reports and not _nothing_to_say(view):
        pieces.append(Span(view.reports))
    if view.exit_code:
        pieces.append(Span(f"exit {view.exit_code}", STRONG))
    return [part for piece in pieces for part in (Span(" · ", DIM), piece)][1:]


def _check_totals(view: RunView) -> list[str]:
    ended = [host for host in view.hosts.values() if host.status == "converged"]
    would = sum(host.counts.get("would_change", 0) for host in ended)
    unknown = sum(host.counts.get("known_after_apply", 0) for host in ended)
    words = [f"check of {plural(len(view.hosts), 'host')}", f"{plural(would, 'step')} would change"]
    if unknown:
        words.append(f"{unknown} known after apply")
    others = {status: count for status, count in view.counts.items() if status != "converged"}
    return [*words, *(f"{count} {status}" for status, count in others.items()), "nothing was changed"]


def _nothing_to_say(view: RunView) -> bool:
    """A second run: every host converged and nothing changed."""
    quiet = set(view.counts) <= {"converged", "skipped"} and not view.changed
    planned = any(host.counts.get(key) for host in view.hosts.values() for key in _FORESEEN)
    return quiet and not (view.check and planned)


_FORESEEN = ("would_change", "known_after_apply")


def _in_order(view: RunView) -> list[HostView]:
    order = {status: number for number, status in enumerate((*ENDS, RUNNING))}
    if len(view.hosts) <= ALL_SHOWN:
        return list(view.hosts.values())
    return sorted(view.hosts.values(), key=lambda host: order.get(host.status, len(order)))


def _groups(view: RunView, hosts: Sequence[HostView]) -> list[list[HostView]]:
    """Hosts that ended alike, together; each on its own while they are few."""
    if len(view.hosts) <= ALL_SHOWN:
        return [[host] for host in hosts]
    alike: dict[tuple[object, ...], list[HostView]] = {}
    for host in hosts:
        unknown = tuple((step.id, step.reason) for step in host.unknown) if view.check else ()
        amount = tuple(host.counts.get(key, 0) for key in ("changed", *_FORESEEN))
        health = tuple((severity, alike_words(words)) for severity, words in host.health)
        words = (_general(host, host.cause), _general(host, host.remedy), tuple(facts_summary(host)), health)
        alike.setdefault((host.status, amount, words, unknown), []).append(host)
    return [part for group in alike.values() for part in (_each(group) if len(group) < ALIKE else [group])]


def _each(group: list[HostView]) -> list[list[HostView]]:
    return [[host] for host in group]


def _general(host: HostView, words: str | None) -> str | None:
    """``words`` without what differs from host to host: its name, and addresses."""
    if words is None:
        return None
    named = re.sub(rf"(?<![\w.-]){re.escape(host.name)}(?![\w-])", _HOST, words)
    return _ADDRESS.sub("ADDRESS", named)


def _entry(view: RunView, group: Sequence[HostView]) -> Entry:
    first = group[0]
    status, amount, role = first.status, "", ROLES.get(first.status, PLAIN)
    if view.check and status == "converged":
        status, amount = check_words(first.counts)
        role = WARN if amount else role
    elif first.changed or (status == "converged" and not view.check):
        amount = f"{first.changed} changed"
    details = [_shared(group, [host.cause for host in group])]
    if status == first.status or not first.reason:
        details.append("  ".join(facts_summary(first)) if first.status == "converged" else None)
    details.append(_failed_step(first) if len(group) == 1 else f"on {ranges(host.name for host in group)}")
    if view.check and len(view.hosts) > ALL_SHOWN:  # of few hosts each such step had its own line above
        details += [_unforeseen(step) for step in first.unknown]
    details += [f"warning: {_general(first, words) if len(group) > 1 else words}" for words in first.warnings]
    details += [f"{severity}: {words}" for severity, words in first.health]
    name = first.name if len(group) == 1 else plural(len(group), "host")
    kept = tuple(detail for detail in details if detail)
    return Entry(name, status, role, amount, kept, _commands(group))


def _unforeseen(step: StepView) -> str:
    return f"known after apply: {step.title}" + (f" ({step.reason})" if step.reason else "")


def _shared(group: Sequence[HostView], words: Sequence[str | None]) -> str | None:
    """What the hosts of a group say, as one: word for word, or with what differs left open."""
    if len(set(words)) == 1:
        return words[0]
    return _general(group[0], words[0])


def _failed_step(host: HostView) -> str | None:
    """Where it failed, when the reason does not already name the task."""
    for step in host.steps.values():
        if step.status in ("failed", "interrupted", "pending") and step.task not in (host.reason or ""):
            return f"at step {host.place(step.id)}: {step.title}"
    return None


def _commands(group: Sequence[HostView]) -> tuple[str, ...]:
    first = group[0]
    words = _shared(group, [host.remedy for host in group])
    if not words:
        return ()
    if len(group) > 1 and f"--limit {_HOST}" in words:
        words = words.replace(f"--limit {_HOST}", "--limit " + ",".join(host.name for host in group))
    return (f"{'go on' if first.status == 'pending' else 'remedy'}: {words}",)


def _table(entries: Sequence[Entry], width: int) -> list[list[Span]]:
    """Entries in columns: name, status, amount, details; details and commands hang below one another."""
    if not entries:
        return []
    names = min(max(len(entry.name) for entry in entries), max(12, width // 3))
    states = max(len(entry.status) for entry in entries)
    amounts = max(len(entry.amount) for entry in entries)
    lead = names + 2 + states + 2 + (amounts + 2 if amounts else 0)
    hanging = lead if width - lead >= _NARROWEST else 4
    lines: list[list[Span]] = []
    for entry in entries:
        head = line(f"{entry.name:<{names}}  ", Span(f"{entry.status:<{states}}", entry.role), "  ")
        if amounts:
            head.append(Span(f"{entry.amount:>{amounts}}  "))
        body = [part for detail in entry.details for part in wrapped(detail, width - hanging, _NARROWEST)]
        fits = hanging == lead and len(entry.name) <= names
        if body and fits:
            head.append(Span(body.pop(0)))
        lines.append(head)
        lines += [line(" " * hanging, part) for part in body]
        lines += [line(" " * hanging, Span(command, STRONG)) for command in entry.commands]
    return lines
