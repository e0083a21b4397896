"""Differences as people read them: one line for a value, a unified diff for text of several lines."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from fleet.report.style import BAD, DIM, GOOD, Span, line
from fleet.report.words import printable, shortened

INDENT = "        "
LONGEST_VALUE = 120
LINES_MOST = 200


def diff_lines(differences: Iterable[Mapping[str, Any]] | None) -> list[list[Span]]:
    """The lines of a step's ``diff``, each indented under its step; at most 200 per difference."""
    lines: list[list[Span]] = []
    for difference in differences or ():
        path = printable(str(difference.get("path", "")))
        before, after = difference.get("before"), difference.get("after")
        unified = difference.get("unified")  # the host has it of a file's contents, which stay there
        if unified:
            lines += _shown(str(unified).splitlines())
        elif _is_text(before) or _is_text(after):
            lines += _shown(_unified(path, before, after))
        else:
            change = (Span(_value(before), BAD), " → ", Span(_value(after), GOOD))
            lines.append(line(f"{INDENT}{path}: ", *change))
    return lines


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\n" in value


def _unified(path: str, before: Any, after: Any) -> list[str]:
    old, new = (str(value or "").splitlines() for value in (before, after))
    names = (
        f"{path} (now)" if before is not None else "/dev/null",
        f"{path} (wanted)" if after is not None else "/dev/null",
    )
    return list(difflib.unified_diff(old, new, *names, lineterm=""))


def _shown(texts: list[str]) -> list[list[Span]]:
    lines = [line(Span(f"{INDENT}{printable(text)}", _role(text))) for text in texts[:LINES_MOST]]
    if len(texts) > LINES_MOST:
        lines.append(line(Span(f"{INDENT}… {len(texts) - LINES_MOST} more lines", DIM)))
    return lines


def _role(text: str) -> str:
    if text.startswith(("---", "+++", "@@")):
        return DIM
    return {"-": BAD, "+": GOOD}.get(text[:1], "")


def _value(value: Any) -> str:
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shortened(printable(text), LONGEST_VALUE) or '""'
