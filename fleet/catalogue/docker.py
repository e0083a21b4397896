"""What is known of Docker Engine: packages per distribution, what a reload changes, address pools.

Data with sources in ``data/docker.yaml``; its weaknesses are in :mod:`fleet.catalogue.advisories`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.catalogue.data_files import within
from fleet.catalogue.entries import Entry, Files
from fleet.catalogue.versions import Version, release


@dataclass(frozen=True)
class EnginePackages:
    """Packages of one engine: ``engine`` are held, ``versioned`` carry the pinned version, ``support`` do
    not.

    ``starts``: units that the scripts of the packages enable and start when they are first installed.
    ``validates``: this dockerd knows ``--validate`` (from 23.0).
    """

    engine: tuple[str, ...]
    versioned: tuple[str, ...]
    support: tuple[str, ...]
    validates: bool = False
    starts: tuple[str, ...] = ()


def distribution_packages(os_id: str, version: str) -> EnginePackages | None:
    """The engine as the distribution packages it, or None for a release that is not known."""
    for entry in Files().section("docker", "engines"):
        if entry.get("os") == os_id and within(version, entry.get("from"), entry.get("to")):
            return _packages(entry)
    return None


def upstream_packages() -> EnginePackages:
    """The engine as Docker packages it."""
    return _packages(_one("engines", "docker"))


def upstream_repository() -> dict[str, str]:
    """``base_url``, ``key_path`` (below the distribution's folder of it), ``key_fingerprint`` and ``component``
    of Docker's package repository."""
    entry = _one("engines", "docker")
    return {name: str(entry[name]) for name in ("base_url", "key_path", "key_fingerprint", "component")}


def foreign_packages(source: str) -> tuple[str, ...]:
    """Packages that must not be beside the engine of ``source`` (``distribution`` or ``docker``)."""
    return tuple(_one("foreign", source)["packages"])


def reloadable_keys() -> frozenset[str]:
    """Keys of daemon.json that ``systemctl reload docker`` applies."""
    return frozenset(_one("reload", "keys")["keys"])


def feature_since(name: str, files: Files | None = None) -> Version:
    """The first release with a feature: ``gpus``, ``cdi_opt_in``, ``cdi_spec_0_7``, ``cdi_default`` …"""
    return release(_one("features", name, files)["since"])


def default_address_pools() -> list[tuple[str, int]]:
    """``(base, prefix length of one network)`` in the order the daemon tries them."""
    return [(pool["base"], pool["size"]) for pool in _one("address_pools", "defaults")["pools"]]


def address_pools_source() -> str:
    """Where the default pools are defined."""
    return _one("address_pools", "defaults").provenance.source("pools")


def _one(section: str, name: str, files: Files | None = None) -> Entry:
    return next(entry for entry in (files or Files()).section("docker", section) if entry.id == name)


def _packages(entry: Entry) -> EnginePackages:
    return EnginePackages(
        tuple(entry["engine"]),
        tuple(entry["versioned"]),
        tuple(entry["support"]),
        bool(entry.get("validates")),
        tuple(entry["starts"]),
    )
