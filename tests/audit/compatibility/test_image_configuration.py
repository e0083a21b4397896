"""What an image's configuration tells, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.audit.compatibility.image_configuration import configured

#: As NVIDIA's Dockerfiles leave it in a devel image.
NVIDIA_DEVEL = [
    "PATH=/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/bin",
    "NVARCH=x86_64",
    "NVIDIA_REQUIRE_CUDA=cuda>=12.8 brand=unknown,driver>=470,driver<471",
    "NV_CUDA_CUDART_VERSION=12.8.90-1",
    "CUDA_VERSION=12.8.1",
    "NVIDIA_VISIBLE_DEVICES=all",
    "NV_CUDA_CUDART_DEV_VERSION=12.8.90-1",
    "NV_CUDNN_VERSION=9.8.0.87-1",
    "NV_CUDA_COMPAT_PACKAGE=cuda-compat-12-8",
]
UBUNTU = {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "22.04"}


def test_a_devel_image_of_nvidia() -> None:
    assert configured(NVIDIA_DEVEL, UBUNTU) == {
        "require_cuda": "cuda>=12.8 brand=unknown,driver>=470,driver<471",
        "cuda": "12.8",
        "cuda_release": "12.8.1",
        "cudnn": "9.8.0.87",
        "compat_package": True,
        "flavour": "devel",
        "os": "Ubuntu 22.04",
        "unverified": ["cuda", "cudnn"],
    }


def test_an_image_of_ngc() -> None:
    said = [
        "PYTORCH_VERSION=2.7.0a0+79aa17489c",
        "CUDA_VERSION=12.8.1.012",
        "_CUDA_COMPAT_PATH=/usr/local/cuda/compat",
    ]
    found = configured(said, None)
    assert (found["torch"], found["cuda"], found["cuda_release"]) == ("2.7.0a0", "12.8", "12.8.1")
    assert found["compat_package"] is True
    assert "variant" not in found


def test_a_torch_that_names_its_variant_goes_before_the_cuda_of_the_system() -> None:
    found = configured(["PYTORCH_VERSION=2.7.0+cu118", "CUDA_VERSION=12.8.1"], {})
    assert (found["cuda"], found["variant"], found["unverified"]) == ("11.8", "cu118", [])
    assert "cuda_release" not in found


@pytest.mark.parametrize(
    "said",
    [
        [],
        ["PYTORCH_VERSION=main"],
        ["PYTORCH_VERSION=", "CUDA_VERSION=latest"],
        ["CUDA_VERSION"],
        ["CUDA_VERSION=12"],
        ["MY_CUDA_VERSION=12.8.1"],
    ],
)
def test_what_is_not_told_is_not_guessed(said: list[str]) -> None:
    assert configured(said, {"maintainer": "cuda 12.8"}) == {"require_cuda": "", "unverified": []}


@pytest.mark.parametrize(
    "labels",
    [{"org.opencontainers.image.version": "22.04"}, {**UBUNTU, "org.opencontainers.image.version": "7.1"}],
)
def test_a_version_of_something_else_is_not_the_systems(labels: dict[str, Any]) -> None:
    assert "os" not in configured([], labels)


def test_a_requirement_that_the_image_switches_off_is_none() -> None:
    assert configured([*NVIDIA_DEVEL, "NVIDIA_DISABLE_REQUIRE=true"], {})["require_cuda"] == ""
    assert configured([*NVIDIA_DEVEL, "NVIDIA_DISABLE_REQUIRE=0"], {})["require_cuda"] != ""
