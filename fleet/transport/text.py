"""Text that came from a host, made safe to show: no control characters, bounded length."""

from __future__ import annotations

NOISE_LIMIT = 1024 * 1024
SHOWN = 200


def printable(data: bytes | str, limit: int = SHOWN) -> str:
    """The first ``limit`` characters of ``data`` on one line, with control characters escaped.

    A host must not be able to move the operator's cursor or forge lines of our output.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    cut = text[:limit]
    safe = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in cut)
    return safe + ("…" if len(text) > limit else "")


def last_words(data: bytes, lines: int = 3) -> str:
    """The last non-empty ``lines`` of ``data``, joined by `` / ``; empty when there are none."""
    found = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    return " / ".join(printable(line) for line in found[-lines:])


class Tail:
    """The last ``limit`` bytes of a stream, and how many went by in all."""

    def __init__(self, limit: int = 8192) -> None:
        self._limit = limit
        self._data = b""
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take ``data``, forget what is too old."""
        self.total += len(data)
        self._data = (self._data + data)[-self._limit :]

    @property
    def data(self) -> bytes:
        """What is kept."""
        return self._data
