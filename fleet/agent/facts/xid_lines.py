"""Xid and SXid lines of the kernel log, in the wordings of all driver generations, and what they add up to.

A line is looked at by itself (:func:`xid_of`, :func:`sxid_of`); :class:`Collector` is fed a whole log and
counts what is the same. It keeps at most :data:`MOST` of each kind, whatever the log's size. What a code
means is not known here but to the catalogue. The log is read in :mod:`.kernel_log_sources`.
"""

from __future__ import annotations

import re

from fleet.agent.facts.log_stamps import rfc3339, written_at
from fleet.agent.pci_address import normalised_address

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, Optional, Tuple

    from fleet.agent.protocol import Json


MOST = 200  # of each kind; the newest are kept
TEXT_LIMIT = 300
FALLEN_OFF_THE_BUS = 79
NVLINK5 = range(144, 151)

# Drivers of the 2000s write bus:device, with four digits for the bus.
_ADDRESS = r"(?:[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?|00[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
# With or without parentheses and "PCI:"; on a MIG GPU the instances stand behind the address.
_XID = re.compile(
    r"NVRM: ?Xid(?: ?\(| )(?:PCI:)?(%s)((?:\s+[A-Z][A-Z-]*:\w+)*)\)?:\s+(\d{1,5})\b,?\s*(.*)" % _ADDRESS
)
_GPU_INSTANCE = re.compile(r"GPU-I:(\d+)")
_PROCESS = re.compile(r"(?:pid=('?<unknown>'?|\d+),?\s*)?(?:name=('?<unknown>'?|[^,]*),?\s*)?")
_CAUSE = re.compile(r"caused by previous Xid (\d+)")
_RECOVERY = re.compile(r"recovery action changed from .{0,60}?\bto 0x([0-9a-fA-F]{1,8})")
_NVLINK5 = re.compile(r"([A-Z][A-Z0-9_/]+)\s+((?:Link )?(?:Non-?)?fatal)\b", re.IGNORECASE)

_SXID = re.compile(r"(?:(nvidia-nvswitch\d+):? )?SXid ?\((?:PCI:)?(%s)\):\s+(\d{1,6})\b,?\s*(.*)" % _ADDRESS)
# A fault is told over three lines; the second and the third are registers.
_SXID_REGISTERS = re.compile(r"Severity \d|Data \{")
_LINK = re.compile(r"\bLink (\d+)")

_FALLEN = re.compile(r"(%s).{0,80}?fallen off the bus" % _ADDRESS)
_PARAGRAPH = "The NVIDIA GPU "  # told over several lines, broken anywhere
_PARAGRAPH_LINES = 5


def xid_of(line: str) -> Optional[Json]:
    """One line's Xid as ``kernel_log.xids`` has it, without times and count; None when it has none."""
    match = _XID.search(line)
    if match is None:
        return None
    printed, attributes, code, rest = match.group(1), match.group(2), int(match.group(3)), match.group(4)
    instance = _GPU_INSTANCE.search(attributes)
    process = _PROCESS.match(rest)
    pid, name = process.groups() if process is not None else (None, None)
    told = rest[process.end() :] if process is not None else rest
    cause, recovery = _CAUSE.search(told), _RECOVERY.search(told)
    unit = _NVLINK5.match(told) if code in NVLINK5 else None
    return {
        "code": code,
        "address": normalised_address(printed),
        "printed_address": printed,
        "gpu_instance": str(int(instance.group(1))) if instance is not None else None,
        "pid": int(pid) if pid is not None and pid.isdigit() else None,
        "process": name.strip() if name is not None and name.strip("' ") not in ("", "<unknown>") else None,
        "text": _text(line[match.start() :]),
        "caused_by": int(cause.group(1)) if cause is not None else None,
        "subcode": unit.group(1) if unit is not None else None,
        "fatal": not unit.group(2).lower().startswith("non") if unit is not None else None,
        "recovery_action": int(recovery.group(1), 16) if recovery is not None else None,
    }


def sxid_of(line: str) -> Optional[Json]:
    """One line's SXid as ``kernel_log.sxids`` has it, without times and count; None when it has none."""
    match = _SXID.search(line)
    if match is None or _SXID_REGISTERS.match(match.group(4)) is not None:
        return None
    told = match.group(4).lower()
    link = _LINK.search(match.group(4))
    fatal = (
        True if told.startswith("fatal") else False if told.startswith(("non-fatal", "nonfatal")) else None
    )
    return {
        "code": int(match.group(3)),
        "switch": match.group(1),
        "address": normalised_address(match.group(2)),
        "fatal": fatal,
        "link": int(link.group(1)) if link is not None else None,
        "text": _text(line[match.start() :]),
    }


