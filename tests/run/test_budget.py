"""Batches and the failure budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.run.budget import batches, exhausted


@pytest.mark.parametrize(
    ("count", "serial", "sizes"),
    [
        (10, None, [10]),
        (10, [1], [1] * 10),
        (10, [1, "30%"], [1, 3, 3, 3]),
        (10, ["10%", 5], [1, 5, 4]),
        (3, ["1%"], [1, 1, 1]),
        (0, [1], []),
    ],
)
def test_batches_follow_serial(count: int, serial: list[int | str] | None, sizes: list[int]) -> None:
    assert [len(batch) for batch in batches(range(count), serial)] == sizes


@given(
    st.integers(0, 200),
    st.lists(st.one_of(st.integers(1, 50), st.integers(1, 100).map("{}%".format)), min_size=1),
)
def test_every_host_is_in_exactly_one_batch(count: int, serial: list[int | str]) -> None:
    assert [host for batch in batches(range(count), serial) for host in batch] == list(range(count))


def test_without_a_limit_a_play_stops_only_when_a_whole_batch_is_lost() -> None:
    assert not exhausted(9, 10, None, any_errors_fatal=False)
    assert exhausted(10, 10, None, any_errors_fatal=False)


def test_the_percentage_must_be_exceeded_not_reached() -> None:
    assert not exhausted(3, 10, 30, any_errors_fatal=False)
    assert exhausted(4, 10, 30, any_errors_fatal=False)
    assert exhausted(1, 10, 0, any_errors_fatal=False)
    assert not exhausted(0, 10, 0, any_errors_fatal=True)
    assert exhausted(1, 10, 90, any_errors_fatal=True)
