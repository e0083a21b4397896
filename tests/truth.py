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
_ANSWERS = ("id", "verdict", "rules", "severities", "informs", "cites")


#: Rules whose findings say that an image does not run.
ERRORS = {
    f"audit.{name}"
    for name in (
        "driver.absent", "driver.floor_cuda", "driver.floor_gpu", "driver.ceiling", "driver.modules_required_open",
        "driver.modules_impossible_open", "driver.split", "image.arch", "image.ptx_jit", "image.no_such_tag",
        "image.cudnn_gpu", "image.require_cuda", "toolkit.absent", "cdi.stale", "docker.absent", "docker.floor",
        "os.glibc", "fabric_manager.version", "fabric_manager.absent", "mixed.impossible",
    )
}  # fmt: skip
#: Rules whose findings say that it cannot be told.
UNKNOWNS = {
    f"audit.{name}"
    for name in (
        "driver.branch_not_in_catalogue", "image.not_in_catalogue", "gpu.not_in_catalogue", "facts.unknown",
    )
}  # fmt: skip
WARNINGS = {
    f"audit.{name}"
    for name in (
        "driver.minor_version", "driver.forward_compatibility", "driver.end_of_life", "driver.security",
        "driver.split_holds", "driver.next_kernel", "driver.operator", "image.ptx", "image.no_digest",
        "image.differs", "image.latest", "toolkit.security", "toolkit.legacy", "toolkit.engine", "cdi.requirements",
        "docker.end_of_life", "docker.security", "runc.security", "containerd.security", "containers.other",
        "os.end_of_life", "peermem",
        "acs", "mixed.host", "mixed.job", "memory.model",
    )
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row. ``asked`` holds every other field; ``informs`` is None where the row says nothing of information.

    ``differing``: how bad those of ``rules`` are that are worse, or less certain, than in other rows.
    """

    id: str
    asked: Mapping[str, Any]
    verdict: str
    rules: tuple[str, ...]
    differing: Mapping[str, str]
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
        differing=raw.get("severities", {}),
        informs=tuple(raw["informs"]) if "informs" in raw else None,
        cites=tuple(raw["cites"]),
    )


def severities(row: Row) -> dict[str, str]:
    """How bad each rule is in a row: error, unknown or warning."""
    return {
        rule: row.differing.get(rule)
        or ("unknown" if rule in UNKNOWNS else "error" if rule in ERRORS else "warning")
        for rule in row.rules
    }
