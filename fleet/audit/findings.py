"""A finding: what a rule saw, what would be right, where that limit comes from, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Severity(Enum):
    """How bad: an error stops the host; a warning is shown; information is kept in the report.

    ``unknown`` is of the compatibility audit alone: whether it would run cannot be told. Gates elsewhere call what
    they cannot read an error.
    """

    ERROR = "error"
    UNKNOWN = "unknown"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One thing a rule found.

    ``observed`` and ``limit`` are values as messages show them (None: could not be read, or has no limit).
    ``needs_leave`` marks findings that ``--disrupt`` overrules; ``blocks`` those that stop the host. ``gpu``: the
    PCI address of the one GPU it is about; None where it is about the host.
    """

    id: str
    severity: Severity
    what: str
    observed: Any
    limit: Any
    limit_source: str
    remedy: str
    needs_leave: bool = False
    gpu: str | None = None

    @property
    def blocks(self) -> bool:
        """Whether the host may not be touched because of this."""
        return self.severity is Severity.ERROR

    def as_json(self) -> dict[str, Any]:
        """The finding as events and reports carry it; ``gpu`` only where there is one."""
        document = {
            "id": self.id,
            "severity": self.severity.value,
            "what": self.what,
            "observed": _plain(self.observed),
            "limit": _plain(self.limit),
            "limit_source": self.limit_source,
            "remedy": self.remedy,
            "needs_leave": self.needs_leave,
        }
        return document if self.gpu is None else {**document, "gpu": self.gpu}


def _plain(value: Any) -> Any:
    """A value as JSON has it, which knows no tuples."""
    return list(value) if isinstance(value, tuple) else value
