"""Tables for people: columns as wide as what is in them; where the line is to end, the last one takes what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleet.report.style import DIM, PLAIN, Line, Span, line
from fleet.report.words import shortened, wrapped

_GAP = "  "
_NARROWEST = 8


@dataclass(frozen=True)
class Column:
    """``right``: its cells end at one edge, as numbers do."""

    heading: str = ""
    right: bool = False


@dataclass(frozen=True)
class Cell:
    """``whole``: what does not fit the last column goes on below; otherwise it is cut with an ellipsis."""

    text: str
    role: str = PLAIN
    whole: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None = None) -> list[Line]:
    """The headings, where there are any, then a line per row, or more where its last cell is told whole.

    Every row has a cell for each column. ``width`` None: lines are as long as their cells are.
    """
    headings = [Cell(column.heading, DIM) for column in columns]
    if any(column.heading for column in columns):
        rows = [headings, *rows]
    widths = [max((len(row[place].text) for row in rows), default=0) for place in range(len(columns))]
    lead = sum(widths[:-1]) + len(_GAP) * (len(columns) - 1)
    lines: list[Line] = []
    for row in rows:
        first, *more = [row[-1].text] if width is None else _pieces(row[-1], max(_NARROWEST, width - lead))
        lines.append(_line(columns, [*row[:-1], replace(row[-1], text=first)], widths))
        lines += [line(" " * lead, Span(piece, row[-1].role)) for piece in more]
    return lines


def _pieces(cell: Cell, room: int) -> list[str]:
    if cell.whole:
        return wrapped(cell.text, room, least=_NARROWEST) or [""]
    return [shortened(cell.text, room)]


def _line(columns: Sequence[Column], cells: Sequence[Cell], widths: Sequence[int]) -> Line:
    spans: list[Span] = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        padded = f"{cell.text:>{width}}" if column.right else f"{cell.text:<{width}}"
        spans += [Span(_GAP), Span(padded, cell.role)] if spans else [Span(padded, cell.role)]
    return spans
