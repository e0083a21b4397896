"""What a system needs beside the driver: by its GPU and by the switches among its PCI devices."""

from __future__ import annotations

import pytest

from fleet.catalogue.catalogue import load
from fleet.catalogue.container_toolkit import (
    cdi_0_7_since,
    toolkit_feature_since,
    toolkit_floor,
    toolkit_repository,
    toolkit_versions,
)
from fleet.catalogue.fabric import fabric_needs, nvswitch_devices


@pytest.mark.parametrize(
    ("gpu", "switch", "needs"),
    [
        ("a100-sxm4-80gb", True, {"fabric_manager"}),
        ("a100-sxm4-80gb", False, set()),
        ("h100-pcie", True, set()),
        ("b200", False, {"fabric_manager", "nvlsm", "infiniband-diags", "ib_umad", "mlx5_core"}),
        ("gb200", False, {"nvidia-imex"}),
        ("t4", False, set()),
    ],
)
def test_what_a_system_needs(gpu: str, switch: bool, needs: set[str]) -> None:
    assert set(fabric_needs(load().gpus.find(gpu), switch).needs) == needs


def test_of_an_unknown_gpu_the_switches_tell() -> None:
    assert fabric_needs(None, True).needs == ("fabric_manager",)
    assert fabric_needs(None, False).needs == ()


def test_the_fabric_manager_has_the_version_of_the_driver() -> None:
    assert fabric_needs(load().gpus.find("h100-sxm5-80gb"), True).exact


def test_switches_are_told_by_their_device_id() -> None:
    assert nvswitch_devices() == {"1af1": "A100 NVSwitch", "22a3": "H100 NVSwitch"}


def test_the_container_toolkit() -> None:
    assert toolkit_repository().packages[0] == "nvidia-container-toolkit"
    assert str(toolkit_floor()) == "1.19.1"
    assert toolkit_floor() in toolkit_versions()
    assert list(toolkit_versions()) == sorted(toolkit_versions())


def test_what_a_toolkit_can() -> None:
    since = {name: str(toolkit_feature_since(name)) for name in ("containerd", "compat_hook", "jit_cdi")}
    assert since == {"containerd": "1.14.0", "compat_hook": "1.17.5", "jit_cdi": "1.18.0"}
    assert cdi_0_7_since() == toolkit_feature_since("cdi_spec_0_7")
