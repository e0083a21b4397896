"""The NVIDIA container toolkit: where it comes from, and from which version on it is safe.

Data in ``data/container_toolkit.yaml``; its weaknesses are in :mod:`fleet.catalogue.advisories`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.catalogue.entries import Files, Provenance
from fleet.catalogue.versions import Version, release


@dataclass(frozen=True)
class ToolkitRepository:
    """Addresses of the list file (deb) and the repository file (rpm), where the key goes, what is installed.

    ``base_url`` is what that list file names, without the architecture's folder (``amd64``); its key lies above it,
    at ``key_url``. ``list_files`` are
    those that guides make people write; an entry of one contains one of ``same_as``. ``replaced_packages`` came
    before these and must go.
    """

    deb: str
    rpm: str
    keyring: str
    packages: tuple[str, ...]
    base_url: str
    key_url: str
    key_fingerprint: str
    list_files: tuple[str, ...]
    same_as: tuple[str, ...]
    replaced_packages: tuple[str, ...]
    provenance: Provenance

    def key_below(self, base_url: str) -> str | None:
        """Where the key is in a copy at ``base_url``; None where that address does not end as NVIDIA's does."""
        above, _, name = self.key_url.rpartition("/")
        ending = self.base_url.removeprefix(above)  # /stable/deb
        return f"{base_url.removesuffix(ending)}/{name}" if base_url.endswith(ending) else None


def toolkit_repository(files: Files | None = None) -> ToolkitRepository:
    """The stable repository. All packages carry one version."""
    entry = next(
        one for one in _files(files).section("container_toolkit", "repositories") if one.id == "stable"
    )
    return ToolkitRepository(
        entry["deb"],
        entry["rpm"],
        entry["keyring"],
        tuple(entry["packages"]),
        entry["base_url"],
        entry["key_url"],
        entry["key_fingerprint"],
        tuple(entry["list_files"]),
        tuple(entry["same_as"]),
        tuple(entry["replaced_packages"]),
        entry.provenance,
    )


def toolkit_feature_since(name: str, files: Files | None = None) -> Version:
    """The first version with a feature: ``containerd``, ``compat_hook``, ``jit_cdi``, ``cdi_spec_0_7``."""
    features = _files(files).section("container_toolkit", "features")
    return next(release(one["since"]) for one in features if one.id == name)


def cdi_0_7_since(files: Files | None = None) -> Version:
    """The first version whose CDI specifications need an engine that knows CDI 0.7."""
    return toolkit_feature_since("cdi_spec_0_7", files)


def toolkit_versions(files: Files | None = None) -> tuple[Version, ...]:
    """The versions known, oldest first."""
    return tuple(sorted(release(one.id) for one in _files(files).section("container_toolkit", "releases")))


def toolkit_floor(files: Files | None = None) -> Version:
    """The first version free of every weakness known."""
    floors = _files(files).section("container_toolkit", "floors")
    return next(release(one["version"]) for one in floors if one.id == "container_toolkit")


def _files(files: Files | None) -> Files:
    return files or Files()
