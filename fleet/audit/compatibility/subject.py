"""What the compatibility rules know of a host: frozen and hashable, so that hosts that are alike are judged once.

Three things are kept apart. None: the host was asked and did not say (:meth:`Subject.why`). ``NOTHING``: it was
asked, and there is none. ``ABSENT``: nobody asked, as in an offline question that does not name a container toolkit;
rules that need it are silent. A subject comes from facts (:func:`subject_of`) or from a question
(:meth:`Subject.from_question`); :mod:`.observe` has how each value is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cached_property
from typing import Literal

from fleet.audit.facts import Facts
from fleet.audit.gpus import HostGpu
from fleet.catalogue.catalogue import Catalogue, load
from fleet.catalogue.gpus import Gpu
from fleet.catalogue.versions import Version


class Missing(Enum):
    """Why there is no value, where it is not that it could not be read (None)."""

    ABSENT = "not asked"
    NOTHING = "there is none"


ABSENT: Literal[Missing.ABSENT] = Missing.ABSENT
NOTHING: Literal[Missing.NOTHING] = Missing.NOTHING
Known = Version | Missing | None


@dataclass(frozen=True)
class SubjectGpu:
    """One product in a host. ``id`` is the catalogue's, None for one it does not have; no addresses: a question.

    ``known`` is the product as the subject's catalogue has it.
    """

    id: str | None
    device: str
    addresses: tuple[str, ...] = ()
    known: Gpu | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, known: Gpu | None, device: str, addresses: tuple[str, ...] = ()) -> SubjectGpu:
        """A product by what the catalogue has; None: it has none."""
        return cls(known.id if known is not None else None, device, addresses, known)

    @property
    def name(self) -> str:
        """As a sentence calls it."""
        return self.known.name if self.known is not None else f"the GPU 10de:{self.device}"

    @property
    def places(self) -> tuple[str | None, ...]:
        """The address of every GPU of this product; one that has none where a question named it."""
        return self.addresses or (None,)


@dataclass(frozen=True)
class Program:
    """A program whose weaknesses are known by upstream's versions: the engine, runc.

    ``distribution``: a distribution built it, and fixes without raising upstream's version. ``text``: as the host
    says it.
    """

    version: Version
    text: str
    distribution: bool = False


@dataclass(frozen=True)
class Subject:
    """One host, or one question. Absent unless said otherwise; see the module for None and ``NOTHING``.

    ``driver`` is the one in memory, ``installed`` one that is on disk while none is loaded; ``modules`` open or
    proprietary. ``disk`` and ``library`` are its other parts, ``branches`` those of its packages, ``held`` and
    ``loose`` its packages on hold and not. ``next_kernel``: one that boots next without the driver's modules.
    ``operator``, ``podman``, ``kubelet``: the evidence. ``cdi``: the drivers that the specifications for GPUs were
    written for. ``hook``: the program by which ``--gpus`` works without CDI. ``default_runtime``: the engine's.
    ``catalogue``: what all of it is judged by, and by which its GPUs are known; two subjects are alike only by one.
    """

    gpus: tuple[SubjectGpu, ...] | Missing | None = ABSENT
    architecture: str | Missing | None = ABSENT
    nvswitches: bool | Missing | None = ABSENT
    driver: Known = ABSENT
    installed: Version | None = None
    modules: str | Missing | None = ABSENT
    disk: Version | None = None
    library: Version | None = None
    branches: tuple[int, ...] = ()
    held: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    next_kernel: str | None = None
    next_kernel_headers: bool = False
    operator: str | None = None
    fabric_manager: Known = ABSENT
    fabric_manager_active: bool | None = None
    os: tuple[str, str] | Missing | None = ABSENT
    engine: Program | Missing | None = ABSENT
    engine_cdi: bool | None = None
    default_runtime: str | None = None
    runc: Program | Missing | None = ABSENT
    toolkit: Known = ABSENT
    toolkit_mode: str | None = None
    hook: bool | Missing | None = ABSENT
    legacy: tuple[str, ...] = ()
    cdi: tuple[Version, ...] | Missing = ABSENT
    podman: str | None = None
    podman_docker: bool = False
    kubelet: str | None = None
    containerd: Program | None = None
    no_gpu_direct: bool = False
    peermem: Version | None = None
    acs_redirect: tuple[str, ...] = ()
    iommu_translating: bool = False
    reasons: tuple[tuple[str, str], ...] = ()
    catalogue: Catalogue = field(default_factory=load, repr=False)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Once for each: hosts that are alike share a subject, and verdicts are looked up by it."""
        return hash(tuple(getattr(self, one.name) for one in fields(self)))

    def why(self, path: str) -> str:
        """Why a value is None."""
        return dict(self.reasons).get(path, "the host did not say")

    @property
    def products(self) -> tuple[SubjectGpu, ...]:
        """The products in the host; empty where they are not known, or not asked for."""
        return self.gpus if isinstance(self.gpus, tuple) else ()

    @cached_property
    def host_gpus(self) -> list[HostGpu]:
        """The products as :mod:`fleet.audit.gpus` asks for them."""
        return [HostGpu(gpu.addresses, gpu.device, gpu.known) for gpu in self.products]

    def known_gpus(self) -> Iterator[tuple[SubjectGpu, Gpu]]:
        """The products that the catalogue has."""
        for gpu in self.products:
            if gpu.known is not None:
                yield gpu, gpu.known

    @property
    def has_gpus(self) -> bool:
        """Whether there are GPUs for this host itself, as far as is known."""
        return bool(self.products)

    def with_driver(self, version: Version, modules: str | None = None) -> Subject:
        """The host with another driver, all its parts of one version: what goes with it is changed as well."""
        return replace(
            self,
            driver=version,
            installed=None,
            modules=modules or (ABSENT if self.driver in (NOTHING, None) else self.modules),
            disk=version if self.disk is not None else None,
            library=version if self.library is not None else None,
            branches=(version.major,) if self.branches else (),
            next_kernel=None,
            fabric_manager=version if isinstance(self.fabric_manager, Version) else self.fabric_manager,
            cdi=(version,) if isinstance(self.cdi, tuple) and self.cdi else self.cdi,
        )

    def with_toolkit(self, version: Version) -> Subject:
        """The host with another container toolkit, from its own repository."""
        hook = True if self.hook in (NOTHING, False) else self.hook
        return replace(self, toolkit=version, legacy=(), hook=hook)

    def with_engine(self, version: Version) -> Subject:
        """The host with another Docker Engine, of Docker's own packages."""
        return replace(self, engine=Program(version, version.text), engine_cdi=None, runc=ABSENT)

    @classmethod
    def from_question(
        cls,
        gpu: str | Sequence[str] = (),
        driver: str | None = None,
        modules: str | None = None,
        os: str | None = None,
        docker: str | None = None,
        toolkit: str | None = None,
        *,
        catalogue: Catalogue | None = None,
        **more: object,
    ) -> Subject:
        """What somebody asks about; see :func:`fleet.audit.compatibility.question.asked` for the rest.

        Raises InputError for a name or a version that is none.
        """
        from fleet.audit.compatibility.question import asked

        return asked(catalogue or load(), gpu, driver, modules, os, docker, toolkit, more)


def subject_of(facts: Facts, catalogue: Catalogue | None = None) -> Subject:
    """The host of a facts document, to be judged by a catalogue; the shipped one where none is given."""
    from fleet.audit.compatibility.observe import observed

    return observed(facts, catalogue or load())
