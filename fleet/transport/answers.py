"""An agent's error answer as the error the rest of fleet knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.agent import protocol
from fleet.core.errors import HostError, HostFailed, HostLocked, ProtocolError
from fleet.core.secret import Scrubber
from fleet.transport.text import printable

LONGEST_MESSAGE = 2000


def error_of(host: str, method: str, error: Mapping[str, Any], scrubber: Scrubber) -> HostError:
    """The exception for ``error`` ({"kind", "message", "remedy"?, …}), its texts scrubbed and printable."""

    def text(field: str) -> str | None:
        value = error.get(field)
        return printable(scrubber(str(value)), LONGEST_MESSAGE) if value is not None else None

    kind = error.get("kind")
    message, remedy = text("message") or "the agent gave no reason", text("remedy")
    if kind == protocol.ERROR_LOCKED:
        run = text("run") or "unknown"
        return HostLocked(
            message,
            run=run,
            host=host,
            remedy=remedy
            or f"wait for that run, or continue it: fleet resume {run}; "
            f"if it is given up: fleet unlock {host} --run {run}",
        )
    if kind == protocol.ERROR_PERMISSION:
        return HostFailed(message, host=host, remedy=remedy or "give fleet root there: --become")
    if kind == protocol.ERROR_FAILED:
        return HostFailed(message, host=host, remedy=remedy)
    if kind == protocol.ERROR_BUG:
        return HostFailed(
            f"the agent failed unexpectedly in {method!r}: {message}",
            host=host,
            remedy="this is a bug in fleet; please report it with the log",
        )
    if kind == protocol.ERROR_BAD_REQUEST:
        return ProtocolError(
            f"the agent does not understand {method!r}: {message}",
            host=host,
            remedy=remedy or "this is a bug in fleet; please report it with the log",
        )
    return ProtocolError(f"the agent refused {method!r} ({printable(str(kind), 40)}): {message}", host=host)
