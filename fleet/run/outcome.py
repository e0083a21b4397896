"""How one host ended, in the words the recap, the report and the exit code are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.core.errors import (
    ExitCode,
    FleetError,
    HostBlocked,
    HostInterrupted,
    HostLocked,
    HostPending,
    HostUnreachable,
    InputError,
    Interrupted,
)

CONVERGED = "converged"
FAILED = "failed"
BLOCKED = "blocked"
LOCKED = "locked"
PENDING = "pending"
UNREACHABLE = "unreachable"
CANCELLED = "cancelled"
INTERRUPTED = "interrupted"
SKIPPED = "skipped"

EXIT_CODES: Mapping[str, ExitCode] = {
    CONVERGED: ExitCode.DONE,
    FAILED: ExitCode.FAILED,
    BLOCKED: ExitCode.FAILED,
    LOCKED: ExitCode.FAILED,
    PENDING: ExitCode.PENDING,
    UNREACHABLE: ExitCode.UNREACHABLE,
    CANCELLED: ExitCode.INTERRUPTED,
    INTERRUPTED: ExitCode.FAILED,
    SKIPPED: ExitCode.FAILED,
}


@dataclass
class HostOutcome:
    """One host's end. ``counts`` are steps by status; ``reason`` and ``remedy`` are for people.

    ``touched``: steps were about to be applied; ``bad_input``: the operator's files were wrong for this host.
    """

    host: str
    status: str = CONVERGED
    reason: str | None = None
    remedy: str | None = None
    rule: str | None = None
    counts: Counter[str] = field(default_factory=Counter)
    touched: bool = False
    bad_input: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """What this host contributes to the run's exit code."""
        return EXIT_CODES[self.status]

    @property
    def well(self) -> bool:
        """Whether the failure budget leaves this host alone."""
        return self.status in (CONVERGED, PENDING)

    def fail(self, error: FleetError) -> None:
        """End as ``error`` says."""
        self.status = _status_of(error)
        self.reason = error.what
        self.remedy = error.remedy
        self.rule = getattr(error, "rule", None)
        self.bad_input = isinstance(error, InputError)

    def as_json(self) -> dict[str, Any]:
        """For events, the store and ``--json``."""
        return {
            "status": self.status,
            "reason": self.reason,
            "remedy": self.remedy,
            "rule": self.rule,
            "counts": dict(self.counts),
        }


_STATUS_BY_ERROR: tuple[tuple[type[FleetError], str], ...] = (
    (HostUnreachable, UNREACHABLE),
    (HostBlocked, BLOCKED),
    (HostLocked, LOCKED),
    (HostPending, PENDING),
    (HostInterrupted, INTERRUPTED),
    (Interrupted, CANCELLED),
)


def _status_of(error: FleetError) -> str:
    return next((status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), FAILED)
