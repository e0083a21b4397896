"""Builds of PyTorch: what code each carries for which GPU. Data in ``data/torch.yaml``.

A build is a release of torch for one CUDA (its *variant*: ``cu128``). Which images hold which build is
:mod:`fleet.catalogue.images`; which driver a CUDA needs, :mod:`fleet.catalogue.cuda`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.catalogue.versions import Version, release
from fleet.core.errors import InputError

#: ``2.7.0``, ``2.7.0-cu128``, ``2.7.0+cu128`` as ``torch.__version__`` has it.
_BUILD = re.compile(r"(?P<torch>[0-9]+(\.[0-9]+){1,2})([-+](?P<variant>cu[0-9]{2,3}))?")


@dataclass(frozen=True)
class TorchBuild:
    """One build, as the wheels are. Architectures are compute capabilities: ``7.5``, ``12.0``.

    ``arch_list`` is of x86-64; ``arch_list_aarch64`` is empty where it is not known. ``ptx`` is the capability whose
    PTX is in it (``12.0`` is compute_120), None where there is none. ``cudnn`` and ``nccl`` are None where not known,
    ``triton`` also where there was none. ``wheel_glibc`` is the least that the wheels need of the host. ``status`` is
    that of the release matrix (``stable`` or ``experimental``); ``pypi_default``: what a plain pip install brings.
    ``cuda_release`` (12.8.1) is None where only the minor is known. ``entry``: the id in the catalogue.
    """

    torch: str
    variant: str
    cuda: str
    cuda_release: str | None
    arch_list: tuple[str, ...]
    arch_list_aarch64: tuple[str, ...]
    ptx: str | None
    ptx_aarch64: str | None
    cudnn: str | None
    nccl: str | None
    triton: str | None
    python: tuple[str, ...]
    wheel_glibc: str
    status: str
    pypi_default: bool
    note: str
    entry: str
    provenance: Provenance = field(compare=False, repr=False)

    @property
    def version(self) -> Version:
        """The release of torch, to be compared."""
        return release(self.torch)


class TorchBuilds:
    """All builds of a catalogue, by release and then by CUDA, oldest first."""

    def __init__(self, files: Files) -> None:
        builds = [build for entry in files.section("torch", "builds") for build in _builds(entry)]
        self.all = tuple(sorted(builds, key=lambda one: (release(one.torch), release(one.cuda))))

    def find(self, torch: str, variant: str) -> TorchBuild | None:
        """The build of a release (2.7.0) for a variant (cu128); None where the catalogue has none."""
        return self._by_name.get((torch, variant))

    def of(self, torch: str) -> tuple[TorchBuild, ...]:
        """All variants of a release, by CUDA; empty for a release that the catalogue does not have."""
        return tuple(one for one in self.all if one.torch == torch)

    def releases(self) -> tuple[str, ...]:
        """Every release of torch, oldest first."""
        return tuple(dict.fromkeys(one.torch for one in self.all))

    def named(self, text: str) -> TorchBuild:
        """The build called ``2.7.0+cu128`` or ``2.7.0-cu128``; of ``2.7.0`` the one that pip brings.

        Of a minor (``2.7``) its first release counts. Raises InputError with near names where there is none.
        """
        match = _BUILD.fullmatch(text.strip())
        if match is not None:
            fitting = [one for one in self.all if match["torch"] in (one.torch, one.torch.rpartition(".")[0])]
            if match["variant"]:
                fitting = [one for one in fitting if one.variant == match["variant"]]
            else:
                fitting = [one for one in fitting if one.pypi_default] or fitting
            if fitting:
                return fitting[0]
        raise InputError(
            f"there is no build of torch {text} in the catalogue{self._near(text)}",
            remedy="fleet catalogue show torch",
        )

    def _near(self, text: str) -> str:
        known = [f"{one.torch}-{one.variant}" for one in self.all]
        begin = re.split("[-+]", text)[0]
        near = [one for one in known if one.startswith(f"{begin}-")] or difflib.get_close_matches(text, known)
        return f"; did you mean {' or '.join(near[:3])}?" if near else ""

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], TorchBuild]:
        return {(one.torch, one.variant): one for one in self.all}


def variant_of(cuda: str) -> str:
    """How builds for a CUDA are called: 12.8 is ``cu128``."""
    return "cu" + "".join(cuda.split(".")[:2])


def _builds(entry: Entry) -> Iterator[TorchBuild]:
    """One for every release of torch that the entry covers."""
    for torch in entry["versions"]:
        yield TorchBuild(
            torch=torch,
            variant=entry["variant"],
            cuda=entry["cuda"],
            cuda_release=entry.get("cuda_release"),
            arch_list=tuple(entry["arch_list"]),
            arch_list_aarch64=tuple(entry.get("arch_list_aarch64", ())),
            ptx=entry.get("ptx"),
            ptx_aarch64=entry.get("ptx_aarch64"),
            cudnn=entry.get("cudnn"),
            nccl=entry.get("nccl"),
            triton=entry.get("triton", {}).get(torch),
            python=tuple(entry["python"]),
            wheel_glibc=entry["wheel_glibc"],
            status=entry["status"],
            pypi_default=bool(entry.get("pypi_default")),
            note=entry.get("note", ""),
            entry=entry.id,
            provenance=entry.provenance,
        )
