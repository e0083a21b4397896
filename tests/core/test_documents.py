"""JSON documents written with one line per member: the same value, scrubbed, finite."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.documents import lines_text
from fleet.core.secret import MASK, Scrubber, Secret

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_what_is_written_is_the_document(document: dict[str, object]) -> None:
    assert json.loads(lines_text(document)) == document


def test_members_and_entries_have_lines_of_their_own() -> None:
    assert lines_text({"a": 1, "steps": [{"id": 1}, {"id": 2}]}) == (
        '{\n  "a": 1,\n  "steps": [\n    {"id":1},\n    {"id":2}\n  ]\n}\n'
    )


def test_secrets_are_scrubbed_and_nan_is_refused() -> None:
    scrub = Scrubber()
    scrub.add(Secret("hunter2", "password"))
    assert json.loads(lines_text({"a": ["x hunter2"]}, scrub)) == {"a": [f"x {MASK}"]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        lines_text({"a": [float("nan")]})
