"""CUDA toolkits and the driver each needs. Data in ``data/cuda.yaml``.

A driver's number says nothing of the GPU: whether it knows the card is :meth:`fleet.catalogue.gpus.Gpu.support`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from fleet.catalogue.data_files import within
from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.catalogue.versions import Version, driver_version, release
from fleet.core.errors import InputError

#: ``native``: everything works. ``minor_version``: precompiled code for the GPU works, PTX of a newer toolkit
#: and features of a newer driver do not. ``too_old``: nothing does, but for forward compatibility packages.
Fit = Literal["native", "minor_version", "too_old"]


@dataclass(frozen=True)
class Toolkit:
    """One release. ``native_driver`` is None where only the branch is known.

    ``native_basis``: ``table`` (NVIDIA's minimum), ``bundled`` (the driver in the runfile, perhaps more than
    needed), ``derived``. ``minor_version_floor`` is None before CUDA 11.1.
    """

    version: Version
    native_driver: Version | None
    native_basis: str
    branch: int
    bundled_driver: Version | None
    minor_version_floor: Version | None
    note: str
    provenance: Provenance
    floor_provenance: Provenance | None

    def fit(self, driver: Version) -> Fit:
        """How an image of this toolkit gets on with a driver."""
        enough = driver >= self.native_driver if self.native_driver else driver.major >= self.branch
        if enough or driver.major > self.branch:
            return "native"
        floor = self.minor_version_floor
        return "minor_version" if floor is not None and driver >= floor else "too_old"


@dataclass(frozen=True)
class ForwardCompatibility:
    """A forward compatibility package and the branches of the driver it may be laid over.

    Only for data centre GPUs; NVIDIA's table has new feature branches that the rule beside it excludes.
    """

    cuda: str
    package: str
    base_branches: tuple[int, ...]
    provenance: Provenance


class Cuda:
    """All toolkits of a catalogue, oldest first."""

    def __init__(self, files: Files) -> None:
        majors = {entry.id: entry for entry in files.section("cuda", "majors")}
        toolkits = (_toolkit(entry, majors) for entry in files.section("cuda", "toolkits"))
        self.all = tuple(sorted(toolkits, key=lambda toolkit: toolkit.version))
        self.compute_capabilities = {
            entry.id: (entry.get("first_cuda"), entry.get("last_cuda"))
            for entry in files.section("cuda", "compute_capabilities")
        }
        self.forward = tuple(map(_forward, files.section("cuda", "forward_compatibility")))

    def toolkit(self, text: str) -> Toolkit | None:
        """A release (12.8.1); for a minor (12.8), whose update is not known, its newest of NVIDIA's table."""
        version = release(text)
        if len(version.numbers) == 1:
            return None
        fitting = [one for one in self.all if one.version.begins_with(version)]
        exact = [one for one in fitting if one.version.text == text]
        sure = [one for one in fitting if one.native_basis == "table"] if len(version.numbers) == 2 else []
        found = exact or sure or fitting
        return found[-1] if found else None

    def first_of(self, text: str) -> Toolkit | None:
        """The first release of a minor (12.8). Its driver is enough for all of the minor: the interface of the driver
        and the version of PTX change with the minor alone, though NVIDIA's table names a newer driver for updates."""
        version = release(text)
        minor = [one for one in self.all if one.version.numbers[:2] == version.numbers[:2]]
        return minor[0] if len(version.numbers) > 1 and minor else None

    def compiles(self, compute_capability: str, cuda: str) -> bool | None:
        """Whether the compiler of a minor (12.8) makes code for a GPU; None for one that the catalogue lacks."""
        span = self.compute_capabilities.get(compute_capability)
        return None if span is None else within(cuda, *span)

    def forward_package(self, cuda: str, branch: int) -> ForwardCompatibility | None:
        """The package that lets drivers of ``branch`` run a toolkit (its minor, 13.0), if there is one."""
        return next((one for one in self.forward if one.cuda == cuda and branch in one.base_branches), None)

    def find(self, text: str) -> Toolkit:
        """As :meth:`toolkit`. Raises InputError with near versions where there is none."""
        found = self.toolkit(text)
        if found is not None:
            return found
        known = [one.version.text for one in self.all]
        near = [one for one in known if one.startswith(f"{text}.")][-3:] or difflib.get_close_matches(
            text, known
        )
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(
            f"there is no CUDA {text} in the catalogue{hint}", remedy="fleet catalogue show cuda"
        )


def _toolkit(entry: Entry, majors: dict[str, Entry]) -> Toolkit:
    version = release(entry.id)
    major = majors.get(str(version.major))
    start = major.get("minor_version_from") if major else None
    covered = major if start is not None and version >= release(start) else None
    return Toolkit(
        version=version,
        native_driver=_version(entry.get("native_driver")),
        native_basis=entry.get("native_basis", ""),
        branch=entry["branch"],
        bundled_driver=_version(entry.get("bundled_driver")),
        minor_version_floor=_version(covered.get("minor_version_floor")) if covered else None,
        note=entry.get("note", ""),
        provenance=entry.provenance,
        floor_provenance=covered.provenance if covered else None,
    )


def _forward(entry: Entry) -> ForwardCompatibility:
    return ForwardCompatibility(entry.id, entry["package"], tuple(entry["base_branches"]), entry.provenance)


def _version(text: str | None) -> Version | None:
    return driver_version(text) if text is not None else None
