"""Events are numbered, scrubbed and delivered in order, and a subscriber's bug is not swallowed."""

from __future__ import annotations

import threading

import pytest

from fleet.core.events import Event
from fleet.core.secret import Scrubber, Secret
from fleet.run.bus import EventBus


class Collector:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = False

    def handle(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.closed = True


class Broken(Collector):
    def handle(self, event: Event) -> None:
        raise ZeroDivisionError("a bug")


def test_events_of_many_threads_arrive_once_each_in_sequence() -> None:
    seen = Collector()
    bus = EventBus("r1", [seen], Scrubber())
    threads = [
        threading.Thread(
            target=lambda n=n: [bus.publish("step_output", f"h{n}", text="x") for _ in range(50)]
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bus.close()
    assert [event.seq for event in seen.events] == list(range(1, 401))
    assert seen.closed


def test_secrets_are_masked_wherever_they_stand_in_an_event() -> None:
    seen = Collector()
    bus = EventBus("r1", [seen], Scrubber([Secret("hunter2hunter2", "sudo password")]))
    bus.publish("step_result", "h1", reason="said hunter2hunter2", diff=[{"after": {"hunter2hunter2": 1}}])
    bus.close()
    assert "hunter2" not in repr(seen.events[0])
    assert "********" in repr(seen.events[0])


def test_a_bug_in_a_subscriber_reaches_the_caller() -> None:
    bus = EventBus("r1", [Broken()], Scrubber())
    bus.publish("run_started")
    with pytest.raises(ZeroDivisionError):
        bus.close()
