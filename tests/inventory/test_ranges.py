"""Ranges against a plain reference, and limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.inventory.ranges import RangeError, expand

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@given(st.integers(0, 120), st.integers(0, 120), st.integers(1, 7), st.integers(0, 4))
def test_numbers_count_from_begin_to_end_inclusive(begin, extra, step, width):
    end = begin + extra
    first, last = str(begin).zfill(width), str(end).zfill(width)
    padded = len(first) if first.startswith("0") and len(first) > 1 else 0
    if padded and len(last) != padded:
        with pytest.raises(RangeError, match="unequal width"):
            expand(f"n[{first}:{last}:{step}]x")
        return
    expected, number = [], begin
    while number <= end:
        expected.append(f"n{str(number).rjust(padded, '0')}x")
        number += step
    assert expand(f"n[{first}:{last}:{step}]x") == expected


@given(st.integers(0, 51), st.integers(0, 51))
def test_letters_run_through_the_alphabet_lower_case_first(begin, end):
    name = f"[{LETTERS[begin]}:{LETTERS[end]}]"
    if end < begin:
        with pytest.raises(RangeError, match="empty range"):
            expand(name)
    else:
        assert expand(name) == list(LETTERS[begin : end + 1])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=3))
def test_several_ranges_multiply_the_last_fastest(bounds):
    name = "-".join(f"[{begin}:{begin + more}]" for begin, more in bounds)
    expected = [""]
    for begin, more in bounds:
        expected = [f"{left}-{number}" for left in expected for number in range(begin, begin + more + 1)]
    assert expand(name) == [text.lstrip("-") for text in expected]


@given(st.text(st.sampled_from("ab01:-,[]"), max_size=12))
def test_brackets_never_come_through(name):
    try:
        names = expand(name)
    except RangeError:
        return
    assert names
    assert not any(bracket in each for each in names for bracket in "[]")


def test_begin_may_be_left_out():
    assert expand("n[:2]") == ["n0", "n1", "n2"]


@pytest.mark.parametrize("name", ["n[1:99999999]", "n[0:999][0:999][0:999]", "n[1:9999999999999999999]"])
def test_a_range_that_fills_memory_is_refused(name):
    with pytest.raises(RangeError):
        expand(name)


def test_slurm_lists_are_told_key_by_key():
    with pytest.raises(RangeError, match=r"write gpu\[001:003\], gpu007 \(one key each\)"):
        expand("gpu[001-003,007]")
