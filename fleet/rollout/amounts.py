"""A number of hosts as operators give it: ``3`` or ``10%``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_TEXT = re.compile(r"\s*([0-9]{1,6})\s*\Z|\s*([0-9]{1,3}(?:\.[0-9]{1,3})?)\s*%\s*\Z")


@dataclass(frozen=True)
class Amount:
    """Either a count of hosts or a share of them."""

    count: int | None = None
    percent: float | None = None

    @classmethod
    def read(cls, value: object) -> Amount:
        """``3``, ``"3"`` or ``"10%"``. Raises ValueError, worded to follow the name of what is read."""
        found = _TEXT.match(str(value)) if isinstance(value, (str, int)) and value is not True else None
        if found is None or isinstance(value, bool):
            raise ValueError(f'must be a number of hosts or a share such as "10%", not {value!r}')
        if found[1] is not None:
            return cls(count=int(found[1]))
        percent = float(found[2])
        if percent > 100:
            raise ValueError(f"must not be above 100%, not {value!r}")
        return cls(percent=percent)

    def of(self, total: int) -> int:
        """How many of ``total`` hosts, rounded down: a limit is never exceeded by rounding."""
        if self.count is not None:
            return self.count
        assert self.percent is not None
        # 1e-9: 29% of 100 is 28.999999999999996 to a float.
        return math.floor(total * self.percent / 100 + 1e-9)

    def __str__(self) -> str:
        return str(self.count) if self.count is not None else f"{self.percent:g}%"
