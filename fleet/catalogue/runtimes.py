"""Branches of the engine, containerd and runc, and how long each is supported.

Data in ``data/docker.yaml`` (the engine) and ``data/runtimes.yaml``; weaknesses are in
:mod:`fleet.catalogue.advisories`. Versions are upstream's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.catalogue.versions import Version, last_day, release
from fleet.core.errors import InputError

Runtime = Literal["engine", "containerd", "runc"]
#: Where the branches of each are.
PLACES: dict[Runtime, tuple[str, str]] = {
    "engine": ("docker", "releases"),
    "containerd": ("runtimes", "containerd"),
    "runc": ("runtimes", "runc"),
}
#: How people call them.
NAMES: dict[Runtime, str] = {"engine": "Docker Engine", "containerd": "containerd", "runc": "runc"}


@dataclass(frozen=True)
class RuntimeBranch:
    """One branch (``25.0``, ``29``). ``end_of_life`` is None where it has not been said, ``latest`` where not known."""

    runtime: Runtime
    id: str
    latest: Version | None
    end_of_life: str | None
    long_term: bool
    note: str
    provenance: Provenance = field(compare=False, repr=False)

    @property
    def version(self) -> Version:
        """The branch, to be compared."""
        return release(self.id)

    def ended(self, today: date) -> bool:
        """Whether it gets no more fixes, not even of weaknesses. A branch whose end is not known has not ended."""
        return self.end_of_life is not None and today > last_day(self.end_of_life)


class Runtimes:
    """All branches of a catalogue, newest first."""

    def __init__(self, files: Files) -> None:
        self.branches = {name: _branches(name, files.section(*place)) for name, place in PLACES.items()}
        features = files.section("runtimes", "features")
        self.cdi_0_7 = {one["component"]: release(one["since"]) for one in features if "cdi" in one.id}

    def branch_of(self, runtime: Runtime, version: Version) -> RuntimeBranch | None:
        """The branch of a version. None for one that the catalogue does not have."""
        return next((one for one in self.branches[runtime] if version.begins_with(one.version)), None)

    def find(self, runtime: Runtime, text: str) -> RuntimeBranch:
        """The branch of a version or branch. Raises InputError where there is none."""
        found = self.branch_of(runtime, release(text))
        if found is None:
            known = ", ".join(one.id for one in self.branches[runtime])
            raise InputError(f"there is no {NAMES[runtime]} {text} in the catalogue, which has {known}")
        return found


def _branches(runtime: Runtime, entries: tuple[Entry, ...]) -> tuple[RuntimeBranch, ...]:
    found = [
        RuntimeBranch(
            runtime,
            entry.id,
            release(entry["latest"]) if "latest" in entry.fields else None,
            entry.get("end_of_life"),
            bool(entry.get("long_term")),
            entry.get("note", ""),
            entry.provenance,
        )
        for entry in entries
    ]
    return tuple(sorted(found, key=lambda one: one.version, reverse=True))
