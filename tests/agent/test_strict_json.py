"""No NaN, no Infinity, no number too large: what Python would let pass is not JSON here."""

from __future__ import annotations

import json

import pytest

from fleet.agent import strict_json


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{"loss": NaN}', 9, "NaN is not a number of JSON"),
        ('{"a": "NaN", "b": [1, Infinity]}', 22, "Infinity is not a number of JSON"),
        ('{"a\\"NaN": -Infinity}', 11, "-Infinity is not a number of JSON"),
        ('{"seen": 1.5, "max": 1e999}', 21, "1e999 is not a number of JSON"),
        ("-1e400", 0, "-1e400 is not a number of JSON"),
        ('{"gbps": nan, "max": 1e999}', 9, "Expecting value"),
        ('["1e999", 2e308]', 10, "2e308 is not a number of JSON"),
    ],
)
def test_what_is_no_number_is_refused_where_it_stands(text: str, place: int, words: str) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        strict_json.loads(text)
    assert (caught.value.pos, caught.value.msg) == (place, words)


def test_the_line_and_column_are_those_of_the_word() -> None:
    with pytest.raises(json.JSONDecodeError, match=r"line 3 column 6 \(char 15\)"):
        strict_json.loads('{"a": 1,\n\n"b": NaN}')


@pytest.mark.parametrize(
    "document",
    [
        {"comment": "NaN seen in warm-up", "tflops": None, "gbps": 1980.4, "count": 10**400},
        ["Infinity", -0.0, 1e308, "1e999", {"NaN": True}],
        None,
    ],
)
def test_everything_else_is_read_as_it_is(document: object) -> None:
    assert strict_json.loads(json.dumps(document)) == document
