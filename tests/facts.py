"""The facts of one healthy host, ``tests/audit/healthy.json``, for every test that needs a facts document."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HEALTHY: dict[str, Any] = json.loads((Path(__file__).parent / "audit" / "healthy.json").read_text())


def healthy_facts(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A copy of the document, with values set by dotted path: ``{"engine.present": False}``."""
    facts = copy.deepcopy(_HEALTHY)
    for path, value in (changes or {}).items():
        *parents, last = path.split(".")
        place = facts
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value
    return facts
