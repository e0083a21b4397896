"""The event bus: many host threads publish, one thread delivers to the subscribers in order.

Text is scrubbed of secrets here, once, before any subscriber sees it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from fleet.core.documents import scrubbed
from fleet.core.events import Event, Subscriber
from fleet.core.ids import utc_now


class EventBus:
    """Numbers, scrubs and delivers events. ``close`` returns when everything was delivered."""

    def __init__(
        self,
        run: str,
        subscribers: Sequence[Subscriber],
        scrub: Callable[[str], str],
        *,
        first_seq: int = 0,
    ) -> None:
        self._run = run
        self._subscribers = tuple(subscribers)
        self._scrub = scrub
        self._queue: queue.SimpleQueue[Event | threading.Event | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._seq = first_seq
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._deliver, name="events", daemon=True)
        self._thread.start()

    def publish(self, kind: str, host: str | None = None, /, **data: Any) -> None:
        """Publish one event. Never blocks on a subscriber."""
        clean = scrubbed(data, self._scrub)
        with self._lock:
            self._seq += 1
            self._queue.put(Event(self._run, self._seq, utc_now(), host, kind, clean))

    def drain(self) -> None:
        """Return once everything published before was delivered."""
        marker = threading.Event()
        self._queue.put(marker)
        while not marker.wait(0.5):
            if self._failure is not None:
                raise self._failure

    def close(self) -> None:
        """Deliver what is left, close the subscribers, and raise what one of them raised."""
        self._queue.put(None)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _deliver(self) -> None:
        try:
            while (event := self._queue.get()) is not None:
                if isinstance(event, threading.Event):
                    event.set()
                    continue
                for subscriber in self._subscribers:
                    subscriber.handle(event)
            for subscriber in self._subscribers:
                subscriber.close()
        except BaseException as failure:  # handed to the thread that closes the bus
            self._failure = failure
