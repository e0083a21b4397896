"""JSON as every reader takes it: no NaN, no Infinity, no number too large for one, no key twice, no bottomless nesting.

Python's own reader lets all but the last pass, and a schema's ``"type": "number"`` does not stop them either; so
both ends of the wire could agree on a document that no third one can read, or that another reads otherwise: of two
values of a key, one reader takes the first and one the last. Here they are not JSON, and one kind of error says so.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

_INFINITE = (float("inf"), float("-inf"))

#: A string, which may hold any word, or something that could be a number: whole, so that it cannot begin amid one.
_TOKENS = r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity|[0-9][0-9.eE+-]*)'
_SHAPE = r'("(?:[^"\\]|\\.)*")(\s*:)?|[\[\]{}]'


def loads(text: str, any_number: bool = False) -> Any:
    """The value in ``text``. Raises json.JSONDecodeError (a ValueError) that says where; of it :class:`Refused`.

    ``any_number`` lets NaN and infinities through, for a reader that names the values that they stand for.
    """
    strict = {} if any_number else {"parse_constant": _constant, "parse_float": _finite}
    try:
        return json.loads(text, object_pairs_hook=_object, **strict)  # type: ignore[arg-type]
    except _Found as found:
        raise Refused(found.words, text, found.place(text)) from None
    except RecursionError:
        raise Refused("nested too deeply", text, _deepest(text)) from None


def load(path: str) -> Any:
    """The value in a file of UTF-8. Raises OSError, and ValueError as :func:`loads` does or for other bytes."""
    with open(path, encoding="utf-8") as file:
        return loads(file.read())


class Refused(json.JSONDecodeError):
    """What Python would read and is not taken here; what nobody would read is a plain JSONDecodeError."""


class _Found(ValueError):
    """What is no JSON, in words, and how to find it; looked for only now."""

    def __init__(self, words: str, place: Callable[[str], int]) -> None:
        super().__init__(words)
        self.words = words
        self.place = place


def _constant(word: str) -> None:
    raise _Found("%s is not a number of JSON" % word, _not_finite)


def _finite(digits: str) -> float:
    number = float(digits)
    if number in _INFINITE:
        raise _Found("%s is not a number of JSON" % digits[:40], _not_finite)
    return number


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise _Found("the key %s is here a second time" % json.dumps(twice)[:100], _repeated)
    return made


def _not_finite(text: str) -> int:
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


def _repeated(text: str) -> int:
    """Where the first key is that its object already has, of the object that ends first."""
    import re

    open_objects: List[
        Tuple[Dict[str, int], Optional[int]]
    ] = []  # (keys and where, the first that came again)
    for token in re.finditer(_SHAPE, text):
        mark = token.group()
        if mark in "[{":
            open_objects.append(({}, None))
        elif mark in "]}":
            _, again = open_objects.pop() if open_objects else ({}, None)
            if again is not None:
                return again
        elif token.group(2) and open_objects:
            keys, again = open_objects[-1]
            name = json.loads(token.group(1), strict=False)
            if name in keys and again is None:
                open_objects[-1] = (keys, token.start())
            keys.setdefault(name, token.start())
    return 0


def _deepest(text: str) -> int:
    """Where the deepest array or object begins, as far as can be told."""
    import re

    depth = most = place = 0
    for token in re.finditer(_SHAPE, text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group(), 0)
        if depth > most:
            most, place = depth, token.start()
    return place
