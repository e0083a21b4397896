"""An image's requirement is judged by the driver's version and its CUDA, before the image is run."""

from __future__ import annotations

import pytest

from fleet.agent.image_requirement import cuda_of, required, unmet

REQUIRED = (
    "cuda>=12.8 brand=unknown,driver>=535,driver<536 brand=tesla,driver>=535,driver<536"
    " brand=tesla,driver>=550,driver<551"
)


@pytest.mark.parametrize(
    ("cuda", "driver", "first"),
    [
        ("12.8", "570.86.15", None),
        ("13.0", "580.159.03", None),
        ("12.2", "535.216.01", None),  # an alternative: the image's libraries for older drivers
        ("12.6", "560.35.03", "cuda>=12.8"),
        ("11.4", "470.256.02", "cuda>=12.8"),
        (None, "560.35.03", None),  # not known
        ("12.10", "999.1", None),  # no decimal fraction
    ],
)
def test_one_alternative_is_enough(cuda: str | None, driver: str, first: str | None) -> None:
    assert unmet(REQUIRED, {"cuda": cuda, "driver": driver}) == first


def test_conditions_of_an_alternative_count_together() -> None:
    assert unmet("cuda>=11.0,driver<450", {"cuda": "12.2", "driver": "535.54.03"}) is not None
    assert unmet("arch>=8.0,cuda>=11.0", {"cuda": "12.2", "driver": "535.54.03"}) is None
    assert unmet("", {"cuda": None, "driver": None}) is None


def test_an_image_may_ask_for_nothing() -> None:
    assert required(["PATH=/bin", "NVIDIA_REQUIRE_CUDA=cuda>=12.8", "NVIDIA_REQUIRE_JETPACK="]) == [
        "cuda>=12.8"
    ]
    assert required(["NVIDIA_REQUIRE_CUDA=cuda>=12.8", "NVIDIA_DISABLE_REQUIRE=true"]) == []
    assert required([]) == []


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("| NVIDIA-SMI 550.163.01   Driver Version: 550.163.01   CUDA Version: 12.4     |\n", "12.4"),
        ("| NVIDIA-SMI 620.70.06   KMD Version: 620.70.06   CUDA UMD Version: 13.5     |\n", "13.5"),
        ("CUDA Version                          : 13.0\n", "13.0"),
        ("| NVIDIA-SMI 390.157      Driver Version: 390.157 |\n", None),
        ("CUDA Version: N/A", None),
    ],
)
def test_the_cuda_of_a_driver(said: str, version: str | None) -> None:
    assert cuda_of(said) == version
