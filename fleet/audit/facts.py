"""Reading a facts document: by dotted path, and why a value is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]

_WHY = {
    "not_supported": "this host does not have it",
    "permission": "reading it was not permitted",
    "error": "reading it failed",
    "not_collected": "it was not collected",
}


def fact(facts: Facts, path: str) -> Any:
    """The value at ``os.version_id``, or None where any part is absent or null."""
    value: Any = facts
    for name in path.split("."):
        # Asking for the exact kind first: most facts are of JSON, and rules ask a hundred times per host.
        if type(value) is not dict and not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def why_absent(facts: Facts, path: str) -> str:
    """In words, why :func:`fact` gives None there: ``<name>_reason`` of the value or of its parents."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        reason = fact(facts, ".".join(parts[:length]) + "_reason")
        if reason is not None:
            return _WHY.get(str(reason), str(reason))
    return "the host did not say"


def releases(facts: Facts) -> tuple[str, str]:
    """``(os id, version id)``, both empty where unknown."""
    return str(fact(facts, "os.id") or ""), str(fact(facts, "os.version_id") or "")
