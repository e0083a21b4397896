"""Which distributions fleet provisions, and what NVIDIA publishes for each release.

Data in ``data/operating_systems.yaml``. Preflight asks :func:`operating_system`; names of packages for a
release come from :class:`Systems`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.catalogue.data_files import version_key, within
from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.catalogue.versions import Version
from fleet.core.errors import InputError


@dataclass(frozen=True)
class OperatingSystem:
    """One distribution. ``status`` is ``supported`` or ``later``; ``source`` says where that comes from."""

    id: str
    name: str
    lowest: str | None
    highest: str | None
    manager: str
    status: str
    source: str

    def covers(self, version: str) -> bool:
        """Whether a release is among those named."""
        return within(version, self.lowest, self.highest)


@dataclass(frozen=True)
class PackageFamily:
    """How NVIDIA names its packages for a package manager; ``{branch}``, ``{version}``, ``{kernel}`` to fill in."""

    id: str
    manager: str
    packages: Mapping[str, Sequence[str]]
    module_streams: Mapping[str, str]
    by_branch: Mapping[str, Sequence[Mapping[str, Any]]]
    provenance: Provenance

    def driver(self, flavour: str, branch: int | None = None) -> tuple[str, ...] | None:
        """Packages of the driver, ``open`` or ``proprietary``, of the newest branch or a certain one.

        None where NVIDIA has none.
        """
        names = self.packages.get(f"{flavour}_branch" if branch is not None else flavour)
        return tuple(name.format(branch=branch) for name in names) if names is not None else None

    def module_stream(self, flavour: str, branch: int) -> str | None:
        """The dnf module stream that selects a branch, where there are such streams."""
        stream = self.module_streams.get(flavour)
        return stream.format(branch=branch) if stream is not None else None

    def headers(self, kernel: str) -> tuple[str, ...]:
        """Packages that building the modules for this kernel needs."""
        return tuple(name.format(kernel=kernel) for name in self.packages.get("headers", ()))

    def container_toolkit(self) -> tuple[str, ...]:
        """Packages of the NVIDIA container toolkit; all carry one version."""
        return tuple(self.packages.get("container_toolkit", ()))

    def fabric_manager(self, driver: Version) -> tuple[str, ...]:
        """Packages of the fabric manager for a driver, whose version they must have exactly."""
        return self._by_branch("fabric_manager", driver)

    def imex(self, driver: Version) -> tuple[str, ...]:
        """Packages of IMEX (multi-node NVLink) for a driver."""
        return self._by_branch("imex", driver)

    def _by_branch(self, what: str, driver: Version) -> tuple[str, ...]:
        for row in self.by_branch[what]:
            if row.get("from", 0) <= driver.major <= row.get("to", driver.major):
                return tuple(name.format(branch=driver.major, version=driver) for name in row["packages"])
        return ()


@dataclass(frozen=True)
class Release:
    """A release, such as Ubuntu 24.04, and what NVIDIA publishes for it.

    ``distributions`` are IDs of os-release. ``driver_repository``: ``current``, ``legacy`` (no new branches) or
    ``none``; ``container_toolkit``: ``listed`` by NVIDIA, ``generic`` (the generic packages work) or
    ``not_listed``. Dates as in :class:`fleet.catalogue.drivers.Branch`.
    """

    id: str
    name: str
    distributions: tuple[str, ...]
    version: str
    cuda_repository: str | None
    repository_architectures: tuple[str, ...]
    driver_repository: str
    container_toolkit: str
    end_of_life: str | None
    long_term_end: str | None
    glibc: str | None
    family: PackageFamily | None
    note: str
    provenance: Provenance


class Systems:
    """Distributions, package families and releases of a catalogue."""

    def __init__(self, files: Files) -> None:
        self.distributions = tuple(map(_distribution, files.section("operating_systems", "distributions")))
        families = {one.id: _family(one) for one in files.section("operating_systems", "package_families")}
        self.families = families
        self.releases = tuple(
            _release(one, families) for one in files.section("operating_systems", "releases")
        )

    def distribution(self, os_id: str) -> OperatingSystem | None:
        """The distribution with this ID of os-release, or None."""
        return next((each for each in self.distributions if each.id == os_id), None)

    def release(self, os_id: str, version: str) -> Release | None:
        """The release of a host by ID and VERSION_ID of os-release: 9.4 of rhel is release 9."""
        for each in self.releases:
            if os_id in each.distributions and _is_release(version, each.version):
                return each
        return None

    def find(self, text: str) -> Release:
        """A release by its id or name, or by ``ID VERSION``. Raises InputError with near ones."""
        wanted = text.strip().lower()
        os_id, _, version = wanted.replace("-", " ").rpartition(" ")
        for each in self.releases:
            if wanted in (each.id, each.name.lower()):
                return each
        found = self.release(os_id.replace(" ", "-"), version)
        if found is not None:
            return found
        near = difflib.get_close_matches(
            wanted.replace(" ", "-"), [each.id for each in self.releases], cutoff=0.5
        )
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(
            f"there is no release {text} in the catalogue{hint}", remedy="fleet catalogue show os"
        )


def operating_systems() -> list[OperatingSystem]:
    """All distributions of the shipped catalogue, in file order."""
    return [_distribution(entry) for entry in Files().section("operating_systems", "distributions")]


def operating_system(os_id: str) -> OperatingSystem | None:
    """The distribution with this ID of os-release, or None."""
    return next((each for each in operating_systems() if each.id == os_id), None)


def supported_text() -> str:
    """``Debian 11 to 13, Ubuntu 22.04 and newer``."""
    parts = []
    for each in operating_systems():
        if each.status == "supported":
            parts.append(
                f"{each.name} {each.lowest}" + (f" to {each.highest}" if each.highest else " and newer")
            )
    return ", ".join(parts)


def _is_release(version: str, release: str) -> bool:
    if version == release:
        return True
    length = len(version_key(release))
    return "." in version and length == 1 and version_key(version)[:length] == version_key(release)


def _distribution(entry: Entry) -> OperatingSystem:
    return OperatingSystem(
        id=entry.id,
        name=entry["name"],
        lowest=entry["versions"].get("from"),
        highest=entry["versions"].get("to"),
        manager=entry["manager"],
        status=entry["status"],
        source=entry.provenance.source(),
    )


def _family(entry: Entry) -> PackageFamily:
    return PackageFamily(
        id=entry.id,
        manager=entry["manager"],
        packages=entry["packages"],
        module_streams=entry.get("module_streams", {}),
        by_branch={what: entry.get(what, ()) for what in ("fabric_manager", "imex")},
        provenance=entry.provenance,
    )


def _release(entry: Entry, families: Mapping[str, PackageFamily]) -> Release:
    family = entry.get("package_family")
    return Release(
        id=entry.id,
        name=entry["name"],
        distributions=tuple(entry["distributions"]),
        version=entry["version"],
        cuda_repository=entry.get("cuda_repository"),
        repository_architectures=tuple(entry.get("repository_architectures", ())),
        driver_repository=entry["driver_repository"],
        container_toolkit=entry["container_toolkit"],
        end_of_life=entry.get("end_of_life"),
        long_term_end=entry.get("long_term_end"),
        glibc=entry.get("glibc"),
        family=families[family] if family is not None else None,
        note=entry.get("note", ""),
        provenance=entry.provenance,
    )
