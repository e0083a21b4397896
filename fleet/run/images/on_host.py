"""An image on a host that has it: what its engine says of the configuration, by a question that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from fleet.core.errors import BecomeFailed, HostFailed
from fleet.core.secret import Scrubber
from fleet.inventory import Host
from fleet.run.asking import Asking
from fleet.transport import Connector

DEADLINE_S = 60.0


def configuration_on(host: Host, scrubber: Scrubber, how: Asking, reference: str) -> Mapping[str, Any]:
    """The answer to the agent's query ``image_configuration``. Raises HostError."""
    settings = host.connection()
    without_root = replace(settings, become=replace(settings.become, enabled=False))
    with closing(Connector(scrubber, accept_new=how.accept_new)) as connector:
        try:
            agent = connector.connect(settings if how.become else without_root)
        except BecomeFailed:
            agent = connector.connect(without_root)
        with closing(agent):
            query = {"id": "image", "kind": "image_configuration", "reference": reference}
            said = agent.request("query", {"queries": [query]}, deadline_s=DEADLINE_S)["answers"]["image"]
    if not said.get("ok"):
        raise HostFailed(str(said.get("error")), host=host.name, remedy=said.get("remedy"))
    value: Mapping[str, Any] = said["value"]
    return value
