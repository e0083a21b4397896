"""The NVIDIA container toolkit: where it comes from, and from which version on it is safe.

Data in ``data/container_toolkit.yaml``; its weaknesses are in :mod:`fleet.catalogue.advisories`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.catalogue.entries import Files, Provenance
from fleet.catalogue.versions import Version, release


@dataclass(frozen=True)
class ToolkitRepository:
    """Addresses of the list file (deb) and the repository file (rpm), where the key goes, what is installed."""

    deb: str
    rpm: str
    keyring: str
    packages: tuple[str, ...]
    provenance: Provenance


def toolkit_repository(files: Files | None = None) -> ToolkitRepository:
    """The stable repository. All packages carry one version."""
    entry = next(
        one for one in _files(files).section("container_toolkit", "repositories") if one.id == "stable"
    )
    return ToolkitRepository(
        entry["deb"], entry["rpm"], entry["keyring"], tuple(entry["packages"]), entry.provenance
    )


def toolkit_versions(files: Files | None = None) -> tuple[Version, ...]:
    """The versions known, oldest first."""
    return tuple(sorted(release(one.id) for one in _files(files).section("container_toolkit", "releases")))


def toolkit_floor(files: Files | None = None) -> Version:
    """The first version free of every weakness known."""
    floors = _files(files).section("container_toolkit", "floors")
    return next(release(one["version"]) for one in floors if one.id == "container_toolkit")


def _files(files: Files | None) -> Files:
    return files or Files()
