"""The facts of three healthy hosts, for every test that needs a facts document.

``tests/audit/healthy.json`` is a host without GPUs; ``tests/audit/healthy_gpu.json`` the same with eight
H100 SXM behind four NVSwitches and a driver, a fabric manager and a container toolkit that agree;
``tests/audit/rented.json`` a container of a GPU cloud with an H200: no systemd, no kernel packages, nothing in
/boot, a driver in /usr/local/nvidia, an engine that somebody started, no container toolkit.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_AUDIT = Path(__file__).parent / "audit"
_HEALTHY: dict[str, Any] = json.loads((_AUDIT / "healthy.json").read_text())
_HEALTHY_GPU: dict[str, Any] = json.loads((_AUDIT / "healthy_gpu.json").read_text())
_RENTED: dict[str, Any] = json.loads((_AUDIT / "rented.json").read_text())


def healthy_facts(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A copy of the host without GPUs, with values set by dotted path: ``{"engine.present": False}``."""
    return _changed(_HEALTHY, changes or {})


def healthy_gpu_facts(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A copy of the host with GPUs; a number in a path is a place: ``{"gpus.0.driver": "nouveau"}``."""
    return _changed(_HEALTHY_GPU, changes or {})


def rented_facts(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A copy of the host without systemd, where driver and engine are somebody else's."""
    return _changed(_RENTED, changes or {})


def _changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = copy.deepcopy(dict(document))
    for path, value in changes.items():
        *parents, last = path.split(".")
        place: Any = facts
        for name in parents:
            place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
        place[int(last) if isinstance(place, list) else last] = value
    return facts
