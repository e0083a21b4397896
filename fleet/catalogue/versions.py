"""Version numbers and dates as the catalogue writes them, compared number by number.

``550.120`` is newer than ``550.90.07``, and ``535.288.01`` than ``535.183.06``: as decimal numbers or as texts
both would be the other way round. A version is always text; YAML and JSON numbers have already lost digits.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property, total_ordering
from typing import Any

from fleet.core.errors import InputError

_DRIVER = re.compile(r"[0-9]{3}(\.[0-9]{1,3}){1,2}")
_RELEASE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")


@total_ordering
@dataclass(frozen=True, eq=False)
class Version:
    """A dotted version. ``text`` is as written; ``numbers`` decide, and missing ones count as 0."""

    text: str
    numbers: tuple[int, ...] = field(repr=False)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def major(self) -> int:
        """The first number: of a driver its branch, of CUDA its major."""
        return self.numbers[0]

    @cached_property
    def _key(self) -> tuple[int, ...]:
        kept = len(self.numbers)
        while kept > 1 and self.numbers[kept - 1] == 0:
            kept -= 1
        return self.numbers[:kept]

    def begins_with(self, other: Version) -> bool:
        """Whether this is ``other`` or a release of it: 12.8.1 begins with 12.8."""
        return self.numbers[: len(other.numbers)] == other.numbers


@cache
def driver_version(text: str) -> Version:
    """A driver's version such as ``580.159.03`` or ``550.120``. Raises InputError for anything else."""
    return _parsed(text, _DRIVER, "a driver version, such as 580.159.03")


@cache
def release(text: str) -> Version:
    """The version of anything else: ``12.8.1``, ``25.0``. Raises InputError for anything else."""
    return _parsed(text, _RELEASE, "a version, such as 12.8.1")


def _parsed(text: Any, pattern: re.Pattern[str], wanted: str) -> Version:
    if not isinstance(text, str):
        raise InputError(f"{text!r} is a number, which has lost digits of the version: write it as text")
    if not pattern.fullmatch(text):
        raise InputError(f"{text!r} is not {wanted}")
    return Version(text, tuple(map(int, text.split("."))))


def last_day(text: str) -> date:
    """The day something ends on: of ``2026-06`` the last of June, of ``2031`` the last of that year.

    Raises InputError where it is no date.
    """
    match = _DATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InputError(f"{text!r} is not a date: YYYY, YYYY-MM or YYYY-MM-DD")
    year, month = int(match[1]), int(match[2] or 12)
    try:
        return date(year, month, int(match[3] or calendar.monthrange(year, month)[1]))
    except (ValueError, calendar.IllegalMonthError) as error:
        raise InputError(f"{text!r} is not a day of the calendar") from error


def first_day(text: str) -> date:
    """The day something begins on: of ``2026-06`` the first of June. Raises InputError where it is no date."""
    last = last_day(text)
    parts = text.count("-")
    return last if parts == 2 else last.replace(day=1) if parts == 1 else last.replace(month=1, day=1)
