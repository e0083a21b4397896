"""Facts of many hosts as they are now, over connections that stay open: what read-only commands look at.

No lease, no journal, nothing written on a host: the agent runs from memory. :class:`LiveFacts` looks again and
again (``fleet status``), :func:`facts_of` once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from fleet.core.connection import Become, ConnectionSettings
from fleet.core.errors import ConnectionLost, HostError
from fleet.core.secret import Scrubber
from fleet.inventory import Host
from fleet.transport import AgentConnection, Connector

DEADLINE_S = 60.0


@dataclass(frozen=True)
class Reading:
    """What one host said: its facts, or the error in their place; ``as_root``: the agent ran as root."""

    host: str
    facts: Mapping[str, Any] | None = None
    error: HostError | None = None
    as_root: bool = False


class LiveFacts:
    """Reads ``groups`` of facts from ``hosts``, again and again; a connection that breaks is made anew.

    ``become``: as the inventory says; without, as the user that logs in, who may see less. Use it as a context
    manager, or close it.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        connector: Connector,
        groups: Sequence[str],
        *,
        become: bool,
        forks: int,
    ) -> None:
        self._settings = {host.name: _settings(host, become=become) for host in hosts}
        self._connector = connector
        self._groups = list(groups)
        self._connections: dict[str, AgentConnection] = {}
        self._pool = ThreadPoolExecutor(max(1, min(forks, len(hosts))))

    def __enter__(self) -> LiveFacts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self) -> dict[str, Reading]:
        """One reading of every host, in inventory order. A host that fails costs only its own."""
        return {reading.host: reading for reading in self._pool.map(self._read, self._settings)}

    def close(self) -> None:
        """Say goodbye to every host."""
        self._pool.shutdown()
        for connection in self._connections.values():
            connection.close()

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
        except HostError as error:
            self._forget(name)
            return Reading(name, error=error)

    def _ask(self, name: str) -> Reading:
        connection = self._connections.get(name)
        if connection is None:
            connection = self._connections[name] = self._connector.connect(self._settings[name])
        facts = connection.request("facts", {"groups": self._groups}, deadline_s=DEADLINE_S)
        return Reading(name, facts, as_root=connection.hello.get("uid") == 0)

    def _forget(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            with suppress(HostError):
                connection.close()


def _settings(host: Host, *, become: bool) -> ConnectionSettings:
    settings = host.connection()
    return settings if become else dataclasses.replace(settings, become=Become())


def facts_of(
    hosts: Sequence[Host], groups: Sequence[str], scrubber: Scrubber, *, forks: int, accept_new: bool = False
) -> dict[str, Mapping[str, Any] | HostError]:
    """The facts of every host, ``forks`` at a time, in order; in place of those of a host, why it gave none."""
    with (
        closing(Connector(scrubber, accept_new=accept_new)) as connector,
        LiveFacts(hosts, connector, groups, become=True, forks=forks) as live,
    ):
        readings = live.read()
    return {name: one.error if one.error is not None else one.facts or {} for name, one in readings.items()}
