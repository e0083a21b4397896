"""Pending handler notifications: one file each, kept across failures, runs and reboots.

A notification is written *before* the step that makes it is applied: were it written after, a crash
between the two would lose it, since the step would then find nothing left to change.
"""

from __future__ import annotations

import os

from fleet.agent.paths import make_private_folder, remove_durably, write_durably
from fleet.agent.protocol import canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fleet.agent.paths import Paths

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Pending:
    """The notifications waiting on this host."""

    def __init__(self, paths: Paths) -> None:
        self._folder = paths.pending

    def path(self, handler: str) -> str:
        """The file of a handler: its name, other bytes than letters, digits, _ and - as %XX."""
        raw = handler.encode("utf-8", "replace")
        name = "".join(chr(byte) if byte in _PLAIN else "%%%02X" % byte for byte in raw)
        if len(name) > 200:
            import hashlib

            name = name[:130] + "%" + hashlib.sha256(raw).hexdigest()
        return self._folder + "/" + (name or "%")

    def __contains__(self, handler: str) -> bool:
        return os.path.exists(self.path(handler))

    def add(self, handler: str, run: str, step: str) -> bool:
        """Make sure a notification is on the disk; whether this call put it there."""
        if handler in self:
            return False
        make_private_folder(self._folder)
        record = {"handler": handler, "run": run, "step": step}
        write_durably(self.path(handler), canonical(record).encode("utf-8", "replace") + b"\n")
        return True

    def remove(self, handler: str) -> None:
        """The handler has run (or nothing was changed after all)."""
        remove_durably(self.path(handler))
