"""Known weaknesses of the engine, runc, containerd and the container toolkit, and which versions have the fixes.

Data in ``data/advisories.yaml``. Versions are upstream's: a distribution fixes without raising them, so its packages
are judged by their own revision. Those of the driver are :class:`fleet.catalogue.drivers.SecurityFix`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Literal

from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.catalogue.versions import Version, release
from fleet.core.errors import InputError

Component = Literal["engine", "runc", "containerd", "container_toolkit"]
#: Where alone a weakness is there: in builds of images, on nodes of Kubernetes, where it is not Docker that runs the
#: containers, where CDI is not used.
Exposure = Literal["builds", "kubernetes", "not_docker", "not_cdi"]


@dataclass(frozen=True)
class Advisory:
    """One weakness. ``fixed_in`` holds the first fixed version of each branch that got a fix, oldest first.

    Releases before ``first_affected`` never had it. ``exposure`` is None where it is there for everybody who runs the
    component.
    """

    id: str
    component: Component
    fixed_in: tuple[Version, ...]
    first_affected: Version | None
    cvss: float | None
    exposure: Exposure | None
    note: str
    provenance: Provenance = field(compare=False, repr=False)

    @property
    def sure(self) -> bool:
        """Whether all branches that have the fix were found; where not, one that is not named may have it too."""
        return self.provenance.vouches("fixed_in")

    def fixed(self, version: Version) -> bool:
        """Whether a version is free of it: older than it, past the fix of its own branch, or past the newest fix."""
        if version >= self.fixed_in[-1] or (self.first_affected and version < self.first_affected):
            return True
        return any(
            version.begins_with(_branch(one)) and version >= one
            for one in self.fixed_in
            if len(one.numbers) > 2
        )

    def fix_for(self, version: Version) -> Version:
        """The smallest step to a fix: that of the version's own branch, else the next above."""
        own = [one for one in self.fixed_in if len(one.numbers) > 2 and version.begins_with(_branch(one))]
        above = [one for one in self.fixed_in if one > version]
        return (own or above or [self.fixed_in[-1]])[0]


class Advisories:
    """All weaknesses of a catalogue."""

    def __init__(self, files: Files) -> None:
        self.all = tuple(map(_advisory, files.section("advisories", "advisories")))

    def of(self, component: Component) -> tuple[Advisory, ...]:
        """Those of one component."""
        return tuple(one for one in self.all if one.component == component)

    def lacking(self, component: Component, version: Version) -> tuple[Advisory, ...]:
        """Those whose fix an upstream version of a component does not have, as far as is known.

        One that is not :attr:`Advisory.sure` may be fixed there all the same.
        """
        return tuple(one for one in self.of(component) if not one.fixed(version))

    def find(self, text: str) -> Advisory:
        """The one of this number, in any case. Raises InputError with near ones."""
        found = next((one for one in self.all if one.id.lower() == text.strip().lower()), None)
        if found is not None:
            return found
        near = difflib.get_close_matches(text.strip().upper(), [one.id for one in self.all])
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(
            f"there is no advisory {text} in the catalogue{hint}", remedy="fleet catalogue show advisory"
        )


def _advisory(entry: Entry) -> Advisory:
    return Advisory(
        entry.id,
        entry["component"],
        tuple(sorted(map(release, entry["fixed_in"]))),
        release(entry["first_affected"]) if "first_affected" in entry.fields else None,
        entry.get("cvss"),
        entry.get("exposure"),
        entry.get("note", ""),
        entry.provenance,
    )


def _branch(version: Version) -> Version:
    """The branch of a version: its first two numbers."""
    return release(".".join(version.text.split(".")[:2]))
