"""Host ranges in names: ``gpu[01:04]``, ``rack[a:c]-[1:2]``, ``s[01:09:4]``, exactly as Ansible expands them.

Begin and end are inclusive; a begin with leading zeros fixes the width, and the end must have the same;
several ranges in one name multiply, the last one running fastest. Anything in brackets that is not such a
range is refused: a name is never taken literally because its range was mistyped.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterator

MOST_HOSTS = 1_000_000
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_SLURM = re.compile(r"\d+-\d+|\d+(?:-\d+)?(?:,\d+(?:-\d+)?)+")


class RangeError(ValueError):
    """The range cannot be expanded; the message says what was written and what to write instead."""


def expand(name: str) -> list[str]:
    """All names that ``name`` stands for, in order: itself if it has no range.

    Raises :class:`RangeError` for anything in brackets that is not a range, and for an empty range.
    """
    if "[" not in name and "]" not in name:
        return [name]
    literals: list[str] = []
    choices: list[list[str]] = []
    end = 0
    for match in _BRACKETS.finditer(name):
        literals.append(name[end : match.start()])
        choices.append(_choices(name, match))
        end = match.end()
    literals.append(name[end:])
    if any(bracket in literal for literal in literals for bracket in "[]"):
        raise RangeError(f"{name} has a bracket that is not closed; a range looks like gpu[01:04]")
    total = 1
    for values in choices:
        total *= len(values)
    if total > MOST_HOSTS:
        raise RangeError(f"{name} stands for {total:,} names; at most {MOST_HOSTS:,} are taken")
    return list(_joined(literals, choices))


def _joined(literals: list[str], choices: list[list[str]]) -> Iterator[str]:
    for picked in itertools.product(*choices):
        parts = [literals[0]]
        for value, literal in zip(picked, literals[1:], strict=True):
            parts += (value, literal)
        yield "".join(parts)


def _choices(name: str, match: re.Match[str]) -> list[str]:
    """The values of one bracket."""
    inside = match[1]
    if _SLURM.fullmatch(inside):
        raise RangeError(_slurm_advice(name, match))
    parts = inside.split(":")
    if len(parts) not in (2, 3) or not parts[1]:
        raise RangeError(f"{name} is not a range of this format; a range looks like gpu[01:04]")
    begin, end = parts[0] or "0", parts[1]
    step = _step(name, parts[2]) if len(parts) == 3 and parts[2] else 1
    if begin in string.ascii_letters and end in string.ascii_letters and len(begin) == len(end) == 1:
        values = _letters(begin, end, step)
    elif begin.isascii() and end.isascii() and begin.isdigit() and end.isdigit():
        values = _numbers(name, begin, end, step)
    else:
        raise RangeError(f"{name} is not a range of this format; a range looks like gpu[01:04] or rack[a:f]")
    if not values:
        raise RangeError(f"{name} is an empty range: it begins after its end; write [{end}:{begin}]")
    return values


def _step(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise RangeError(f"{name} has the step {text}; a step is a whole number from 1 up")
    return int(text)


def _letters(begin: str, end: str, step: int) -> list[str]:
    letters = string.ascii_letters
    return list(letters[letters.index(begin) : letters.index(end) + 1 : step])


def _numbers(name: str, begin: str, end: str, step: int) -> list[str]:
    width = len(begin) if len(begin) > 1 and begin.startswith("0") else 0
    if width and len(end) != width:
        padded = end.zfill(width)
        other = f"[{begin.zfill(len(end))}:{end}]" if len(end) > width else f"[{begin}:{padded}]"
        raise RangeError(f"{name} has bounds of unequal width; write {other}")
    if max(len(begin), len(end)) > 9:
        raise RangeError(f"{name} has bounds too large to be a range")
    numbers = range(int(begin), int(end) + 1, step)
    if len(numbers) > MOST_HOSTS:
        raise RangeError(f"{name} stands for {len(numbers):,} names; at most {MOST_HOSTS:,} are taken")
    return [str(number).zfill(width) for number in numbers]


def _slurm_advice(name: str, match: re.Match[str]) -> str:
    """``gpu[001-003,007]`` is Slurm's notation: say how the same is written here."""
    written = [name[: match.start()] + _item(item) + name[match.end() :] for item in match[1].split(",")]
    one = len(written) == 1
    return f"{name} is not a range of this format; write {', '.join(written)}" + (
        "" if one else " (one key each)"
    )


def _item(item: str) -> str:
    return f"[{item.replace('-', ':')}]" if "-" in item else item