def _text(message: str) -> str:
    kept = message[:TEXT_LIMIT].strip()
    return kept if kept.isprintable() else "".join(one if one.isprintable() else " " for one in kept)


class Collector:
    """Adds up the lines of one log. ``boot_unix``: see :func:`fleet.agent.facts.log_stamps.written_at`."""

    def __init__(self, boot_unix: Optional[float]) -> None:
        self._boot_unix = boot_unix
        self._xids: Dict[Tuple[Any, ...], Json] = {}
        self._sxids: Dict[Tuple[Any, ...], Json] = {}
        self._fallen: Dict[str, Json] = {}
        self._paragraph = ""
        self._paragraph_lines = 0
        self._paragraph_at: Optional[float] = None

    def add(self, line: str) -> None:
        """Take one line, oldest first, with whatever framing it has."""
        if "SXid" in line:
            found = sxid_of(line)
            if found is not None:
                self._count(self._sxids, found, ("switch", "address", "code", "fatal", "link"), line)
        elif "Xid" in line:
            found = xid_of(line)
            if found is not None:
                keys = ("address", "code", "gpu_instance", "caused_by", "subcode")
                self._count(self._xids, found, keys, line)
        elif "NVRM:" in line:
            self._listen(line)

    def _count(
        self, table: Dict[Tuple[Any, ...], Json], found: Json, keys: Tuple[str, ...], line: str
    ) -> None:
        key = tuple(found[name] for name in keys)
        # Only the framing is searched for a time: the text may hold what looks like one.
        at = written_at(line[: line.index("Xid")], self._boot_unix)
        before = table.pop(key, None)
        if before is None:
            found.update({"first_at": at, "last_at": at, "count": 1})
            if len(table) >= MOST:
                del table[next(iter(table))]
        else:
            # Who was at work is not always told; where it once was, that is better than nothing.
            if found.get("pid") is None and found.get("process") is None and "pid" in found:
                found["pid"], found["process"] = before["pid"], before["process"]
            found["first_at"] = before["first_at"] if before["first_at"] is not None else at
            found["last_at"] = at if at is not None else before["last_at"]
            found["count"] = before["count"] + 1
        table[key] = found  # the last one is the newest

    def _listen(self, line: str) -> None:
        """Lines of the driver's that are no Xid: does one, or a paragraph of them, speak of a lost GPU?"""
        place = line.index("NVRM:")
        told = line[place + len("NVRM:") :].strip()
        if told.startswith(_PARAGRAPH):
            self._paragraph, self._paragraph_lines = told, 1
            self._paragraph_at = written_at(line[:place], self._boot_unix)
        elif self._paragraph:
            self._paragraph += " " + told
            self._paragraph_lines += 1
        match = _FALLEN.search(told)
        if match is not None:
            self._lose(match.group(1), told, written_at(line[:place], self._boot_unix))
            return
        match = _FALLEN.search(self._paragraph)
        if match is not None:
            self._lose(match.group(1), self._paragraph, self._paragraph_at)
        if match is not None or self._paragraph_lines >= _PARAGRAPH_LINES:
            self._paragraph, self._paragraph_lines = "", 0

    def _lose(self, printed: str, told: str, at: Optional[float]) -> None:
        address = normalised_address(printed)
        self._fallen.pop(address, None)
        if len(self._fallen) >= MOST:
            del self._fallen[next(iter(self._fallen))]
        self._fallen[address] = {"address": address, "at": at, "text": _text("NVRM: " + told)}

    def document(self) -> Json:
        """{"xids", "sxids", "fallen_off_bus"}, each by when it was last seen, oldest first.

        A GPU of which Xid 79 tells that it has fallen off the bus is not told of a second time.
        """
        told = {one["address"] for one in self._xids.values() if one["code"] == FALLEN_OFF_THE_BUS}
        return {
            "xids": [_dated(one, "first_at", "last_at") for one in self._xids.values()],
            "sxids": [_dated(one, "first_at", "last_at") for one in self._sxids.values()],
            "fallen_off_bus": [
                _dated(one, "at") for one in self._fallen.values() if one["address"] not in told
            ],
        }


def _dated(entry: Json, *names: str) -> Json:
    return {**entry, **{name: rfc3339(entry[name]) for name in names}}
