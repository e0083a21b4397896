"""The console on a terminal: one line per host, redrawn in place, then the recap.

Rich draws; it is imported when the first event comes. Which hosts have a line, and what it says, is
decided by plain functions (:func:`draw`, :func:`rows`, :func:`row`), tested without a terminal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.core.events import Event
from fleet.core.ids import utc_now
from fleet.report.narrate import Narrator, Verbosity, header
from fleet.report.recap import recap
from fleet.report.style import DIM, PLAIN, ROLES, STRONG, Line, Output, Span, ansi_of, line, text_of
from fleet.report.view import RUNNING, HostView, RunView, seconds_between
from fleet.report.words import duration, plural, shortened

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

REFRESHES_PER_SECOND = 5
_CHROME = 5  # lines of the screen that are not hosts: header, blank, counts, notice, cursor


@dataclass(frozen=True)
class Row:
    """What one host's line says. ``total`` 0 means that nothing is planned yet."""

    name: str
    role: str
    done: int
    total: int
    words: str
    elapsed: str


def row(host: HostView, now: str) -> Row:
    """One host's line at the time ``now``."""
    took = seconds_between(host.started_at, host.ended_at or now)
    words = host.note if host.status == RUNNING else host.status
    if host.status not in (RUNNING, "converged") and host.reason:
        words = f"{host.status}: {host.cause}"
    role = PLAIN if host.status == RUNNING else ROLES.get(host.status, PLAIN)
    return Row(host.name, role, host.done, host.total, words, duration(took) if took is not None else "")


def rows(view: RunView, height: int) -> tuple[list[HostView], str]:
    """The hosts that fit in ``height`` lines, and words for the others.

    When not all fit: hosts in trouble first, then working ones; ended well or waiting are counted.
    """
    hosts = list(view.hosts.values())
    if len(hosts) <= height:
        return hosts, ""
    trouble = [host for host in hosts if host.status not in (RUNNING, "converged", "skipped")]
    working = [host for host in hosts if host.status == RUNNING and host.started_at]
    room = max(0, height - 1)
    shown = (trouble[: max(room // 2, room - len(working))] + working)[:room]
    kept = {host.name for host in shown}
    hidden = RunView()
    hidden.hosts = {host.name: host for host in hosts if host.name not in kept}
    counts = " · ".join(f"{count} {status}" for status, count in hidden.counts.items())
    return shown, f"and {plural(len(hidden.hosts), 'host')}: {counts}"


def draw(view: RunView, now: str, width: int, height: int) -> list[list[Span]]:
    """The lines of the table at the time ``now``, none wider than ``width``."""
    hosts, others = rows(view, height)
    shown = [row(host, now) for host in hosts]
    names = min(max((len(one.name) for one in shown), default=0), width // 3)
    counts = max((len(_count(one)) for one in shown), default=0)
    times = max((len(one.elapsed) for one in shown), default=0)
    bar = max(8, min(24, width // 5))
    room = max(8, width - (2 + names + 2 + bar + 2 + counts + 2 + 2 + times + 1))
    lines = []
    for one in shown:
        name = f"  {shortened(one.name, names):<{names}}  "
        words = Span(f"{shortened(one.words, room):<{room}}", one.role)
        elapsed = Span(f"  {one.elapsed:>{times}}", DIM)
        lines.append(line(name, *_bar(one, bar), f"  {_count(one):>{counts}}  ", words, elapsed))
    if others:
        lines.append(line(Span(f"  {shortened(others, width - 3)}", DIM)))
    return lines


def _count(one: Row) -> str:
    return f"{one.done}/{one.total}" if one.total else ""


def _bar(one: Row, width: int) -> tuple[Span, Span]:
    """Heavy for what is done, light for what is left, so that it reads without colour too."""
    if not one.total:
        return Span(" " * width), Span("")
    heavy = width * min(one.done, one.total) // one.total
    return Span("━" * heavy, one.role), Span("─" * (width - heavy), DIM)


class LiveConsole:
    """A Subscriber for terminals. ``clock`` gives the time as RFC 3339 for what is still running."""

    def __init__(
        self,
        output: Output,
        *,
        verbosity: Verbosity | None = None,
        log: str | None = None,
        clock: Callable[[], str] = utc_now,
        width: int | None = None,
    ) -> None:
        self.view = RunView()
        self._output = output
        self._verbosity = verbosity or Verbosity()
        self._narrator = Narrator(self.view, self._verbosity)
        self._log = log
        self._clock = clock
        self._width = width
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._notice = ""

    def notice(self, words: str) -> bool:
        """Show ``words`` under the table from now on; False when there is no table on the screen.

        Safe in a signal handler: it takes no lock and writes nothing, the next redraw does.
        """
        self._notice = words
        return self._live is not None and self._live.is_started

    def handle(self, event: Event) -> None:
        """Take in one event; Rich's thread redraws."""
        with self._lock:
            self.view.handle(event)
            lines = self._narrator.lines(event) if self._told() else []
        if self._live is None:
            self._start()
        if event.kind == "run_started":
            self._print([header(self.view), []])
        self._print(lines)

    def close(self) -> None:
        """Take the table away and show the recap."""
        if self._live is None:
            return
        width = self._live.console.width
        self._live.stop()
        level = self._verbosity.level
        self._output.write(*recap(self.view, width=width, verbose=level >= 1, quiet=level < 0, log=self._log))

    def _told(self) -> bool:
        """Whether lines scroll by above the table: only when asked for."""
        return self._verbosity.level >= 1 or self._verbosity.diff or self.view.check

    def _start(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(
            file=self._output.stream,
            no_color=not self._output.colour,
            force_terminal=True,
            highlight=False,
            markup=False,
            width=self._width,
        )
        self._live = Live(
            console=console,
            get_renderable=lambda: self._table(console),
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _print(self, lines: list[Any]) -> None:
        if lines and self._live is not None:
            self._live.console.print(*(self._rich(one) for one in lines), sep="\n", soft_wrap=True)

    def _rich(self, one: Line) -> RenderableType:
        from rich.text import Text

        text = Text.from_ansi(ansi_of(one)) if self._output.colour else Text(text_of(one))
        text.no_wrap = True
        return text

    def _table(self, console: Console) -> RenderableType:
        from rich.console import Group

        with self._lock:
            drawn = draw(self.view, self._clock(), console.width, console.height - _CHROME)
        if self._notice:
            drawn.append(line(Span(f"  {shortened(self._notice, console.width - 3)}", STRONG)))
        return Group(*(self._rich(one) for one in drawn))
