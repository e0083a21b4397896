"""The console where there is no terminal: one line per happening, none rewritten, then the recap."""

from __future__ import annotations

from fleet.core.events import Event
from fleet.report.narrate import Narrator, Verbosity, header
from fleet.report.recap import recap
from fleet.report.style import Output
from fleet.report.view import RunView


class PlainConsole:
    """A Subscriber. Imports nothing heavy; ``width`` is the columns the recap wraps at."""

    def __init__(
        self,
        output: Output,
        *,
        verbosity: Verbosity | None = None,
        width: int = 100,
        log: str | None = None,
    ) -> None:
        self.view = RunView()
        self._output = output
        self._verbosity = verbosity or Verbosity()
        self._narrator = Narrator(self.view, self._verbosity)
        self._width = width
        self._log = log
        self._said = False

    def handle(self, event: Event) -> None:
        """Show one event."""
        self.view.handle(event)
        if event.kind == "run_started" and self._verbosity.level >= 0:
            self._output.write(header(self.view))
        lines = self._narrator.lines(event)
        self._said = self._said or bool(lines)
        self._output.write(*lines)

    def close(self) -> None:
        """Show the recap, if a run was seen."""
        if not self.view.run:
            return
        level = self._verbosity.level
        lines = recap(self.view, width=self._width, verbose=level >= 1, quiet=level < 0, log=self._log)
        self._output.write(*([[], *lines] if self._said else lines))
