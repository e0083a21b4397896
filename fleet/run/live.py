"""Facts of hosts as they are now, asked for outside a run: no lease, nothing written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from fleet.core.errors import FleetError
from fleet.core.secret import Scrubber
from fleet.inventory import Host
from fleet.transport import Connector

FACTS_DEADLINE_S = 60.0


def facts_of(
    hosts: Sequence[Host], groups: Sequence[str], scrubber: Scrubber, *, forks: int, accept_new: bool = False
) -> dict[str, Mapping[str, Any] | FleetError]:
    """The facts of every host, ``forks`` at a time, in order; in place of those of a host, why it gave none."""

    def ask(host: Host) -> Mapping[str, Any] | FleetError:
        try:
            with closing(connector.connect(host.connection())) as agent:
                found: Mapping[str, Any] = agent.request(
                    "facts", {"groups": list(groups)}, deadline_s=FACTS_DEADLINE_S
                )
                return found
        except FleetError as error:
            return error

    with (
        closing(Connector(scrubber, accept_new=accept_new)) as connector,
        ThreadPoolExecutor(max(1, min(forks, len(hosts)))) as pool,
    ):
        return {host.name: found for host, found in zip(hosts, pool.map(ask, hosts), strict=True)}
