"""How many SSH handshakes may be under way at once, and when a failed one is tried again.

sshd's MaxStartups (10:30:100) drops unauthenticated connections at random above ten: of 100
simultaneous connections 41 failed. So handshakes are capped per sshd, a bastion counted for its own,
and one that was cut before or during the banner is tried again after a jittered pause. Nothing else
is: a refused key or password would only come nearer to a lock-out.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fleet.core.errors import ConnectFailed

Result = TypeVar("Result")

ATTEMPTS = 9


class HandshakeCut(ConnectFailed):
    """The server hung up before it had said who it is: MaxStartups, or a restart. Worth another try."""


class Handshakes:
    """Counts handshakes per endpoint and over all. Waiting for a turn is not part of any deadline."""

    def __init__(self, per_endpoint: int, overall: int) -> None:
        self._per_endpoint = per_endpoint
        self._lock = threading.Lock()
        self._endpoints: dict[object, threading.Semaphore] = {}
        self._overall = threading.Semaphore(overall)

    @contextmanager
    def turn(self, endpoint: object) -> Iterator[None]:
        """Wait for a turn at ``endpoint`` (any hashable name of one sshd)."""
        with self._lock:
            slots = self._endpoints.setdefault(endpoint, threading.Semaphore(self._per_endpoint))
        with slots, self._overall:
            yield


def retry_cut(attempt: Callable[[], Result], stopped: threading.Event) -> Result:
    """Run ``attempt`` until it is not cut: at most :data:`ATTEMPTS` times within about 15 s of pauses."""
    pause = 0.2
    for _ in range(ATTEMPTS - 1):
        try:
            return attempt()
        except HandshakeCut:
            if stopped.wait(pause * random.uniform(0.5, 1.5)):  # noqa: S311  spreads load, guards nothing
                raise
            pause = min(pause * 2, 2.5)
    return attempt()
