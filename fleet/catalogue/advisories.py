"""Known weaknesses of the engine, runc and the container toolkit, and which versions have the fixes.

Data under ``advisories`` of ``docker.yaml`` and ``container_toolkit.yaml``. Versions are upstream's: a
distribution fixes without raising them, so its packages are judged by their own revision.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.catalogue.versions import Version, release


@dataclass(frozen=True)
class Advisory:
    """One weakness. ``fixed_in`` holds the first fixed version of each branch that got a fix, oldest first."""

    id: str
    component: str
    fixed_in: tuple[Version, ...]
    cvss: float | None
    note: str
    provenance: Provenance

    def fixed(self, version: Version) -> bool:
        """Whether a version has the fix: it is past the fix of its own branch, or past the newest fix."""
        if version >= self.fixed_in[-1]:
            return True
        return any(
            version.begins_with(_branch(one)) and version >= one
            for one in self.fixed_in
            if len(one.numbers) > 2
        )


def engine_advisories(files: Files | None = None) -> tuple[Advisory, ...]:
    """Those of Docker Engine and runc (``component`` is ``engine`` or ``runc``)."""
    return _read(files, "docker", "engine")


def toolkit_advisories(files: Files | None = None) -> tuple[Advisory, ...]:
    """Those of the NVIDIA container toolkit."""
    return _read(files, "container_toolkit", "container_toolkit")


def _read(files: Files | None, file: str, component: str) -> tuple[Advisory, ...]:
    return tuple(_advisory(entry, component) for entry in (files or Files()).section(file, "advisories"))


def _advisory(entry: Entry, component: str) -> Advisory:
    return Advisory(
        entry.id,
        entry.get("component", component),
        tuple(sorted(map(release, entry["fixed_in"]))),
        entry.get("cvss"),
        entry.get("note", ""),
        entry.provenance,
    )


def _branch(version: Version) -> Version:
    """The branch of a version: its first two numbers."""
    text = ".".join(version.text.split(".")[:2])
    return release(text)
