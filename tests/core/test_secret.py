"""A secret shows nowhere, in no spelling; short or absent ones do no harm."""

from __future__ import annotations

import base64
import json
import pickle
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.secret import MASK, Scrubber, Secret

VALUES = st.text(min_size=8, max_size=40).filter(lambda text: text.isprintable() and text.strip() == text)


def test_a_secret_never_prints_or_pickles_its_value() -> None:
    secret = Secret("correct horse", "sudo password")
    assert "horse" not in f"{secret} {secret!r} {secret:>30}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        json.dumps(secret)


@given(VALUES, st.text(max_size=20), st.text(max_size=20))
def test_every_spelling_is_masked(value: str, before: str, after: str) -> None:
    scrub = Scrubber([Secret(value, "a secret")])
    for spelling in (
        value,
        json.dumps(value)[1:-1],
        urllib.parse.quote(value),
        urllib.parse.quote_plus(value),
    ):
        assert (
            spelling not in scrub(before + spelling + after).replace(MASK, "") or spelling in before + after
        )


@given(VALUES, st.binary(max_size=7), st.binary(max_size=7))
def test_base64_of_a_text_containing_the_secret_is_masked(value: str, before: bytes, after: bytes) -> None:
    scrub = Scrubber([Secret(value, "a secret")])
    encoded = base64.b64encode(before + value.encode() + after).decode()
    assert MASK in scrub(encoded)


def test_short_values_are_left_alone() -> None:
    assert Scrubber([Secret("abc", "short")])("abcdef") == "abcdef"
