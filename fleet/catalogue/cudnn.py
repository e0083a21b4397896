"""Which GPUs a cuDNN has code for. Data in ``data/cudnn.yaml``.

torch brings its own cuDNN: a GPU in the arch list of a build may still be too old for the cuDNN beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleet.catalogue.data_files import within
from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.catalogue.versions import release
from fleet.core.errors import InputError


@dataclass(frozen=True)
class CudnnSupport:
    """A span of releases, both ends included (None: no bound), and the oldest compute capability they serve."""

    id: str
    first: str
    last: str | None
    min_compute_capability: str
    note: str
    provenance: Provenance = field(compare=False, repr=False)

    def serves(self, compute_capability: str) -> bool:
        """Whether a GPU is not too old for it. That it is not too new is for the build of torch to say."""
        return release(compute_capability) >= release(self.min_compute_capability)


class Cudnn:
    """All spans of a catalogue, oldest first. Releases between them are not known."""

    def __init__(self, files: Files) -> None:
        spans = map(_span, files.section("cudnn", "releases"))
        self.all = tuple(sorted(spans, key=lambda one: release(one.first)))

    def support(self, version: str) -> CudnnSupport | None:
        """What is known of a release (9.7.1.26). None where the catalogue does not cover it."""
        wanted = release(version).text
        return next((one for one in self.all if within(wanted, one.first, one.last)), None)

    def find(self, text: str) -> CudnnSupport:
        """As :meth:`support`. Raises InputError where there is none."""
        found = next((one for one in self.all if one.id == text), None) or self.support(text)
        if found is None:
            spans = ", ".join(f"{one.first} to {one.last or 'the newest'}" for one in self.all)
            raise InputError(
                f"there is no cuDNN {text} in the catalogue, which has {spans}",
                remedy="fleet catalogue show cudnn",
            )
        return found


def _span(entry: Entry) -> CudnnSupport:
    return CudnnSupport(
        entry.id,
        entry["first"],
        entry.get("last"),
        entry["min_compute_capability"],
        entry.get("note", ""),
        entry.provenance,
    )
