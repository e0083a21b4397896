"""Tables for people: widths from what is in them, the last column in what is left."""

from __future__ import annotations

from fleet.report.columns import Cell, Column, table
from fleet.report.style import BAD, text_of

NAMED = (Column("host"), Column("GPU", right=True), Column("who"))


def shown(*rows: tuple[str, ...], width: int | None = None, whole: bool = False) -> list[str]:
    cells = [[*map(Cell, row[:-1]), Cell(row[-1], BAD, whole)] for row in rows]
    return [text_of(one) for one in table(NAMED, cells, width)]


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert shown(("gpu01", "0", "anna"), ("", "10", "–")) == [
        "host   GPU  who",
        "gpu01    0  anna",
        "        10  –",
    ]


def test_without_headings_there_is_no_line_of_them() -> None:
    lines = table((Column(), Column(right=True)), [[Cell("a"), Cell("7")], [Cell("bb"), Cell("10")]])
    assert [text_of(one) for one in lines] == ["a    7", "bb  10"]


def test_the_last_cell_is_cut_or_told_whole_below_itself() -> None:
    row = ("gpu01", "0", "it does not answer any more")
    assert shown(row, width=24) == ["host   GPU  who", "gpu01    0  it does not…"]
    told = shown(row, width=24, whole=True)
    assert told == [
        "host   GPU  who",
        "gpu01    0  it does not",
        "            answer any",
        "            more",
    ]
    assert max(map(len, told)) <= 24


def test_colours_are_those_of_the_cells() -> None:
    (line,) = table((Column(), Column()), [[Cell("a"), Cell("lost", BAD)]])
    assert [span.text for span in line if span.role == BAD] == ["lost"]
