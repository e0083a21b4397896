"""When a line of the kernel log was written, whoever framed it: kmsg, journalctl, dmesg, syslog, rsyslog.

Times are seconds since 1970. A stamp that counts from the boot needs the boot's time; one without a year
tells none. Read by :mod:`.xid_lines`.
"""

from __future__ import annotations

import re
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Optional, Tuple

    _Fields = Tuple[int, int, int, int, int, int, int, int, int]

# priority,sequence,microseconds since boot,flags[,caller=...];text
_KMSG = re.compile(r"\d+,(\d+),(\d+),[^;]*;")
_SHORT_UNIX = re.compile(r"(\d{9,11}\.\d+) ")
_SINCE_BOOT = re.compile(r"\[\s*(\d+\.\d+)\]")
_HUMAN = re.compile(r"(?:<\d+>)?\[[A-Za-z]{3} ([A-Za-z]{3}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\]")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,]\d+)? ?(Z|[+-]\d\d:?\d\d)?")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LAST = 253402300800.0  # the year 10000, which no calendar function takes


def boot_time() -> float:
    """When the clock that the kernel stamps its messages with was at zero."""
    return time.time() - time.monotonic()


def kmsg_stamp(record: str) -> Optional[Tuple[int, int]]:
    """(sequence number, microseconds since boot) of a record of /dev/kmsg; None for another framing."""
    match = _KMSG.match(record)
    return (int(match.group(1)), int(match.group(2))) if match is not None else None


def written_at(prefix: str, boot_unix: Optional[float]) -> Optional[float]:
    """The time that the framing before a message tells, in seconds since 1970; None where it tells none.

    ``boot_unix``: when the machine that wrote the log was booted; None where that is not known, as for a
    log from elsewhere. Human stamps of dmesg are in that machine's time zone, taken to be this one's.
    """
    # A record of kmsg may be followed by its text, which may hold anything.
    found = _absolute(prefix) if kmsg_stamp(prefix) is None else None
    if found is None and boot_unix is not None:
        seconds = seconds_since_boot(prefix)
        found = boot_unix + seconds if seconds is not None else None
    return found if found is not None and 0 <= found < _LAST else None


def seconds_since_boot(prefix: str) -> Optional[float]:
    """What a stamp of kmsg or ``[12.345678]`` counts; None for another."""
    stamp = kmsg_stamp(prefix)
    if stamp is not None:
        return stamp[1] / 1e6
    match = _SINCE_BOOT.search(prefix)
    return float(match.group(1)) if match is not None else None


def _absolute(prefix: str) -> Optional[float]:
    match = _SHORT_UNIX.match(prefix)
    if match is not None:
        return float(match.group(1))
    match = _ISO.match(prefix)
    if match is not None:
        year, month, day, hour, minute, second = (int(match.group(place)) for place in range(1, 7))
        return _seconds((year, month, day, hour, minute, second, 0, 0, -1), match.group(7))
    match = _HUMAN.match(prefix)
    if match is None or match.group(1).lower() not in _MONTHS:
        return None
    day, hour, minute, second, year = (int(match.group(place)) for place in range(2, 7))
    month = _MONTHS.index(match.group(1).lower()) + 1
    return _seconds((year, month, day, hour, minute, second, 0, 0, -1), None)


def _seconds(fields: _Fields, zone: Optional[str]) -> Optional[float]:
    """Seconds since 1970 of a broken-down time; ``zone``: ``Z``, ``+0200``, or None for this machine's."""
    import calendar  # it takes a millisecond to load, and few logs need it

    try:
        if zone is None:
            return time.mktime(fields)
        seconds = float(calendar.timegm(fields))
    except (OverflowError, ValueError):  # such as the 31st of February
        return None
    if zone == "Z":
        return seconds
    offset = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return seconds - offset if zone[0] == "+" else seconds + offset


def rfc3339(seconds: Optional[float]) -> Optional[str]:
    """``2026-11-30T12:00:00Z``; None for None."""
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
