"""The truth table of the compatibility audit: what holds on a machine by the evidence, whatever fleet says.

``tests/audit/compatibility/truth.yaml`` explains its fields. Here it becomes rows; how a row is put to the audit is
:mod:`tests.audit.compatibility.asking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parent / "audit" / "compatibility" / "truth.yaml"

#: What a row is not asked: what it answers, and where from.
_ANSWERS = ("id", "verdict", "rules", "informs", "cites")


@dataclass(frozen=True)
class Row:
    """One row. ``asked`` holds every other field; ``informs`` is None where the row says nothing of information."""

    id: str
    asked: Mapping[str, Any]
    verdict: str
    rules: tuple[str, ...]
    informs: tuple[str, ...] | None
    cites: tuple[str, ...]


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return document


@cache
def rows() -> tuple[Row, ...]:
    """Every row, in the table's order."""
    return tuple(_row(raw) for raw in _document()["rows"])


def evidence() -> Mapping[str, Mapping[str, str]]:
    """What rows cite: the file and entry of the collected facts, what it says, and that entry's own source."""
    found: dict[str, dict[str, str]] = _document()["evidence"]
    return found


def _row(raw: Mapping[str, Any]) -> Row:
    return Row(
        id=raw["id"],
        asked={name: value for name, value in raw.items() if name not in _ANSWERS},
        verdict=raw["verdict"],
        rules=tuple(raw["rules"]),
        informs=tuple(raw["informs"]) if "informs" in raw else None,
        cites=tuple(raw["cites"]),
    )
