"""Deadlines: a wait knows how long it may still last."""

from __future__ import annotations

import time


class Deadline:
    """A moment ``seconds`` from now, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def left(self, at_most: float | None = None) -> float:
        """Seconds left, never less than a millisecond (0 would mean "do not block" to sockets)."""
        left = max(0.001, self.at - time.monotonic())
        return left if at_most is None else min(left, at_most)

    @property
    def passed(self) -> bool:
        """Whether the moment is over."""
        return time.monotonic() >= self.at
