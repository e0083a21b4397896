"""Takes secret values out of everything the agent writes down or sends, whatever their spelling.

The same forms as the controller's scrubber: plain, JSON-escaped, URL-quoted, base64 at any offset.
:class:`StreamScrubber` does it for text that comes in pieces.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

MASK = "********"
SHORTEST = 4  # shorter values are not searched for: they would mask half of every text


class Scrubber:
    """Replaces the secret ``values`` by :data:`MASK`. Knows nothing else, keeps nothing else."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        needles = {form for value in values if len(value) >= SHORTEST for form in _forms(value)}
        self.needles = tuple(sorted(needles, key=lambda needle: (-len(needle), needle)))

    def text(self, text: str) -> str:
        """``text`` without secrets, and without characters that UTF-8 cannot carry."""
        for needle in self.needles:
            if needle in text:
                text = text.replace(needle, MASK)
        return _encodable(text)

    def value(self, value: Any) -> Any:
        """Any JSON value without secrets; NaN and infinities become None."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        if isinstance(value, float) and not -1.8e308 < value < 1.8e308:
            return None
        return value


class StreamScrubber:
    """Scrubs text in pieces: the end of a piece that may be the start of a secret waits for the next."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._held = ""

    def feed(self, text: str) -> str:
        """What is safe to pass on now."""
        whole = self._held + text
        for needle in self._scrubber.needles:
            if needle in whole:
                whole = whole.replace(needle, MASK)
        cut = min((_start_of_needle(whole, needle) for needle in self._scrubber.needles), default=len(whole))
        self._held = whole[cut:]
        return _encodable(whole[:cut])

    def rest(self) -> str:
        """What was held back; nothing more will come."""
        rest, self._held = self._held, ""
        return self._scrubber.text(rest)


def _start_of_needle(text: str, needle: str) -> int:
    """Where a beginning of ``needle`` starts that runs to the end of ``text``; its length if none does."""
    position = text.find(needle[0], max(0, len(text) - len(needle) + 1))
    while position >= 0 and not needle.startswith(text[position:]):
        position = text.find(needle[0], position + 1)
    return len(text) if position < 0 else position


def _encodable(text: str) -> str:
    """``text`` with what is not Unicode (bytes of other encodings, lone surrogates) replaced."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def _forms(value: str) -> Iterator[str]:
    """The spellings of ``value`` that a sink might meet."""
    import base64
    import json
    import urllib.parse

    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    raw = value.encode("utf-8", "surrogateescape")
    for safe in ("/", ""):
        yield urllib.parse.quote(raw, safe=safe)
    yield urllib.parse.quote_plus(raw)
    for lead in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            # Of the base64 of a text that holds the value, what depends on the value alone.
            text = encode(b"\0" * lead + raw).decode("ascii")
            yield text[-(-lead * 8 // 6) : (lead + len(raw)) * 8 // 6]
