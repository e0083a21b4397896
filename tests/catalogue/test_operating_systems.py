"""Releases by os-release, and the names of packages for them."""

from __future__ import annotations

import pytest

from fleet.catalogue.catalogue import load
from fleet.catalogue.operating_systems import (
    PackageFamily,
    Systems,
    operating_system,
    supported_text,
)
from fleet.catalogue.versions import driver_version
from fleet.core.errors import InputError


@pytest.fixture(scope="module")
def systems() -> Systems:
    return load().systems


def family(systems: Systems, os_id: str, version: str) -> PackageFamily:
    release = systems.release(os_id, version)
    assert release is not None
    assert release.family is not None
    return release.family


@pytest.mark.parametrize(
    ("os_id", "version", "release"),
    [
        ("ubuntu", "24.04", "ubuntu-24.04"),
        ("debian", "12", "debian-12"),
        ("rocky", "9.7", "el-9"),
        ("rhel", "10.1", "el-10"),
        ("amzn", "2023", "amzn-2023"),
        ("ubuntu", "24.10", None),
        ("debian", "14", None),
        ("ubuntu", "22", None),
    ],
)
def test_the_release_of_a_host(systems: Systems, os_id: str, version: str, release: str | None) -> None:
    found = systems.release(os_id, version)
    assert (found.id if found else None) == release


def test_driver_packages(systems: Systems) -> None:
    ubuntu = family(systems, "ubuntu", "24.04")
    assert ubuntu.driver("open", 580) == ("nvidia-open-580",)
    assert ubuntu.driver("proprietary") == ("cuda-drivers",)
    assert ubuntu.headers("6.8.0-64-generic") == ("linux-headers-6.8.0-64-generic",)
    assert ubuntu.module_stream("open", 580) is None
    rocky = family(systems, "rocky", "9.4")
    assert rocky.module_stream("open", 580) == "nvidia-driver:580-open"
    assert family(systems, "rhel", "10.0").driver("proprietary", 580) is None


@pytest.mark.parametrize(
    ("os_id", "version", "driver", "packages"),
    [
        ("ubuntu", "22.04", "570.133.20", ("nvidia-fabricmanager-570", "libnvidia-nscq-570")),
        ("ubuntu", "22.04", "580.95.05", ("nvidia-fabricmanager", "libnvidia-nscq")),
        ("rocky", "9.4", "575.57.08", ("nvidia-fabric-manager-575.57.08", "libnvidia-nscq-575")),
        ("rocky", "9.4", "595.71.05", ("nvidia-fabricmanager", "libnvidia-nscq")),
    ],
)
def test_the_fabric_manager_is_named_by_branch_until_580(
    systems: Systems, os_id: str, version: str, driver: str, packages: tuple[str, ...]
) -> None:
    assert family(systems, os_id, version).fabric_manager(driver_version(driver)) == packages


def test_a_release_is_found_by_id_name_or_words(systems: Systems) -> None:
    for text in ("ubuntu-24.04", "Ubuntu 24.04 LTS", "ubuntu 24.04"):
        assert systems.find(text).id == "ubuntu-24.04"
    with pytest.raises(InputError, match=r"did you mean .*ubuntu-24\.04"):
        systems.find("ubuntu-24.10")


def test_what_fleet_provisions_is_unchanged() -> None:
    assert supported_text() == "Debian 11 to 13, Ubuntu 22.04 and newer"
    debian = operating_system("debian")
    assert debian is not None
    assert debian.covers("12.7")
    assert not debian.covers("14")
    assert operating_system("arch") is None
