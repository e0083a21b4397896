"""No spelling of a secret gets through, whole or in pieces."""

from __future__ import annotations

import base64
import itertools
import json
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.agent.scrub import MASK, Scrubber, StreamScrubber

SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=30)


@given(SECRETS, st.text("abc \n", max_size=10), st.text("xyz \n", max_size=10))
def test_every_spelling_is_masked(secret: str, before: str, after: str) -> None:
    scrub = Scrubber([secret])
    for spelling in (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
    ):
        assert spelling not in scrub.text(before + spelling + after).replace(MASK, "")


@given(SECRETS, st.binary(max_size=4), st.binary(max_size=4))
def test_base64_of_anything_that_holds_it_is_masked(secret: str, before: bytes, after: bytes) -> None:
    raw = secret.encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert MASK in Scrubber([secret]).text(encode(before + raw + after).decode())


@given(st.lists(st.integers(0, 60), max_size=5))
def test_in_pieces_cut_anywhere_the_secret_does_not_pass(cuts: list[int]) -> None:
    secret, text = "s3cret\nof two lines", "ab s3cret\nof two lines cd s3cret\nof two"
    stream = StreamScrubber(Scrubber([secret]))
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    passed = "".join(stream.feed(text[a:b]) for a, b in itertools.pairwise(places)) + stream.rest()
    assert passed == f"ab {MASK} cd s3cret\nof two"


def test_text_without_a_beginning_of_a_secret_is_not_held_back() -> None:
    stream = StreamScrubber(Scrubber(["hunter2hunter2"]))
    assert stream.feed("nothing here\n") == "nothing here\n"
    assert stream.feed("well, hunt") == "well, "
    assert stream.feed("ing season\n") == "hunting season\n"


def test_values_are_scrubbed_to_any_depth_and_made_encodable() -> None:
    value = {"k hunter2": ["hunter2", {"n": float("nan"), "i": float("-inf"), "t": True}], "raw": "\udcff"}
    assert Scrubber(["hunter2"]).value(value) == {
        f"k {MASK}": [MASK, {"n": None, "i": None, "t": True}],
        "raw": "?",
    }


@pytest.mark.parametrize("short", ["", "a", "abc"])
def test_very_short_values_are_not_searched_for(short: str) -> None:
    assert Scrubber([short]).text("abcabc") == "abcabc"
