"""What happens in a run, as data: the engine publishes events; store, console and log subscribe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Event:
    """One thing that happened. ``kind`` and the shape of ``data`` are in schemas/event.schema.json.

    ``seq`` counts from 1 within the run; ``at`` is RFC 3339 UTC; ``host`` is None for run-wide events.
    Text in ``data`` is already scrubbed of secrets.
    """

    run: str
    seq: int
    at: str
    host: str | None
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The event as schemas/event.schema.json has it."""
        return {
            "run": self.run,
            "seq": self.seq,
            "at": self.at,
            "host": self.host,
            "kind": self.kind,
            "data": dict(self.data),
        }


class Subscriber(Protocol):
    """Sees every event, in order, from one thread. Must not raise for what an event says."""

    def handle(self, event: Event) -> None:
        """Take one event."""

    def close(self) -> None:
        """No more events will come."""
