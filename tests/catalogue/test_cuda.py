"""Which driver a CUDA toolkit needs: natively, by minor-version compatibility, by a forward package."""

from __future__ import annotations

import pytest

from fleet.catalogue.catalogue import load
from fleet.catalogue.cuda import Cuda
from fleet.catalogue.versions import driver_version
from fleet.core.errors import InputError


@pytest.fixture(scope="module")
def cuda() -> Cuda:
    return load().cuda


@pytest.mark.parametrize(
    ("toolkit", "driver", "fit"),
    [
        ("11.8.0", "450.80.01", "too_old"),
        ("11.8.0", "450.80.02", "minor_version"),
        ("11.8.0", "520.61.05", "native"),
        ("11.8.0", "580.65.06", "native"),
        ("12.8.1", "525.60.13", "minor_version"),
        ("12.8.1", "570.124.05", "minor_version"),
        ("12.8.1", "570.124.06", "native"),
        ("12.8.0", "570.86.15", "native"),
        ("13.0.2", "575.57.08", "too_old"),
        ("13.0.2", "580.65.06", "minor_version"),
        ("13.4.1", "615.71.09", "native"),
        ("13.4.1", "610.57.04", "minor_version"),
        ("11.0.3", "450.51.05", "too_old"),
        ("11.0.3", "450.51.06", "native"),
        ("10.2", "418.226.00", "too_old"),
        ("10.2", "440.33", "native"),
    ],
)
def test_how_a_toolkit_gets_on_with_a_driver(cuda: Cuda, toolkit: str, driver: str, fit: str) -> None:
    assert cuda.find(toolkit).fit(driver_version(driver)) == fit


def test_a_minor_stands_for_its_newest_update_of_the_table(cuda: Cuda) -> None:
    assert cuda.find("12.8").version.text == "12.8.1"
    assert cuda.find("12.3").version.text == "12.3.1"
    assert cuda.find("13.0").version.text == "13.0.2"
    assert cuda.find("13.4").version.text == "13.4.1"


def test_a_bundled_driver_is_not_called_a_verified_minimum(cuda: Cuda) -> None:
    assert cuda.find("13.0.3").native_basis == "bundled"
    assert cuda.find("13.0.3").provenance.caveat("native_driver") == "not verified: native_driver"
    assert cuda.find("13.0.2").provenance.caveat("native_driver") == ""


def test_forward_packages(cuda: Cuda) -> None:
    package = cuda.forward_package("13.0", 570)
    assert package is not None
    assert package.package == "cuda-compat-13-0"
    assert cuda.forward_package("13.0", 580) is None
    assert cuda.forward_package("12.4", 570) is None


def test_there_is_no_toolkit_12_7(cuda: Cuda) -> None:
    with pytest.raises(InputError, match=r"no CUDA 12\.7 .*did you mean"):
        cuda.find("12.7")
    with pytest.raises(InputError, match="did you mean"):
        cuda.find("12.8.9")


def test_the_first_release_of_a_minor(cuda: Cuda) -> None:
    first = cuda.first_of("12.8")
    assert first is not None
    assert (first.version.text, str(first.native_driver)) == ("12.8.0", "570.26")
    assert cuda.first_of("12.8.1") == first
    assert cuda.first_of("12.7") is None
    assert cuda.first_of("12") is None


@pytest.mark.parametrize(
    ("capability", "toolkit", "compiles"),
    [
        ("3.7", "11.8", True),
        ("3.7", "12.0", False),
        ("7.0", "12.9", True),
        ("7.0", "13.0", False),
        ("12.0", "12.6", False),
        ("12.0", "12.8", True),
        ("7.5", "13.4", True),
        ("1.3", "10.0", None),
    ],
)
def test_what_a_compiler_makes_code_for(
    cuda: Cuda, capability: str, toolkit: str, compiles: bool | None
) -> None:
    assert cuda.compiles(capability, toolkit) is compiles
