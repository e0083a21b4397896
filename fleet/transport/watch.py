"""One thread that keeps every connection alive, and ends those that are not.

It sends the beats that are due, declares a peer lost that was silent for too long, enforces deadlines
on calls of paramiko that have none (:meth:`Watch.guard`), and notices that the *controller* slept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from fleet.transport.clock import Deadline

CLOCK_JUMP_SECONDS = 20.0
TICK_SECONDS = 0.5


class Watched(Protocol):
    """What the watch looks after."""

    def tick(self) -> None:
        """Send a beat if one is due, and give up if the peer was silent for too long. Must not wait."""

    def controller_slept(self, seconds: float) -> None:
        """The controller itself was away for about ``seconds``."""


class Clock:
    """The two clocks whose disagreement shows a suspended or stopped controller. Replaced in tests."""

    def monotonic(self) -> float:
        """Seconds; stands still while the machine is suspended."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970; does not stand still."""
        return time.time()


class Watch:
    """Starts its thread with the first thing to watch, ends it in :meth:`close`. Thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._wake = threading.Condition()
        self._watched: set[Watched] = set()
        self._guards: dict[object, tuple[Deadline, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, watched: Watched) -> None:
        """Look after ``watched`` from now on."""
        with self._wake:
            self._watched.add(watched)
            self._start()

    def remove(self, watched: Watched) -> None:
        """Look after it no more."""
        with self._wake:
            self._watched.discard(watched)

    @contextmanager
    def guard(self, deadline: Deadline, cut: Callable[[], None]) -> Iterator[None]:
        """Call ``cut`` (which must not wait) if the body lasts past ``deadline``."""
        key = object()
        with self._wake:
            self._guards[key] = (deadline, cut)
            self._start()
        try:
            yield
        finally:
            with self._wake:
                self._guards.pop(key, None)

    def close(self) -> None:
        """End the thread, and cut what is guarded: nothing would end it any more."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
            thread = self._thread
            guarded = [cut for _, cut in self._guards.values()]
        for cut in guarded:
            cut()
        if thread and thread is not threading.current_thread():
            thread.join(10)

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="fleet connection watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        monotonic, wall = self._clock.monotonic(), self._clock.wall()
        while True:
            with self._wake:
                if self._closed or self._wake.wait_for(lambda: self._closed, TICK_SECONDS):
                    return
            before = (monotonic, wall)
            monotonic, wall = self._clock.monotonic(), self._clock.wall()
            self.look(slept(before, (monotonic, wall)))

    def look(self, asleep: float) -> None:
        """One round over everything watched; ``asleep`` is how long the controller was away."""
        with self._wake:
            watched = list(self._watched)
            late = [cut for deadline, cut in self._guards.values() if deadline.passed]
        for cut in late:
            cut()
        for one in watched:
            if asleep:
                one.controller_slept(asleep)
            else:
                one.tick()


def slept(before: tuple[float, float], now: tuple[float, float]) -> float:
    """How long the controller was away between two (monotonic, wall) readings; 0.0 when it was not.

    Suspended: the wall clock ran on without the monotonic one. Stopped (SIGSTOP, a paused machine):
    both ran on, but nobody looked. A wall clock set by hand looks like the former: reattaching then
    costs a reconnection and nothing else.
    """
    monotonic, wall = now[0] - before[0], now[1] - before[1]
    drift = abs(wall - monotonic)
    away = max(drift, monotonic - TICK_SECONDS)
    return away if away > CLOCK_JUMP_SECONDS else 0.0
