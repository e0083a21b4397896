"""Picks how a run is shown, from where its output goes and what the operator asked for."""

from __future__ import annotations

import os
from typing import TextIO

from fleet.core.documents import Scrub, json_text
from fleet.core.events import Event, Subscriber
from fleet.core.log import LogFile
from fleet.report.live import LiveConsole
from fleet.report.narrate import Verbosity
from fleet.report.plain import PlainConsole
from fleet.report.style import Output, line, width_of
from fleet.report.summary import outcome
from fleet.report.view import RunView
from fleet.report.words import run_name

__all__ = ["JsonConsole", "LogSubscriber", "console_for", "run_document"]

_KEPT_FROM_LOG = frozenset({"step_output", "step_progress", "host_facts", "check_result"})


def console_for(
    stream: TextIO,
    *,
    json: bool = False,
    verbosity: Verbosity | None = None,
    log: LogFile | None = None,
    scrub: Scrub | None = None,
) -> Subscriber:
    """The console for ``stream``: the final document with ``json``, a live table on a terminal, else lines.

    A live table needs cursor movement: where TERM is ``dumb``, lines are printed too.
    """
    if json:
        return JsonConsole(Output(stream, colour=False), scrub)
    output = Output(stream, scrub=scrub)
    named = log.shown if log else None
    if _can_redraw(stream) and (verbosity is None or verbosity.level >= 0):
        return LiveConsole(output, verbosity=verbosity, log=named)
    return PlainConsole(output, verbosity=verbosity, width=width_of(stream), log=named)


def _can_redraw(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def run_document(view: RunView) -> dict[str, object]:
    """The run as schemas/run.schema.json has it."""
    return {
        "schema": "fleet.run/1",
        "run": view.run,
        "playbook": view.playbook,
        "inventory": view.inventory,
        "check": view.check,
        "exit_code": view.exit_code,
        "duration_s": view.duration_s,
        "counts": view.counts,
        "hosts": {name: outcome(host, check=view.check) for name, host in view.hosts.items()},
        "reports": view.reports,
        "resume": f"fleet resume {run_name(view.run)}" if view.left_over else None,
    }


class JsonConsole:
    """A Subscriber that says nothing until the end, then one JSON document."""

    def __init__(self, output: Output, scrub: Scrub | None = None) -> None:
        self.view = RunView()
        self._output = output
        self._scrub = scrub

    def handle(self, event: Event) -> None:
        """Take in one event."""
        self.view.handle(event)

    def close(self) -> None:
        """Print the document, if a run was seen."""
        if self.view.run:
            text = json_text(run_document(self.view), self._scrub, indent=2)
            self._output.write(*(line(part) for part in text.splitlines()))


class LogSubscriber:
    """A Subscriber that keeps the run's course in the log file; step output stays in store and journal."""

    def __init__(self, log: LogFile) -> None:
        self._log = log

    def handle(self, event: Event) -> None:
        """Write one event, unless it is bulk."""
        if event.kind in _KEPT_FROM_LOG:
            return
        bulky = ("hello", "steps", "hosts", "diff")
        fields = {
            name: value for name, value in event.data.items() if name not in bulky and value is not None
        }
        self._log.info(event.kind, run=event.run, host=event.host or "-", **fields)

    def close(self) -> None:
        """Nothing is held back."""
