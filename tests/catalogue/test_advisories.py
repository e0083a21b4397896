"""Which versions of the engine, runc and the container toolkit have a fix."""

from __future__ import annotations

import pytest

from fleet.catalogue.catalogue import load
from fleet.catalogue.docker import (
    distribution_packages,
    foreign_packages,
    reloadable_keys,
    upstream_repository,
)
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
