"""What can be wrong with the text of a YAML file before it means anything: encoding, marks, tabs, syntax.

:mod:`fleet.core.yaml` asks these questions; each answer is a problem with its line and column, in words
that name the cause (a tab, an open bracket, an unquoted template) rather than the parser's state.
"""

from __future__ import annotations

import re
from bisect import bisect_right

import yaml

from fleet.core.errors import Position, Problem


def decoded(source: str | bytes, name: str) -> tuple[str, Problem | None]:
    """The text without a leading byte order mark. UTF-8, or UTF-16 that says so by its mark."""
    if isinstance(source, str):
        return source.removeprefix("\ufeff"), None
    encoding = "utf-16" if source.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return source.decode(encoding), None
    except UnicodeDecodeError as error:
        before = source[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        shown = "UTF-16" if encoding == "utf-16" else "UTF-8"
        message = f"this is not {shown} (byte 0x{source[error.start]:02x}); save the file as UTF-8"
        return "", Problem(Position(name, line, column), message)


class Lines:
    """Line and column of offsets in a text."""

    def __init__(self, text: str) -> None:
        self.starts = [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text))]

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1


def marks_inside(text: str, name: str) -> list[Problem]:
    """Byte order marks after the start: libyaml drops some and keeps others in names."""
    if "\ufeff" not in text:
        return []
    lines = Lines(text)
    message = r"a byte order mark (BOM, \ufeff) stands here: two files joined? delete the invisible character"
    places = (lines.place(match.start()) for match in re.finditer("\ufeff", text))
    return [Problem(Position(name, line, column), message) for line, column in places]


_TAB = "a tab stands here; YAML is indented and separated by spaces"


def tabs_outside(text: str, name: str, spans: list[tuple[int, int]]) -> list[Problem]:
    """Tabs that are neither inside a scalar nor in a comment. libyaml lets some pass that others refuse."""
    lines = Lines(text)
    starts = [start for start, _ in spans]
    found: dict[int, Problem] = {}
    for match in re.finditer("\t", text):
        at = match.start()
        before = bisect_right(starts, at) - 1
        span_end = spans[before][1] if before >= 0 else 0
        line, column = lines.place(at)
        if at < span_end or line in found:
            continue
        lead = text[max(span_end, lines.starts[line - 1]) : at]
        if not re.search(r"(^|[\s,\]}:])#", lead):
            found[line] = Problem(Position(name, line, column), _TAB)
    return list(found.values())


def syntax_problems(error: yaml.YAMLError, text: str, name: str) -> list[Problem]:
    """What a scanner or parser error means, in words that name tabs and brackets where they are the cause."""
    tabs = [
        Problem(Position(name, number, line.index("\t") + 1), _TAB)
        for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1)
        if re.match(r" *\t\s*[^\s#]", line)
    ]
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return tabs or [_unprintable(error, text, name)]
    line, column = mark.line + 1, mark.column + 1
    what = getattr(error, "problem", None) or str(error)
    here = text.splitlines()[mark.line : mark.line + 1]
    if here and here[0][mark.column : mark.column + 1] == "\t":
        tabs.append(Problem(Position(name, line, column), _TAB))
    if tabs:
        return tabs
    context = getattr(error, "context", None)
    message = f"this is not YAML: {what}" + (f" ({context})" if context else "")
    return [Problem(Position(name, line, column), message + _hint(text, mark.line))]


def _hint(text: str, line: int) -> str:
    """Advice for the slips seen most: an unquoted template, a bracket left open."""
    near = "\n".join(text.splitlines()[max(0, line - 1) : line + 1])
    if re.search(r":\s+\{\{", near):
        return '; a value that starts with {{ needs quotes: "{{ … }}"'
    if re.search(r"^\s*[\[{]", near, re.M) and near.count("[") + near.count("{") > near.count(
        "]"
    ) + near.count("}"):
        return "; is a bracket left open?"
    return ""


_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _unprintable(error: yaml.YAMLError, text: str, name: str) -> Problem:
    match = _UNPRINTABLE.search(text)
    if match is None:
        return Problem(Position(name, 1, 1), f"this is not YAML: {error}")
    line, column = Lines(text).place(match.start())
    return Problem(
        Position(name, line, column), f"the control character U+{ord(match[0]):04X} cannot stand in YAML"
    )
