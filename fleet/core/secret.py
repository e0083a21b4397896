"""Secrets are a type, not a habit: a :class:`Secret` never prints, pickles or serialises its value.

Where a value comes from (``!secret``, ``!vault``, a prompt) it is wrapped at once; a template that
uses one yields one. Plans hold references (``{"$secret": id}``), values travel once over standard
input. Every sink passes its text through a :class:`Scrubber` as the last line of defence.
"""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

MASK = "********"


class Secret:
    """A value that must not be shown. ``name`` says where it came from, for messages.

    >>> str(Secret("hunter2", "sudo password"))
    '********'
    """

    __slots__ = ("_value", "name")

    def __init__(self, value: str, name: str) -> None:
        self._value = value
        self.name = name

    def reveal(self) -> str:
        """The value itself: only for handing it to SSH, sudo or the agent's standard input."""
        return self._value

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"<Secret {self.name}>"

    def __format__(self, spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __reduce__(self) -> str:
        raise TypeError(f"secret {self.name} must not be serialised")


def referenced(value: Any, path: str, found: dict[str, Secret]) -> Any:
    """``value`` with each Secret in it replaced by a reference to an id that starts with ``path``.

    The Secrets are put into ``found`` by these ids; they travel beside the value.
    """
    if isinstance(value, Secret):
        found[path] = value
        return {"$secret": path}
    dot = "" if path.endswith(":") else "."
    if isinstance(value, dict):
        return {key: referenced(item, f"{path}{dot}{key}", found) for key, item in value.items()}
    if isinstance(value, list):
        return [referenced(item, f"{path}{dot}{number}", found) for number, item in enumerate(value)]
    return value


class Scrubber:
    """Replaces known secret values in text, in plain, JSON-escaped, URL-quoted and base64 form.

    Values shorter than four characters are not searched for: they would mask half of every text.
    Thread-safe; one instance is shared by every sink of a process.
    """

    SHORTEST = 4

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._lock = threading.Lock()
        self._needles: tuple[str, ...] = ()
        self.add(*secrets)

    def add(self, *secrets: Secret) -> None:
        """Scrub these from now on."""
        with self._lock:
            needles = set(self._needles)
            for secret in secrets:
                value = secret.reveal()
                if len(value) >= self.SHORTEST:
                    needles.update(_forms(value))
            self._needles = tuple(sorted(needles, key=len, reverse=True))

    def __call__(self, text: str) -> str:
        for needle in self._needles:
            if needle in text:
                text = text.replace(needle, MASK)
        return text


def _forms(value: str) -> Iterable[str]:
    """The spellings of ``value`` that a sink might meet."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield urllib.parse.quote(value)
    yield urllib.parse.quote(value, safe="")
    yield urllib.parse.quote_plus(value)
    raw = value.encode()
    # base64 of a text that *contains* the value depends on the value's offset modulo 3.
    for lead in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield _base64_core(raw, lead, encode)


def _base64_core(raw: bytes, lead: int, encode: Callable[[bytes], bytes]) -> str:
    """The characters of base64(raw at offset ``lead``) that depend on ``raw`` alone."""
    text: str = encode(b"\0" * lead + raw).decode()
    start = -(-lead * 8 // 6)
    end = (lead + len(raw)) * 8 // 6
    return text[start:end]
