"""Versions compare number by number, and only as text; dates end with the last day they name."""

from __future__ import annotations

from datetime import date

import pytest

from fleet.catalogue.versions import driver_version, first_day, last_day, release
from fleet.core.errors import InputError


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("535.183.06", "535.288.01"),
        ("550.90.07", "550.120"),
        ("550.54.15", "550.100"),
        ("570.26", "570.86.10"),
        ("580.95.05", "580.105.08"),
        ("575.64", "575.64.03"),
        ("470.256.02", "535.54.03"),
    ],
)
def test_driver_versions_compare_number_by_number(older: str, newer: str) -> None:
    assert driver_version(older) < driver_version(newer)
    assert driver_version(newer) >= driver_version(older)


def test_a_missing_number_counts_as_zero() -> None:
    assert driver_version("418.226") == driver_version("418.226.00")
    assert hash(driver_version("418.226")) == hash(driver_version("418.226.00"))
    assert driver_version("550.120") != driver_version("550.12")


@pytest.mark.parametrize(
    "text", ["", "580", "580.", "58.1", "580.1.2.3", "r580.65.06", "580.65.06-1", " 580.65.06"]
)
def test_what_is_no_driver_version_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a driver version"):
        driver_version(text)


def test_a_number_is_no_version() -> None:
    with pytest.raises(InputError, match="lost digits"):
        driver_version(550.120)  # type: ignore[arg-type]


def test_a_release_begins_with_its_minor() -> None:
    assert release("12.8.1").begins_with(release("12.8"))
    assert not release("12.80").begins_with(release("12.8"))
    assert release("12.10") > release("12.9.1")


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-02", date(2026, 2, 1), date(2026, 2, 28)),
        ("2028-02", date(2028, 2, 1), date(2028, 2, 29)),
        ("2031", date(2031, 1, 1), date(2031, 12, 31)),
        ("2026-05-13", date(2026, 5, 13), date(2026, 5, 13)),
    ],
)
def test_dates_may_be_a_month_or_a_year(text: str, first: date, last: date) -> None:
    assert (first_day(text), last_day(text)) == (first, last)


@pytest.mark.parametrize("text", ["2026-13", "2026-02-30", "26-02", "2026-00", "soon", ""])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        last_day(text)
