"""What a running step says, on its way into the journal: scrubbed, gathered, and capped per step."""

from __future__ import annotations

from fleet.agent.scrub import StreamScrubber

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from fleet.agent.journal import Journal
    from fleet.agent.scrub import Scrubber

OUTPUT_LIMIT = 64 * 1024  # characters of output kept in the journal, per step
PROGRESS_LIMIT = 1000  # progress records, per step
_GATHER = 4096
_GATHER_S = 0.2


class StepReporter:
    """The reporter of one step. ``clock`` is monotonic seconds. Thread-safe: see :meth:`tick`."""

    def __init__(self, journal: Journal, scrubber: Scrubber, step: str, clock: Callable[[], float]) -> None:
        import threading

        self._journal = journal
        self._streams = {name: StreamScrubber(scrubber) for name in ("stdout", "stderr")}
        self.step = step
        self._clock = clock
        self._lock = threading.RLock()
        self._gathered = ""
        self._written = clock() - _GATHER_S
        self._room = OUTPUT_LIMIT
        self._dropped = 0
        self._progress_left = PROGRESS_LIMIT

    def output(self, text: str, stream: str = "stdout") -> None:
        """Output of a command, in pieces of any size."""
        with self._lock:
            self._take(self._streams[stream].feed(text))

    def progress(self, text: str) -> None:
        """One line that says how far the step is."""
        with self._lock:
            self._write_gathered()
            if self._progress_left > 0:
                self._progress_left -= 1
                self._append("progress", text[:_GATHER])

    def tick(self) -> None:
        """Called now and then from another thread: what was gathered is not kept waiting for more."""
        with self._lock:
            if self._gathered and self._clock() - self._written >= _GATHER_S:
                self._write_gathered()

    def finish(self) -> None:
        """The step is over: write what is left, and how much was not kept."""
        with self._lock:
            for stream in self._streams.values():
                self._take(stream.rest())
            self._write_gathered()
            if self._dropped:
                self.remark("(%d more characters of output were not kept)\n" % self._dropped)
                self._dropped = 0

    def remark(self, text: str) -> None:
        """Text of the worker's own, beside the cap."""
        self._append("output", text)

    def _take(self, text: str) -> None:
        kept = text[: self._room]
        self._room -= len(kept)
        self._dropped += len(text) - len(kept)
        if not kept:
            return
        self._gathered += kept
        if len(self._gathered) >= _GATHER or self._clock() - self._written >= _GATHER_S:
            self._write_gathered()

    def _write_gathered(self) -> None:
        text, self._gathered = self._gathered, ""
        self._written = self._clock()
        if text:
            self._append("output", text)

    def _append(self, kind: str, text: str) -> None:
        try:
            self._journal.append(kind, step=self.step, text=text)
        except OSError:
            self._dropped += len(text)  # a full disk: output is a courtesy, intents and results are not
