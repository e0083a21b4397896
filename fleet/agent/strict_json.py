"""JSON as every reader takes it: no NaN, no Infinity, no number too large for one.

Python's own reader lets all three pass, and a schema's ``"type": "number"`` does not stop them either; so
both ends of the wire could agree on a document that no third one can read. Here they are not JSON.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_INFINITE = (float("inf"), float("-inf"))

#: A string, which may hold any word, or something that could be a number: whole, so that it cannot begin amid one.
_TOKENS = r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity|[0-9][0-9.eE+-]*)'


def loads(text: str) -> Any:
    """The value in ``text``. Raises json.JSONDecodeError (a ValueError) that says where; RecursionError as json."""
    try:
        return json.loads(text, parse_constant=_constant, parse_float=_finite)
    except _NotFinite as found:
        place = _place(text)
        raise json.JSONDecodeError("%s is not a number of JSON" % found, text, place) from None


class _NotFinite(ValueError):
    """The word that stands where a number should."""


def _constant(word: str) -> None:
    raise _NotFinite(word)


def _finite(digits: str) -> float:
    number = float(digits)
    if number in _INFINITE:
        raise _NotFinite(digits[:40])
    return number


def _place(text: str) -> int:
    """Where the first number is that is none."""
    import re

    for token in re.finditer(_TOKENS, text):
        word = token.group()
        if word.startswith('"'):
            continue
        if word.endswith(("NaN", "Infinity")):
            return token.start()
        try:
            if float(word) in _INFINITE and not word.lstrip("-").isdigit():
                return token.start()
        except ValueError:  # not a number at all: json found that out, or found something before it
            continue
    return 0
