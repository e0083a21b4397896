"""Operating systems for people and programs, as :mod:`fleet.catalogue.present` has the other kinds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.operating_systems import PackageFamily, Release
from fleet.catalogue.present import Kind, Line, Row, about, doubt, mark


def _os_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            one.id,
            one.name,
            one.cuda_repository or "-",
            "|".join(one.repository_architectures) or "-",
            one.driver_repository,
            one.end_of_life or one.long_term_end or "-",
            one.glibc or "-",
            _fleet_status(catalogue, one),
            mark(one.provenance),
        )
        for one in catalogue.systems.releases
    ]


def _fleet_status(catalogue: Catalogue, release: Release) -> str:
    """How fleet stands to the first of a release's distributions that it knows."""
    for name in release.distributions:
        found = catalogue.systems.distribution(name)
        if found is not None and found.covers(release.version):
            return found.status
    return "no"


def _os_key(catalogue: Catalogue, name: str) -> str:
    return catalogue.systems.find(name).id


def _os_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    release = catalogue.systems.find(name)
    known = release.provenance
    lines: list[Line] = [
        ("release", f"{release.name} ({', '.join(release.distributions)} {release.version})"),
        ("fleet", _fleet_status(catalogue, release)),
        ("CUDA repository", _repository(release) + doubt(known, "cuda_repository")),
        ("driver packages", release.driver_repository + doubt(known, "driver_repository")),
        (
            "container toolkit",
            release.container_toolkit.replace("_", " ") + doubt(known, "container_toolkit"),
        ),
    ]
    for label, value, path in (
        ("end of life", release.end_of_life, "end_of_life"),
        ("long term until", release.long_term_end, "long_term_end"),
        ("glibc", release.glibc, "glibc"),
    ):
        if value:
            lines.append((label, value + doubt(known, path)))
    if release.family:
        lines += _package_lines(release.family)
    return [*lines, *about(known, release.note)]


def _repository(release: Release) -> str:
    if release.cuda_repository is None:
        return "none"
    return f"{release.cuda_repository} ({', '.join(release.repository_architectures)})"


def _package_lines(family: PackageFamily) -> Iterator[Line]:
    for what, names in family.packages.items():
        yield what.replace("_", " "), " ".join(names) + doubt(family.provenance, f"packages.{what}")
    for flavour, stream in family.module_streams.items():
        yield f"stream {flavour}", stream
    for what, rows in family.by_branch.items():
        for row in rows:
            span = f"up to {row['to']}" if "to" in row else f"from {row['from']}"
            yield what.replace("_", " "), f"{span}: {' '.join(row['packages'])}"


def _os_derived(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    return {"fleet": _fleet_status(catalogue, catalogue.systems.find(name))}


KINDS = {
    "os": Kind(
        "os",
        ("id", "name", "repository", "arch", "driver", "end", "glibc", "fleet", "verified"),
        _os_rows,
        _os_key,
        _os_lines,
        _os_derived,
        ("operating_systems", "releases"),
    )
}
