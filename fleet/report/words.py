"""How numbers, names and host text are written for people."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

_SPACES = range(9, 14)
_CONTROLS = (*range(9), *range(14, 32), *range(127, 160))
_BIDIRECTIONAL = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_REPLACED = dict.fromkeys((*_CONTROLS, *_BIDIRECTIONAL), "\N{REPLACEMENT CHARACTER}")
_UNPRINTABLE = {**dict.fromkeys(_SPACES, " "), **_REPLACED}
_NUMBERED = re.compile(r"^(?P<stem>.*?)(?P<number>[0-9]+)(?P<tail>[^0-9]*)$")
_SHOWN_RUN = 6


def printable(text: str) -> str:
    """``text`` on one line without control or bidirectional characters: hosts may say anything."""
    clean = text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
    return clean.translate(_UNPRINTABLE)


def run_name(run: str) -> str:
    """The first digits of a run's id, as many as commands are given."""
    return run[:_SHOWN_RUN]


def duration(seconds: float) -> str:
    """``0.4 s``, ``41 s``, ``2m31s``, ``1h02m``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 host``, ``4 hosts``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def shortened(text: str, width: int) -> str:
    """``text`` in at most ``width`` columns, cut with an ellipsis."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def wrapped(text: str, width: int, least: int = 24) -> list[str]:
    """``text`` in lines of at most ``width`` columns, or ``least``; words are never broken."""
    return textwrap.wrap(text, max(width, least), break_long_words=False, break_on_hyphens=False)


def ranges(names: Iterable[str], most: int = 6) -> str:
    """Host names with runs of numbers folded as inventories write them: ``gpu[001:200], login1``.

    Past ``most`` pieces the rest is counted.
    """
    pieces: list[str] = []
    run: list[str] = []
    for name in sorted(names, key=_natural):
        if run and not _follows(run[-1], name):
            pieces.append(_folded(run))
            run = []
        run.append(name)
    if run:
        pieces.append(_folded(run))
    if len(pieces) > most:
        pieces = [*pieces[:most], f"and {len(pieces) - most} more"]
    return ", ".join(pieces)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(int(part or 0), len(part), "") if part.isdigit() else (0, 0, part) for part in _split(name)]


def _split(name: str) -> list[str]:
    return re.split(r"([0-9]+)", name)


def _follows(first: str, second: str) -> bool:
    one, two = _NUMBERED.match(first), _NUMBERED.match(second)
    if one is None or two is None or (one["stem"], one["tail"]) != (two["stem"], two["tail"]):
        return False
    padded = len(one["number"]) == len(two["number"])
    grew = not one["number"].startswith("0") and not two["number"].startswith("0")
    return int(two["number"]) == int(one["number"]) + 1 and (padded or grew)


def _folded(run: Sequence[str]) -> str:
    first, last = _NUMBERED.match(run[0]), _NUMBERED.match(run[-1])
    if len(run) < 3 or first is None or last is None:
        return ", ".join(run)
    return f"{first['stem']}[{first['number']}:{last['number']}]{first['tail']}"
