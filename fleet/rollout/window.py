"""The hours in which a host may be disturbed: ``22:30-02:30``, every day, over midnight where the end comes first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta

_TIME = r"([01]?[0-9]|2[0-3]):([0-5][0-9])"
_SPAN = re.compile(rf"\s*{_TIME}\s*(?:-|–|to)\s*{_TIME}\s*\Z")
_ONE = re.compile(rf"\s*{_TIME}\s*\Z")
_DAYS_LOOKED_AT = 2


@dataclass(frozen=True)
class Window:
    """From ``start`` until just before ``end``, by the wall clock of whoever asks (the controller)."""

    start: time
    end: time

    @classmethod
    def read(cls, value: object) -> Window:
        """``"22:30-02:30"`` or a mapping with start and end. Raises ValueError, worded to follow a name."""
        wrong = ValueError(
            f'must be such as "22:30-02:30" or {{start: "22:30", end: "02:30"}}, not {value!r}'
        )
        if isinstance(value, Mapping):
            if set(value) != {"start", "end"}:
                raise wrong
            parts = [
                _ONE.match(value[name]) if isinstance(value[name], str) else None for name in ("start", "end")
            ]
            if parts[0] is None or parts[1] is None:
                raise wrong
            numbers = [int(part) for one in parts if one for part in one.groups()]
        else:
            found = _SPAN.match(value) if isinstance(value, str) else None
            if found is None:
                raise wrong
            numbers = [int(part) for part in found.groups()]
        window = cls(time(numbers[0], numbers[1]), time(numbers[2], numbers[3]))
        if window.start == window.end:
            raise ValueError(f"must not end when it starts, as {value!r} does; leave it out for all day")
        return window

    def is_open(self, now: datetime) -> bool:
        """Whether ``now`` lies in it."""
        at = now.time().replace(tzinfo=None)
        if self.start < self.end:
            return self.start <= at < self.end
        return at >= self.start or at < self.end

    def opens(self, now: datetime) -> datetime:
        """``now`` where it is open, else when it opens next."""
        if self.is_open(now):
            return now
        days = (now.date() + timedelta(days=day) for day in range(_DAYS_LOOKED_AT))
        return next(at for day in days if (at := datetime.combine(day, self.start, tzinfo=now.tzinfo)) > now)

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M}"
