"""Which versions of the engine, runc and the container toolkit have a fix."""

from __future__ import annotations

from datetime import date

import pytest

from fleet.catalogue.catalogue import load
from fleet.catalogue.docker import (
    distribution_packages,
    foreign_packages,
    reloadable_keys,
    upstream_repository,
)
from fleet.catalogue.runtimes import Runtime
from fleet.catalogue.versions import release

ADVISORIES = {one.id: one for one in load().advisories.all}


@pytest.mark.parametrize(
    ("advisory", "version", "fixed"),
    [
        ("CVE-2024-41110", "24.0.9", False),
        ("CVE-2024-41110", "23.0.15", True),
        ("CVE-2024-41110", "25.0.5", False),
        ("CVE-2024-41110", "25.0.6", True),
        ("CVE-2024-41110", "26.0.9", False),
        ("CVE-2024-41110", "28.5.2", True),
        ("CVE-2026-34040", "28.5.2", False),
        ("CVE-2026-34040", "25.0.16", True),
        ("CVE-2025-31133", "1.1.15", False),
        ("CVE-2025-31133", "1.2.8", True),
        ("CVE-2025-23266", "1.17.7", False),
        ("CVE-2024-0135", "1.17.1", False),
        ("CVE-2024-0135", "1.17.3", True),
        ("CVE-2026-53492", "2.0.7", True),
        ("CVE-2026-53492", "2.1.8", False),
        ("CVE-2026-53492", "2.1.9", True),
        ("CVE-2023-25153", "1.6.8", False),
    ],
)
def test_whether_a_version_has_the_fix(advisory: str, version: str, fixed: bool) -> None:
    assert ADVISORIES[advisory].fixed(release(version)) is fixed


def test_what_provisioning_uses_of_the_engine_is_unchanged() -> None:
    packages = distribution_packages("debian", "12")
    assert packages is not None
    assert packages.engine == ("docker.io", "containerd", "runc")
    assert distribution_packages("fedora", "44") is None
    assert "docker-ce" in foreign_packages("distribution")
    assert "live-restore" in reloadable_keys()
    assert upstream_repository()["component"] == "stable"


def test_a_component_lacks_what_its_branch_never_got() -> None:
    advisories = load().advisories
    lacking = [one.id for one in advisories.lacking("runc", release("1.2.8"))]
    assert lacking == ["CVE-2026-41579"]
    assert advisories.lacking("container_toolkit", release("1.19.1")) == ()
    assert {one.component for one in advisories.of("containerd")} == {"containerd"}


def test_the_smallest_step_to_a_fix() -> None:
    for number, version, fix in (
        ("CVE-2025-31133", "1.2.6", "1.2.8"),
        ("CVE-2025-31133", "1.1.12", "1.2.8"),
        ("CVE-2026-34040", "28.5.2", "29.3.1"),
        ("CVE-2026-34040", "25.0.8", "25.0.16"),
    ):
        assert str(ADVISORIES[number].fix_for(release(version))) == fix


def test_where_alone_a_weakness_is() -> None:
    assert ADVISORIES["CVE-2026-41579"].exposure == "not_docker"
    assert ADVISORIES["CVE-2024-0132"].exposure == "not_cdi"
    assert ADVISORIES["CVE-2025-31133"].exposure is None
    assert not ADVISORIES["CVE-2026-53495"].sure


@pytest.mark.parametrize(
    ("runtime", "version", "branch", "ended"),
    [
        ("runc", "1.1.12", "1.1", True),
        ("runc", "1.4.3", "1.4", False),
        ("containerd", "1.7.24", "1.7", True),
        ("containerd", "2.3.4", "2.3", False),
        ("engine", "24.0.9", "24.0", True),
        ("engine", "25.0.17", "25.0", False),
        ("engine", "29.7.2", "29", False),
    ],
)
def test_how_long_a_branch_is_supported(runtime: Runtime, version: str, branch: str, ended: bool) -> None:
    found = load().runtimes.branch_of(runtime, release(version))
    assert found is not None
    assert (found.id, found.ended(date(2026, 11, 30))) == (branch, ended)


def test_a_branch_that_is_not_known_is_not_guessed() -> None:
    assert load().runtimes.branch_of("engine", release("18.09.1")) is None
    assert str(load().runtimes.cdi_0_7["containerd"]) == "1.7.16"
