"""Run identifiers and timestamps."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone


def new_run_id() -> str:
    """Twelve hex digits; commands accept any unambiguous prefix of at least four."""
    return secrets.token_hex(6)


def utc_now() -> str:
    """Now, as RFC 3339 in UTC with milliseconds: ``2026-11-30T14:02:11.123Z``."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
