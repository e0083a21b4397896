"""What checks on this host found last: so far, whether containers see its GPUs.

Written by the ``container_check`` resource (:mod:`fleet.agent.resources.container_check`).
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("container_check",)


def path(host: Host) -> str:
    """Where the record lies."""
    return os.path.join(host.state_dir, "checks", "container.json")


def read(host: Host) -> Json:
    """The record as it was written. Raises OSError, and ValueError for what is no record."""
    with open(path(host), encoding="utf-8") as file:
        found = json.load(file)
    if not isinstance(found, dict):
        raise ValueError("checks/container.json holds no object")
    return found


def collect(host: Host) -> Json:
    """The record; null (``not_collected``) where no check was made."""
    try:
        return {"container_check": read(host)}
    except FileNotFoundError:
        return {"container_check": None, "container_check_reason": "not_collected"}
