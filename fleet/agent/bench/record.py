"""The record of what the benchmarks found: what it holds for, written so that it lasts, read back.

JSON has no NaN and no infinity, and neither has a record: such a value is null, and its result invalid. Reports
read it through :mod:`fleet.agent.facts.checks`.
"""

from __future__ import annotations

import math
import os

from fleet.agent.container_check import record as container_record
from fleet.agent.driver import seen
from fleet.agent.facts import checks
from fleet.agent.protocol import Json, canonical
from fleet.agent.resources.base import StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, List, Optional, Tuple

    from fleet.agent.host import Host


SCHEMA = "fleet.benchmark/1"


def key(host: Host, args: Json, image: Optional[Json], info: Optional[Json], torch: Optional[str]) -> Json:
    """What the figures depend on. ``image`` and ``info`` are the engine's, None on the host itself, where
    ``torch`` says which one is measured with."""
    found: Json = {
        "boot": seen.boot_id(host) or None,
        "driver": (seen.loaded(host) or {}).get("version"),
    }
    if image is not None:
        found = container_record.key(host, args, image, info or {})
        del found["addresses"]
    found["suite"] = args["suite"]
    found["where"] = args["where"]
    found["gpus"] = args.get("gpus") or "all"
    found["evenly_occupied"] = bool(args.get("evenly_occupied"))
    found["torch"] = torch
    found["groups"] = args.get("groups")
    found["environment"] = args.get("environment") or {}
    return found


def last(host: Host) -> Optional[Json]:
    """The record of last time; None where there is nothing, or nothing readable."""
    try:
        return checks.read_benchmark(host)
    except (OSError, ValueError):
        return None


def keep(host: Host, record: Json) -> Json:
    """Write the record for good and read it back. StepFailed where what is on the disk is another."""
    from fleet.agent.paths import write_durably

    clean, _ = finite(record)
    place = checks.benchmark_path(host)
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    try:
        write_durably(place, canonical(clean).encode("utf-8", "backslashreplace"))
        found = checks.read_benchmark(host)
    except (OSError, ValueError) as error:
        raise StepFailed(
            "cannot keep what the benchmarks found in %s: %s" % (place, error),
            "see whether the file system is full or read-only: df -h %s" % os.path.dirname(place),
        ) from None
    return found


def finite(value: Any, path: str = "") -> Tuple[Any, List[str]]:
    """(``value`` with null for every NaN and infinity, the dotted paths of those)."""
    if isinstance(value, float) and not math.isfinite(value):
        return None, [path or "value"]
    lost: List[str] = []
    if isinstance(value, dict):
        made = {}
        for name, part in value.items():
            made[name], below = finite(part, "%s.%s" % (path, name) if path else str(name))
            lost += below
        return made, lost
    if isinstance(value, list):
        items = []
        for place, part in enumerate(value):
            item, below = finite(part, "%s[%d]" % (path, place))
            items.append(item)
            lost += below
        return items, lost
    return value, lost
