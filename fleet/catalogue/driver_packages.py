"""Which packages make a driver, by distribution and origin. Data in ``data/driver_packages.yaml``.

A :class:`DriverSet` says the names; which versions are offered is asked of the host, and what to take is decided
in :mod:`fleet.modules.driver.packages`. The fabric manager of NVIDIA's repositories is named by
:class:`fleet.catalogue.operating_systems.PackageFamily`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fleet.catalogue.entries import Entry, Files, Provenance


@dataclass(frozen=True)
class DriverSet:
    """The packages of a driver. ``origin``: ``nvidia`` or ``distribution``.

    ``modules`` names by flavour what builds the kernel modules; ``prebuilt`` how packages begin that bring them
    built. Of each row of ``required`` one must be there in the driver's version; ``optional`` ones are taken where
    they are offered in it; ``support`` is versioned by itself. ``fabric_manager`` is None where the package
    family names it. Names hold ``{branch}``.
    """

    id: str
    origin: str
    distributions: tuple[str, ...]
    manager: str
    lowest: int
    highest: int
    modules: Mapping[str, str]
    modules_optional: Mapping[str, Sequence[str]]
    prebuilt: Mapping[str, str]
    required: tuple[tuple[str, ...], ...]
    optional: tuple[str, ...]
    support: tuple[str, ...]
    starts: tuple[str, ...]
    components: tuple[str, ...]
    fabric_manager: tuple[str, ...] | None
    provenance: Provenance

    def covers(self, branch: int) -> bool:
        """Whether drivers of this branch are named so."""
        return self.lowest <= branch <= self.highest


@dataclass(frozen=True)
class DriverRepository:
    """NVIDIA's package repositories: ``BASE/DISTRIBUTION/ARCHITECTURE/``, each signed by one key that lies in it.

    ``keyring_lists`` are the source lists that NVIDIA's own cuda-keyring package brings for the same address.
    From branch ``open_modules_since`` on the open kernel modules are what NVIDIA installs by default.
    """

    base_url: str
    key_fingerprints: Mapping[str, str]
    key_files: Mapping[str, str]
    keyring_lists: tuple[str, ...]
    open_modules_since: int

    def fingerprint(self, distribution: str) -> str:
        """The fingerprint of the key that signs a distribution's repository."""
        return self.key_fingerprints.get(distribution, self.key_fingerprints["default"])

    def key_file(self, distribution: str) -> str:
        """The name of that key in the folder of each architecture."""
        return self.key_files.get(distribution, self.key_files["default"])


def driver_sets(origin: str, os_id: str, files: Files | None = None) -> tuple[DriverSet, ...]:
    """The sets of one origin for a distribution (ID of os-release), by branch; empty where none is known."""
    found = map(_set, (files or Files()).section("driver_packages", "sets"))
    return tuple(one for one in found if one.origin == origin and os_id in one.distributions)


def driver_repository(files: Files | None = None) -> DriverRepository:
    """NVIDIA's repositories."""
    entry = _only((files or Files()).section("driver_packages", "repositories"), "nvidia")
    return DriverRepository(
        entry["base_url"],
        entry["key_fingerprints"],
        entry["key_files"],
        tuple(entry["keyring_lists"]),
        entry["open_modules_since"],
    )


def of_the_driver(names: Iterable[str], files: Files | None = None) -> list[str]:
    """Those of ``names`` (packages) that belong to NVIDIA's driver, whoever packaged it."""
    entry = _only((files or Files()).section("driver_packages", "belongs"), "driver")
    return [name for name in names if _any(name, entry["patterns"]) and not _any(name, entry["except"])]


def patterns_of_the_driver(files: Files | None = None) -> tuple[str, ...]:
    """Patterns of :func:`of_the_driver`; what they match besides is no version of a driver."""
    return tuple(_only((files or Files()).section("driver_packages", "belongs"), "driver")["patterns"])


def unwatched(files: Files | None = None) -> tuple[str, ...]:
    """Patterns of packages of the driver whose versions the facts do not carry."""
    return tuple(_only((files or Files()).section("driver_packages", "belongs"), "driver")["unwatched"])


def prebuilt_modules(names: Iterable[str], files: Files | None = None) -> list[str]:
    """Those of ``names`` that bring the driver's kernel modules built for one kernel."""
    entry = _only((files or Files()).section("driver_packages", "belongs"), "driver")
    return [name for name in names if _any(name, entry["prebuilt"])]


def _any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _only(entries: Iterable[Entry], name: str) -> Entry:
    return next(entry for entry in entries if entry.id == name)


def _set(entry: Entry) -> DriverSet:
    branches = entry.get("branches", {})
    manager = entry.get("fabric_manager")
    return DriverSet(
        id=entry.id,
        origin=entry["origin"],
        distributions=tuple(entry["distributions"]),
        manager=entry["manager"],
        lowest=branches.get("from", 0),
        highest=branches.get("to", 9999),
        modules=entry["modules"],
        modules_optional=entry.get("modules_optional", {}),
        prebuilt=entry.get("prebuilt", {}),
        required=tuple(tuple(row) for row in entry["required"]),
        optional=tuple(entry["optional"]),
        support=tuple(entry.get("support", ())),
        starts=tuple(entry["starts"]),
        components=tuple(entry.get("components", ())),
        fabric_manager=None if manager is None else tuple(manager),
        provenance=entry.provenance,
    )
