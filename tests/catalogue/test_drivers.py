"""Branches of the driver: of a version, how long supported, which fixes, which architectures."""

from __future__ import annotations

from datetime import date

import pytest

from fleet.catalogue.catalogue import load
from fleet.catalogue.drivers import Branch, Drivers
from fleet.catalogue.versions import driver_version
from fleet.core.errors import InputError

TODAY = date(2026, 11, 30)


@pytest.fixture(scope="module")
def drivers() -> Drivers:
    return load().drivers


def branch(drivers: Drivers, number: int) -> Branch:
    found = drivers.branch(number)
    assert found is not None
    return found


def test_the_branch_of_a_version(drivers: Drivers) -> None:
    assert drivers.branch_of("535.183.06") is branch(drivers, 535)
    assert drivers.branch_of("536.25") is None


@pytest.mark.parametrize(
    ("number", "support"),
    [(535, "ended"), (570, "ended"), (580, "supported"), (590, "superseded"), (595, "supported"), (615, "superseded"),
     (620, "supported"), (410, "unknown")],
)  # fmt: skip
def test_support_on_a_day(drivers: Drivers, number: int, support: str) -> None:
    assert drivers.support(branch(drivers, number), TODAY) == support


def test_a_month_of_end_lasts_to_its_last_day(drivers: Drivers) -> None:
    assert drivers.support(branch(drivers, 535), date(2026, 6, 30)) == "supported"
    assert drivers.support(branch(drivers, 535), date(2026, 7, 1)) == "ended"


def test_a_new_feature_branch_is_supported_until_the_next_branch_is_out(drivers: Drivers) -> None:
    assert drivers.support(branch(drivers, 590), date(2026, 3, 23)) == "supported"
    assert drivers.support(branch(drivers, 590), date(2026, 3, 24)) == "superseded"


def test_security_fixes(drivers: Drivers) -> None:
    fix = branch(drivers, 580).security_floor
    assert fix is not None
    assert (fix.version.text, fix.bulletin) == ("580.159.03", "5821")
    assert drivers.unfixed(branch(drivers, 580)) == ()
    assert drivers.unfixed(branch(drivers, 570)) == ("5821",)
    assert drivers.unfixed(branch(drivers, 590)) == ("5821",)
    assert branch(drivers, 620).security_floor is None
    assert drivers.unfixed(branch(drivers, 620)) == ()


def test_developer_betas_are_told_from_releases(drivers: Drivers) -> None:
    assert branch(drivers, 570).is_beta(driver_version("570.123.07"))
    assert not branch(drivers, 570).is_beta(driver_version("570.124.06"))
    for one in drivers.all:
        assert not [version for version in one.versions if one.is_beta(version)]


def test_flavours_of_the_kernel_modules(drivers: Drivers) -> None:
    assert branch(drivers, 470).kernel_modules == ("proprietary",)
    assert branch(drivers, 580).kernel_modules == ("open", "proprietary")
    assert branch(drivers, 620).kernel_modules == ("open",)


def test_architectures_of_a_branch() -> None:
    catalogue = load()
    assert [one.id for one in catalogue.architectures_of(470)] == [
        "kepler", "maxwell", "pascal", "volta", "turing", "ampere",
    ]  # fmt: skip
    assert [one.id for one in catalogue.architectures_of(590)] == [
        "turing", "ampere", "ada", "hopper", "blackwell", "blackwell_ultra", "blackwell_rtx",
    ]  # fmt: skip


def test_an_unknown_branch_names_near_ones(drivers: Drivers) -> None:
    with pytest.raises(InputError, match=r"did you mean .*580"):
        drivers.find("585.10.01")
    assert drivers.find("580.999.99")[0].number == 580
