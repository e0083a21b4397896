"""The clock, whether something keeps it right, and the time since boot."""

from __future__ import annotations

import os
import time

from fleet.agent.facts import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, Optional, Tuple

    from fleet.agent.host import Host


KEYS = ("clock", "uptime_s")

_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised


def synchronized(host: Host) -> Tuple[Optional[bool], Optional[str]]:
    """(whether the kernel's clock is kept right, reason when that cannot be told)."""
    if os.path.exists(host.path("/run/systemd/timesync/synchronized")):
        return True, None
    state = _adjtimex()
    if state is None:
        return None, "not_supported"
    return (None, "permission") if state < 0 else (state != _TIME_ERROR, None)


def _adjtimex() -> Optional[int]:
    """The state that adjtimex(2) returns when asked to change nothing; None without ctypes."""
    try:
        import ctypes

        # struct timex is 208 bytes on 64-bit; its first field, modes, is 0: only read.
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)))
    except (ImportError, OSError, AttributeError):
        return None


def collect(host: Host) -> Dict[str, Any]:
    """The ``clock`` and ``uptime_s`` parts; seconds since 1970 and since boot."""
    kept, reason = synchronized(host)
    clock: Dict[str, Any] = {"unix": time.time(), "synchronized": kept}
    if reason is not None:
        clock["synchronized_reason"] = reason
    return {"clock": clock, "uptime_s": float(read_text(host, "/proc/uptime").split()[0])}
