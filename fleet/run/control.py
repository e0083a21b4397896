"""The operator's hand on a run: Ctrl-C once stops at the next step edge, twice detaches.

One :class:`Control` is shared by every host thread of a run. It also owns the clock, so that tests
can play time.
"""

from __future__ import annotations

import threading
import time

from fleet.core.errors import Interrupted


class Control:
    """Cancel and detach flags of one run."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._detached = threading.Event()

    def interrupt(self) -> str:
        """One press of Ctrl-C. Returns ``cancel`` for the first and ``detach`` for any later one."""
        if self._cancelled.is_set():
            self._detached.set()
            return "detach"
        self._cancelled.set()
        return "cancel"

    @property
    def cancelled(self) -> bool:
        """Stop at the next step edge."""
        return self._cancelled.is_set()

    @property
    def detached(self) -> bool:
        """Let the hosts go on alone."""
        return self._detached.is_set()

    def raise_if_detached(self, host: str) -> None:
        """Raise Interrupted when the operator has left."""
        if self.detached:
            raise Interrupted("left running on its own (detached)", host=host)

    def wait(self, seconds: float) -> None:
        """Wait, but not past a detach."""
        self._detached.wait(seconds)

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()
