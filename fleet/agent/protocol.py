"""The wire between controller and agent: framing, message shapes, plans and steps.

Both ends import this file; docs/protocol.md is its prose. After the ready marker each side sends one
JSON object per line, UTF-8, at most :data:`LINE_LIMIT` bytes. Unknown fields are ignored by readers,
unknown ``type`` values are an error. Version N speaks N-1.
"""

from __future__ import annotations

import json

from fleet.agent import strict_json

TYPE_CHECKING = False  # importing typing costs the agent 3 ms at start; type checkers know this name
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, TypedDict

PROTOCOL = 1
LINE_LIMIT = 16 * 1024 * 1024
BEAT_SECONDS = 5.0
SILENCE_SECONDS = 30.0

if TYPE_CHECKING:
    Json = Dict[str, Any]
else:
    Json = dict

# Where fleet keeps its things on a host.
STATE_DIR = "/var/lib/fleet"
RUNTIME_DIR = "/run/fleet"

# What became of a step. The last two are said by the check pass; ok, failed and skipped by it too.
OK = "ok"  # already as wanted
CHANGED = "changed"
FAILED = "failed"
SKIPPED = "skipped"  # its condition was false
INTERRUPTED = "interrupted"  # a command that was running when its worker died, and may not be repeated
CANCELLED = "cancelled"
PENDING = "pending"  # nothing is broken, but going on needs somebody's leave
WOULD_CHANGE = "would_change"
KNOWN_AFTER_APPLY = "known_after_apply"

# How a segment ended.
SEGMENT_DONE = "done"
SEGMENT_FAILED = "failed"
SEGMENT_CANCELLED = "cancelled"
SEGMENT_INTERRUPTED = "interrupted"
SEGMENT_PENDING = "pending"  # a step waits for leave; a new run tries it again
SEGMENT_REBOOT = "reboot"  # the host is about to go down, on purpose

# On a lab host only; its presence marks everything said of the host as simulated.
SIMULATED_MARKER = "/etc/fleet-lab.json"

# Kinds of error an agent answers with; the controller maps them to fleet.core.errors.
ERROR_BAD_REQUEST = "bad_request"
ERROR_LOCKED = "locked"  # fields: run, since, operator, controller
ERROR_PERMISSION = "permission"
ERROR_FAILED = "failed"
ERROR_BUG = "bug"  # fields: traceback


if TYPE_CHECKING:

    class Step(TypedDict, total=False):
        """One thing to make true. ``id``, ``resource`` and ``args`` are always there.

        ``when`` is a condition of the closed set (see :mod:`fleet.agent.conditions`), or absent.
        ``become_user`` runs the step as that user; absent means root. ``notify`` names handlers;
        a step with ``handler`` runs only while a notification for that name is pending.
        """

        id: str
        task: str
        resource: str
        args: Json
        when: Optional[Json]
        become_user: Optional[str]
        deadline_s: float
        notify: List[str]
        handler: Optional[str]
        disruptive: bool
        ignore_errors: bool
        register: Optional[str]

    class Plan(TypedDict):
        """One segment of one host's work. Secrets are references: ``{"$secret": id}``."""

        format: int
        run: str
        host: str
        segment: int
        last: bool
        steps: List[Step]

    class CheckResult(TypedDict, total=False):
        """What the check pass says of one step: ``status`` is ok, would_change, known_after_apply,
        skipped or failed; ``diff`` is a list of {"path", "before", "after"} or None; ``reason`` words."""

        step: str
        status: str
        diff: Optional[List[Json]]
        reason: Optional[str]

    class Record(TypedDict, total=False):
        """One journal record. ``seq`` counts from 1 over the whole run on this host; ``crc`` is the
        CRC-32 of the record's canonical JSON without ``crc``. ``kind`` is one of: begin, intent,
        output, progress, result, notified, handled, reboot, end."""

        seq: int
        at: float
        kind: str
        segment: int
        step: str
        status: str
        crc: int


def canonical(value: Any) -> str:
    """The one JSON spelling of ``value``: sorted keys, no spaces. Same inputs, same bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def plan_hash(plan: Any) -> str:
    """SHA-256 of the canonical plan, as 64 hex digits."""
    from fleet.agent.digest import sha256

    return sha256(canonical(plan).encode("utf-8", "surrogateescape")).hex()


class FramingError(ValueError):
    """What arrived is not one JSON object per line within the limit."""


def encode(message: Json) -> bytes:
    """One message as a line of bytes. NaN and infinity never leave: they raise ValueError."""
    line = json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    data = line.encode("utf-8", "surrogateescape") + b"\n"
    if len(data) > LINE_LIMIT:
        raise FramingError("a message of %d bytes is over the limit of %d" % (len(data), LINE_LIMIT))
    return data


def decode(line: bytes) -> Json:
    """The message in one line of bytes (with or without its newline)."""
    if len(line) > LINE_LIMIT:
        raise FramingError("a line of more than %d bytes" % LINE_LIMIT)
    try:
        message = strict_json.loads(line.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise FramingError("not JSON: %s" % error) from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FramingError("not a JSON object with a type")
    return message


class LineBuffer:
    """Collects bytes as they arrive and gives whole lines; bounded by :data:`LINE_LIMIT`."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._parts: List[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> List[bytes]:
        """Add ``data``; return the lines it completed, without their newlines."""
        head, newline, rest = data.partition(b"\n")
        self._parts.append(head)
        self._size += len(head)
        if self._size > self._limit:
            raise FramingError("a line of more than %d bytes" % self._limit)
        if not newline:
            return []
        lines = [b"".join(self._parts)]
        more = rest.split(b"\n")
        self._parts, self._size = [more[-1]], len(more[-1])
        lines.extend(more[:-1])
        return lines
