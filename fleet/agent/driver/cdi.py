"""A CDI specification of NVIDIA GPUs, read as far as fleet must judge it: which driver, which GPUs.

The text is parsed by :mod:`fleet.agent.facts.cdi`.
"""

from __future__ import annotations

import re

from fleet.agent.driver import seen

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional

    from fleet.agent.protocol import Json

_NODE = re.compile(r"/dev/nvidia(\d+)\b")


def parse(text: str) -> Optional[Json]:
    """{"driver_version", "devices": [names], "minors": [numbers of /dev/nvidiaN]}; None when it is no
    specification of NVIDIA devices."""
    found = seen.specification(text)
    if found is None:
        return None
    minors = sorted({int(number) for number in _NODE.findall(text)})
    return {"driver_version": found["driver_version"], "devices": found["devices"], "minors": minors}


def other_gpus(specification: Json, gpus: List[Json]) -> Optional[str]:
    """How the GPUs of a specification differ from the host's, in words; None when they are the same.

    By UUID where devices are named so and the driver tells them all, else by minor number. GPUs that another
    driver has do not count.
    """
    served = [gpu for gpu in gpus if gpu.get("driver") == "nvidia"]
    named = {name for name in specification["devices"] if name.startswith("GPU-")}
    uuids = {gpu["uuid"] for gpu in served if gpu.get("uuid")}
    if named and len(uuids) == len(served):
        if named == uuids:
            return None
        return "%d GPUs, of which %d are this host's %d" % (len(named), len(named & uuids), len(uuids))
    minors = {gpu["minor"] for gpu in served if gpu.get("minor") is not None}
    if minors and set(specification["minors"]) != minors:
        return "/dev/nvidia%s, but the host has %s" % (_list(specification["minors"]), _list(sorted(minors)))
    return None


def _list(numbers: List[int]) -> str:
    return "{%s}" % ",".join(str(number) for number in numbers)
