"""Branches of NVIDIA's Linux driver: kind, dates, versions, security fixes. Data in ``data/drivers.yaml``.

Versions are compared by :mod:`fleet.catalogue.versions`; which GPUs a branch knows is in
:mod:`fleet.catalogue.gpus`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import date
from typing import Literal

from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.catalogue.versions import Version, driver_version, first_day, last_day
from fleet.core.errors import InputError

BranchType = Literal["long_term", "production", "new_feature"]

#: ``superseded``: a new feature branch, which has no end of life, with a newer branch out.
Support = Literal["supported", "ended", "superseded", "unknown"]

TYPE_NAMES = {
    "long_term": "long term support branch",
    "production": "production branch",
    "new_feature": "new feature branch",
}


@dataclass(frozen=True)
class SecurityFix:
    """A bulletin, and the first version of this branch with its fixes."""

    version: Version
    date: str
    bulletin: str
    cves: int
    max_cvss: float


@dataclass(frozen=True)
class Branch:
    """One branch, such as 580. Dates are ``YYYY``, ``YYYY-MM`` or ``YYYY-MM-DD``, or None where not known.

    ``max_cuda`` is the newest toolkit it runs natively; ``kernel_modules`` the flavours it comes in;
    ``versions`` those known, oldest first; ``beta_series`` the start of its Vulkan developer betas.
    """

    number: int
    type: BranchType
    first_release: str | None
    end_of_life: str | None
    latest: Version
    max_cuda: str
    kernel_modules: tuple[str, ...]
    versions: tuple[Version, ...]
    beta_series: str | None
    security_fixes: tuple[SecurityFix, ...]
    note: str
    provenance: Provenance

    @property
    def security_floor(self) -> SecurityFix | None:
        """The newest bulletin this branch got a fix for; None where none is known."""
        return max(self.security_fixes, key=lambda fix: fix.version, default=None)

    def is_beta(self, version: Version) -> bool:
        """Whether a version is one of the Vulkan developer betas, which came out after their numbers."""
        return self.beta_series is not None and version.begins_with(driver_version(self.beta_series))


class Drivers:
    """All branches of a catalogue, oldest first."""

    def __init__(self, files: Files) -> None:
        branches = map(_branch, files.section("drivers", "branches"))
        self.all = tuple(sorted(branches, key=lambda branch: branch.number))

    def branch(self, number: int) -> Branch | None:
        """A branch by its number."""
        return next((branch for branch in self.all if branch.number == number), None)

    def branch_of(self, version: Version | str) -> Branch | None:
        """The branch of a version; None for one the catalogue does not have."""
        return self.branch((driver_version(version) if isinstance(version, str) else version).major)

    def version(self, text: str) -> Version:
        """A version that somebody names. Raises InputError for what is none, with the newest of its branch."""
        try:
            return driver_version(text)
        except InputError as error:
            number = text.partition(".")[0]
            branch = self.branch(int(number)) if number.isdecimal() else None
            if branch is None:
                raise
            raise InputError(
                f"{text!r} is not a driver version; did you mean {branch.latest}, the newest of branch {number}?"
            ) from error

    def support(self, branch: Branch, on: date) -> Support:
        """How NVIDIA stands to a branch on a day. A branch of no known end is not said to be supported."""
        if branch.end_of_life is not None:
            return "supported" if on <= last_day(branch.end_of_life) else "ended"
        if branch.type != "new_feature":
            return "unknown"
        newer = (one for one in self.all if one.number > branch.number and _is_out(one, on))
        return "superseded" if any(newer) else "supported"

    def unfixed(self, branch: Branch) -> tuple[str, ...]:
        """Bulletins that other branches got fixes for after this one's last: it stays without. Oldest first.

        Empty for a branch of which no fix is known at all: then nothing can be said.
        """
        last = branch.security_floor
        if last is None:
            return ()
        later = {
            (fix.date, fix.bulletin) for one in self.all for fix in one.security_fixes if fix.date > last.date
        }
        return tuple(bulletin for _, bulletin in sorted(later))

    def find(self, text: str) -> tuple[Branch, Version | None]:
        """A branch by its number (580) or by a version of it. Raises InputError with near ones."""
        version = None if text.isdecimal() else driver_version(text)
        branch = self.branch(version.major if version else int(text))
        if branch is not None:
            return branch, version
        known = [str(one.number) for one in self.all]
        near = difflib.get_close_matches(text.partition(".")[0], known, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(known)}"
        raise InputError(f"there is no driver branch {text.partition('.')[0]} in the catalogue{hint}")


def _is_out(branch: Branch, on: date) -> bool:
    return branch.first_release is None or first_day(branch.first_release) <= on


def _branch(entry: Entry) -> Branch:
    return Branch(
        number=int(entry.id),
        type=entry["type"],
        first_release=entry.get("first_release"),
        end_of_life=entry.get("end_of_life"),
        latest=driver_version(entry["latest"]),
        max_cuda=entry["max_cuda"],
        kernel_modules=tuple(entry["kernel_modules"]),
        versions=tuple(sorted(map(driver_version, entry.get("versions", ())))),
        beta_series=entry.get("beta_series"),
        security_fixes=tuple(
            SecurityFix(
                driver_version(fix["version"]), fix["date"], fix["bulletin"], fix["cves"], fix["max_cvss"]
            )
            for fix in entry.get("security_fixes", ())
        ),
        note=entry.get("note", ""),
        provenance=entry.provenance,
    )
