"""NVIDIA GPUs: by PCI ids, by name; what each needs of the driver. Data in ``data/gpus.yaml``.

A GPU is known by its PCI device id, and by the subsystem id where one device id covers several products
(A2 and A16); never by a part of its name. Which branches exist is :mod:`fleet.catalogue.drivers`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.catalogue.versions import Version, driver_version
from fleet.core.errors import InputError

OpenModules = Literal["required", "possible", "impossible"]
NvSwitch = Literal["never", "some", "always", "external"]

#: ``supported``; ``not_listed``: the driver knows the chip but not this product, so NVIDIA does not support it
#: there though it may load; ``too_old``: the driver does not know the architecture; ``dropped``: not any more.
#: ``unknown``: it knows the architecture, and from when on the product is listed is not known.
DriverSupport = Literal["supported", "not_listed", "too_old", "dropped", "unknown"]

#: GB/s of one PCIe lane one way, by generation, line coding taken off (8b/10b, then 128b/130b, then flits).
PCIE_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.984, 4: 1.969, 5: 3.938, 6: 7.563}

_PCI_ID = re.compile(r"(?P<device>[0-9a-f]{4})(:(?P<vendor>[0-9a-f]{4}):(?P<subsystem>[0-9a-f]{4}))?")
_WORDS = re.compile(r"[a-z0-9]+")
_MAKERS = re.compile(r"^(nvidia |tesla |geforce |quadro )+")


@dataclass(frozen=True)
class PciId:
    """A device id of vendor 10de, and (vendor, id) of the subsystem where the device id is not enough."""

    device: str
    subsystem_vendor: str | None = None
    subsystem: str | None = None

    def __str__(self) -> str:
        return f"{self.device}:{self.subsystem_vendor}:{self.subsystem}" if self.subsystem else self.device

    @classmethod
    def parse(cls, text: str) -> PciId:
        """``1eb8`` or ``25b6:10de:157e`` (hex, four digits each). Raises InputError for anything else."""
        match = _PCI_ID.fullmatch(text.lower()) if isinstance(text, str) else None
        if match is None:
            raise InputError(
                f"{text!r} is not DEVICE or DEVICE:SUBVENDOR:SUBSYSTEM, four hex digits each, as text"
            )
        return cls(match["device"], match["vendor"], match["subsystem"])


@dataclass(frozen=True)
class Architecture:
    """A family of GPUs, with the branches of the driver that know it (both included; None: no bound listed).

    ``fp32_lanes_per_sm`` is by compute capability.
    """

    id: str
    name: str
    compute_capabilities: tuple[str, ...]
    first_branch: int | None
    last_branch: int | None
    open_kernel_modules: OpenModules
    fp32_lanes_per_sm: Mapping[str, int]
    provenance: Provenance

    def known_to(self, branch: int) -> bool:
        """Whether drivers of this branch know the architecture."""
        return (self.first_branch or 0) <= branch and (self.last_branch is None or branch <= self.last_branch)


@dataclass(frozen=True)
class NvLink:
    """NVLink of one GPU: both directions together. ``bridge``: only where a bridge joins two cards."""

    generation: int
    gb_per_s: float
    bridge: bool
    c2c_gb_per_s: float | None

    @property
    def links(self) -> int | None:
        """How many links the board has: 12 of an H100 NVL, though its chip has 18. None where that is not whole.

        A link's rate by generation is NVIDIA's: 40, 50, 50, 50 and 100 GB/s, both directions together.
        """
        rate = {1: 40, 2: 50, 3: 50, 4: 50, 5: 100}.get(self.generation)
        return int(self.gb_per_s // rate) if rate and self.gb_per_s % rate == 0 else None


@dataclass(frozen=True)
class Mig:
    """MIG: the most instances, and the first driver that can."""

    instances: int
    min_driver: Version | None


@dataclass(frozen=True)
class Gpu:
    """One product. Memory as marketed (``memory_mib`` as NVML says it); ``peaks`` are dense TFLOPS (int8: TOPS).

    ``limits`` are what a benchmark must reach, in the same units; ``memory_bandwidth_gb_per_s`` may be among them,
    ``host_link_gb_per_s`` of the link at its full generation and width, and, where eight GPUs are joined by
    NVLink, ``peer_gb_per_s`` (one way) and ``all_reduce_gb_per_s`` (bus bandwidth of all eight).
    ``nvswitch``: in no system, in some, in all, or outside (on switch trays). ``min_driver`` is the recommended
    floor; ``first_listed`` the first that names the id. ``open_kernel_modules`` is None where the driver packages
    do not cover the GPU at all.
    """

    id: str
    name: str
    nvml_name: str
    pci: tuple[PciId, ...]
    architecture: Architecture
    compute_capability: str
    segment: str
    form_factor: str
    gpus_per_board: int
    memory_gb: float | None
    memory_mib: int | None
    memory_bandwidth_gb_per_s: float | None
    sm_count: int | None
    pcie_generation: int | None
    nvlink: NvLink | None
    nvswitch: NvSwitch
    mig: Mig | None
    peaks: Mapping[str, float]
    limits: Mapping[str, float]
    first_branch: int | None
    min_driver: Version | None
    first_listed: Version | None
    open_kernel_modules: OpenModules | None
    note: str
    provenance: Provenance

    @property
    def last_branch(self) -> int | None:
        """The last branch of the driver that supports it; None: every newer one so far."""
        return self.architecture.last_branch

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability as numbers: (8, 9)."""
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor)

    def support(self, driver: Version) -> DriverSupport:
        """What a driver makes of this GPU."""
        if self.last_branch is not None and driver.major > self.last_branch:
            return "dropped"
        if not self.architecture.known_to(driver.major):
            return "too_old"
        floor = self.first_listed or self.min_driver
        if floor is not None:
            return "supported" if driver >= floor else "not_listed"
        if self.first_branch is not None:
            return "supported" if driver.major >= self.first_branch else "not_listed"
        return "supported" if self.architecture.first_branch is None else "unknown"


