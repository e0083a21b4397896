"""Facts of many hosts as they are now, over connections that stay open: how every read-only command asks.

No lease, no journal, nothing written on a host: the agent runs from memory. :class:`LiveFacts` looks again and
again (``fleet status``), :func:`read_once` once (``fleet health``, ``fleet audit``), :func:`facts_of` is that in
short. Where fleet may not become root, the host is asked as the user who logs in, who may see less, and the reading
says so. Which hosts, and how: :mod:`fleet.run.asking`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import BecomeFailed, ConnectionLost, FleetError, HostError
from fleet.core.secret import Scrubber
from fleet.inventory import Host
from fleet.run.asking import Asking
from fleet.transport import AgentConnection, Connector

DEADLINE_S = 120.0


@dataclass(frozen=True)
class Reading:
    """What one host said: its facts, or the error in their place.

    ``as_root``: whether the agent ran as root. ``note`` says why not, where the inventory would have had it so.
    """

    host: str
    facts: Mapping[str, Any] | None = None
    error: FleetError | None = None
    as_root: bool | None = None
    note: str | None = None


class LiveFacts:
    """Reads ``groups`` of facts from ``hosts``, again and again; a connection that breaks is made anew.

    Use it as a context manager, or close it.
    """

    def __init__(self, hosts: Sequence[Host], groups: Sequence[str], scrubber: Scrubber, how: Asking) -> None:
        self._settings = {host.name: host.connection() for host in hosts}
        if not how.become:
            self._settings = {name: _without_root(settings) for name, settings in self._settings.items()}
        self._connector = Connector(scrubber, accept_new=how.accept_new)
        self._groups = list(groups)
        self._connections: dict[str, AgentConnection] = {}
        self._notes: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(max(1, min(how.forks, len(hosts))))

    def __enter__(self) -> LiveFacts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self) -> dict[str, Reading]:
        """One reading of every host, in inventory order. A host that fails costs only its own."""
        return {reading.host: reading for reading in self.each()}

    def each(self) -> Iterator[Reading]:
        """The same one by one: who keeps little of the facts need not hold those of all hosts at once."""
        return self._pool.map(self._read, self._settings)

    def close(self) -> None:
        """Say goodbye to every host."""
        self._pool.shutdown()
        for connection in self._connections.values():
            connection.close()
        self._connector.close()

    def _read(self, name: str) -> Reading:
        try:
            try:
                return self._ask(name)
            except ConnectionLost:
                # Once more over a new connection: the host may have been restarted between two looks.
                if name not in self._connections:
                    raise
                self._forget(name)
                return self._ask(name)
        except FleetError as error:
            self._forget(name)
            return Reading(name, error=error)

    def _ask(self, name: str) -> Reading:
        connection = self._connections.get(name)
        if connection is None:
            connection = self._connections[name] = self._connected(name)
        facts = connection.request("facts", {"groups": self._groups}, deadline_s=DEADLINE_S)
        return Reading(name, facts, as_root=connection.hello.get("uid") == 0, note=self._notes.get(name))

    def _connected(self, name: str) -> AgentConnection:
        try:
            return self._connector.connect(self._settings[name])
        except BecomeFailed as error:
            # For good: sudo is not tried again at every look, which some hosts lock users out for.
            self._settings[name] = _without_root(self._settings[name])
            self._notes[name] = f"asked without root: {error.what}"
            return self._connector.connect(self._settings[name])

    def _forget(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            with suppress(HostError):
                connection.close()


def _without_root(settings: ConnectionSettings) -> ConnectionSettings:
    return replace(settings, become=replace(settings.become, enabled=False))


def read_once(
    hosts: Sequence[Host], groups: Sequence[str], scrubber: Scrubber, how: Asking
) -> dict[str, Reading]:
    """One reading of every host, in inventory order."""
    with LiveFacts(hosts, groups, scrubber, how) as live:
        return live.read()


def facts_of(
    hosts: Sequence[Host], groups: Sequence[str], scrubber: Scrubber, how: Asking
) -> dict[str, Mapping[str, Any] | FleetError]:
    """The facts of every host, in inventory order; in place of those of a host, why it gave none."""
    readings = read_once(hosts, groups, scrubber, how)
    return {name: one.error if one.error is not None else one.facts or {} for name, one in readings.items()}
