"""Coloured text as data: pieces with a role, turned into ANSI or nothing at the edge."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from fleet.core.documents import Scrub

PLAIN_WIDTH = 100
GOOD, WARN, BAD, DIM, STRONG, PLAIN = "good", "warn", "bad", "dim", "strong", ""

_ANSI = {GOOD: "32", WARN: "33", BAD: "31", DIM: "2", STRONG: "1"}

#: The role each host or step status is shown in.
ROLES = {
    "converged": GOOD,
    "changed": GOOD,
    "would_change": WARN,
    "known_after_apply": WARN,
    "pending": WARN,
    "cancelled": WARN,
    "skipped": DIM,
    "ok": DIM,
    "failed": BAD,
    "blocked": BAD,
    "locked": BAD,
    "unreachable": BAD,
    "interrupted": BAD,
}


@dataclass(frozen=True)
class Span:
    """A piece of a line."""

    text: str
    role: str = PLAIN


Line = Sequence[Span]


def line(*pieces: str | Span) -> list[Span]:
    """A line of plain words and spans."""
    return [Span(piece) if isinstance(piece, str) else piece for piece in pieces]


def text_of(spans: Line) -> str:
    """The words of a line."""
    return "".join(span.text for span in spans).rstrip()


def ansi_of(spans: Line) -> str:
    """A line with its colours as ANSI sequences."""
    parts = [f"\033[{_ANSI[span.role]}m{span.text}\033[0m" if span.role else span.text for span in spans]
    return "".join(parts).rstrip()


def wants_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """NO_COLOR (non-empty) says no, FORCE_COLOR says yes, else whether ``stream`` is a terminal."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


def width_of(stream: TextIO, otherwise: int = PLAIN_WIDTH) -> int:
    """The columns of a terminal; ``otherwise`` for a file or pipe."""
    return shutil.get_terminal_size().columns if stream.isatty() else otherwise


class Output:
    """Lines to one stream, coloured or not.

    When the reader has gone (``fleet … | head``) the lines are dropped: a run goes on without its
    audience. A stream that cannot spell a character gets a question mark. ``scrub`` is the last line of
    defence against a secret in a line.
    """

    def __init__(
        self, stream: TextIO | None = None, *, colour: bool | None = None, scrub: Scrub | None = None
    ) -> None:
        self.stream = stream or sys.stdout
        self._scrub = scrub
        self.colour = wants_colour(self.stream) if colour is None else colour
        self.gone = False

    def write(self, *lines: Line) -> None:
        """Write whole lines and flush."""
        text = "".join((ansi_of(one) if self.colour else text_of(one)) + "\n" for one in lines)
        if self.gone or not text:
            return
        try:
            self.stream.write(self._spelt(self._scrub(text) if self._scrub else text))
            self.stream.flush()
        except BrokenPipeError:
            self.gone = True

    def _spelt(self, text: str) -> str:
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        return text.encode(encoding, "replace").decode(encoding)