class Gpus:
    """All GPUs of a catalogue."""

    def __init__(self, files: Files) -> None:
        self.architectures = {
            entry.id: _architecture(entry) for entry in files.section("gpus", "architectures")
        }
        self.all = tuple(_gpu(entry, self.architectures) for entry in files.section("gpus", "gpus"))

    def by_pci(self, device: str, subsystem_vendor: str = "", subsystem: str = "") -> Gpu | None:
        """The GPU with these ids (hex digits). None for an unknown one, or where only the subsystem would tell.

        An entry with the subsystem wins over one with the device id alone. Not every tool tells the subsystem's
        vendor: without it, that entry must be the only one with both ids.
        """
        exact = PciId(device.lower(), subsystem_vendor.lower() or None, subsystem.lower() or None)
        found = self._by_pci.get(exact)
        if found is None and exact.subsystem is not None and exact.subsystem_vendor is None:
            fitting = {
                gpu.id: gpu
                for pci, gpu in self._by_pci.items()
                if (pci.device, pci.subsystem) == (exact.device, exact.subsystem)
            }
            found = next(iter(fitting.values())) if len(fitting) == 1 else None
        return found or self._by_pci.get(PciId(exact.device))

    def candidates(self, device: str) -> tuple[Gpu, ...]:
        """Every GPU with this device id, whatever its subsystem."""
        return tuple(gpu for gpu in self.all if any(pci.device == device.lower() for pci in gpu.pci))

    def named(self, name: str) -> tuple[Gpu, ...]:
        """Every GPU of this name: NVML's or the marketing one, in any case, whole; "NVIDIA" may be left out."""
        return self._by_name.get(_plain(name), ())

    def find(self, text: str) -> Gpu:
        """The GPU with this id, PCI id or name. Raises InputError with near names, or with all that fit."""
        wanted = text.strip().lower()
        pci = _PCI_ID.fullmatch(wanted.removeprefix("10de:") if wanted.count(":") in (1, 3) else wanted)
        fitting = [gpu for gpu in self.all if gpu.id == wanted]
        if not fitting and pci is not None:
            found = self.by_pci(pci["device"], pci["vendor"] or "", pci["subsystem"] or "")
            fitting = [found] if found else list(self.candidates(pci["device"]))
        fitting = fitting or self._of_name(text)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise InputError(
                f"{text} may be {' or '.join(f'{one.id} ({one.name})' for one in fitting)}; name one by its id"
            )
        raise InputError(
            f"there is no GPU {text} in the catalogue{self._near(text)}", remedy="fleet catalogue show gpu"
        )

    def _of_name(self, text: str) -> list[Gpu]:
        """Those of this name. As NVML says it, it may be of several products; as it is sold, it is of one of them."""
        fitting = list(self.named(text))
        if len(fitting) > 1 and not text.strip().lower().startswith("nvidia "):
            return [gpu for gpu in fitting if _plain(gpu.name) == _plain(text)] or fitting
        return fitting

    def _near(self, text: str) -> str:
        wanted = _plain(text)
        ids = [
            gpu.id
            for gpu in self.all
            if _plain(gpu.name).startswith(wanted) or gpu.id.startswith(wanted) or _has_words(gpu, wanted)
        ]
        if not ids:
            names = {name: gpu.id for gpu in self.all for name in (gpu.id, _plain(gpu.name))}
            ids = [names[near] for near in difflib.get_close_matches(wanted, names, n=5, cutoff=0.5)]
        return f"; did you mean {' or '.join(list(dict.fromkeys(ids))[:5])}?" if ids else ""

    @cached_property
    def _by_pci(self) -> dict[PciId, Gpu]:
        return {pci: gpu for gpu in self.all for pci in gpu.pci}

    @cached_property
    def _by_name(self) -> dict[str, tuple[Gpu, ...]]:
        found: dict[str, tuple[Gpu, ...]] = {}
        for gpu in self.all:
            for name in {_plain(gpu.name), _plain(gpu.nvml_name)}:
                found[name] = (*found.get(name, ()), gpu)
        return found


