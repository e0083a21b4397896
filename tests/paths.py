"""Setting values deep in a document by dotted path."""

from __future__ import annotations

from typing import Any


def set_path(document: Any, path: str, value: Any) -> None:
    """Set ``a.0.b`` in place; a number is a place in a list, and what is missing on the way is made."""
    *parents, last = path.split(".")
    place = document
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
    place[int(last) if isinstance(place, list) else last] = value