def pcie_gb_per_s(generation: int, width: int) -> float | None:
    """GB/s one way, in theory, of a PCIe link; None for a generation that is not known here."""
    lane = PCIE_LANE_GB_PER_S.get(generation)
    return None if lane is None else round(lane * width, 2)


def _plain(name: str) -> str:
    """A name in lower case without the makers' words before it: drivers came to add "NVIDIA" at some time."""
    return _MAKERS.sub("", " ".join(name.lower().split()))


def _has_words(gpu: Gpu, wanted: str) -> bool:
    """Whether every word begins one of the GPU's: "h100 sxm" those of H100 SXM5 80GB."""
    own = _WORDS.findall(f"{gpu.id} {gpu.name} {gpu.nvml_name}".lower())
    words = _WORDS.findall(wanted)
    return bool(words) and all(any(one.startswith(word) for one in own) for word in words)


def _architecture(entry: Entry) -> Architecture:
    return Architecture(
        entry.id,
        entry["name"],
        tuple(entry["compute_capabilities"]),
        entry.get("first_branch"),
        entry.get("last_branch"),
        entry["open_kernel_modules"],
        entry.get("fp32_lanes_per_sm", {}),
        entry.provenance,
    )


def _gpu(entry: Entry, architectures: Mapping[str, Architecture]) -> Gpu:
    nvlink, mig = entry.get("nvlink"), entry.get("mig")
    return Gpu(
        id=entry.id,
        name=entry["name"],
        nvml_name=entry["nvml_name"],
        pci=tuple(map(PciId.parse, entry["pci"])),
        architecture=architectures[entry["architecture"]],
        compute_capability=entry["compute_capability"],
        segment=entry["segment"],
        form_factor=entry["form_factor"],
        gpus_per_board=entry.get("gpus_per_board", 1),
        memory_gb=entry.get("memory_gb"),
        memory_mib=entry.get("memory_mib"),
        memory_bandwidth_gb_per_s=entry.get("memory_bandwidth_gb_per_s"),
        sm_count=entry.get("sm_count"),
        pcie_generation=entry.get("pcie_generation"),
        nvlink=nvlink and _nvlink(nvlink),
        nvswitch=entry.get("nvswitch", "never"),
        mig=mig and Mig(mig["instances"], _version(mig.get("min_driver"))),
        peaks=entry.get("peaks", {}),
        limits=entry.get("limits", {}),
        first_branch=entry.get("first_branch"),
        min_driver=_version(entry.get("min_driver")),
        first_listed=_version(entry.get("first_listed")),
        open_kernel_modules=entry.get("open_kernel_modules"),
        note=entry.get("note", ""),
        provenance=entry.provenance,
    )


def _nvlink(raw: Mapping[str, float]) -> NvLink:
    return NvLink(int(raw["generation"]), raw["gb_per_s"], bool(raw.get("bridge")), raw.get("c2c_gb_per_s"))


def _version(text: str | None) -> Version | None:
    return driver_version(text) if text is not None else None


def architectures_of(architectures: Iterable[Architecture], branch: int) -> list[Architecture]:
    """The architectures that a branch of the driver knows, oldest first."""
    return [one for one in architectures if one.known_to(branch)]
