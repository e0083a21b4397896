"""The GPUs of a host as the catalogue knows them, and which drivers serve them all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from fleet.audit.facts import Facts, fact
from fleet.catalogue.catalogue import Catalogue, load
from fleet.catalogue.fabric import FabricNeeds, fabric_needs
from fleet.catalogue.gpus import Gpu, Gpus
from fleet.catalogue.versions import Version, driver_version

HANDED_ON = "vfio-pci"  # the driver of a card that belongs to a virtual machine
#: A branch of the driver and a flavour of its kernel modules.
Choice = tuple[int, str]


@dataclass(frozen=True)
class HostGpu:
    """One product in a host. ``known`` is None where the catalogue does not have it."""

    addresses: tuple[str, ...]
    device: str
    known: Gpu | None

    @property
    def words(self) -> str:
        """``GTX 1080 Ti (0000:1b:00.0)``, with the number of further ones."""
        more = f" and {len(self.addresses) - 1} more" if len(self.addresses) > 1 else ""
        return (
            f"{self.known.name if self.known else f'the GPU 10de:{self.device}'} ({self.addresses[0]}{more})"
        )


def own_gpus(facts: Facts) -> list[Mapping[str, Any]]:
    """The host's GPUs of NVIDIA, without those that are handed on to virtual machines."""
    return [gpu for gpu in fact(facts, "gpus") or [] if gpu.get("driver") != HANDED_ON]


def has_gpus(facts: Facts) -> bool:
    """Whether there are GPUs of NVIDIA for this host itself, as far as is known."""
    return bool(own_gpus(facts))


def host_gpus(facts: Facts, catalogue: Catalogue | None = None) -> list[HostGpu]:
    """The products in a host that are its own to use, in order of their first PCI address.

    Here and below: by the shipped catalogue where none is given.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for gpu in own_gpus(facts):
        found.setdefault(pci_ids(gpu), []).append(str(gpu.get("address")))
    if not found:
        return []
    known = (catalogue or load()).gpus
    return [HostGpu(tuple(places), ids[0], known.by_pci(*ids)) for ids, places in found.items()]


def catalogued(gpu: Mapping[str, Any], catalogue: Gpus | None = None) -> Gpu | None:
    """What the catalogue knows of a GPU of facts or of a benchmark's record: by its PCI ids, never by its name.

    None for one that has no ids, or that the catalogue lacks.
    """
    ids = pci_ids(gpu)
    return (catalogue or load().gpus).by_pci(*ids) if ids[0] else None


def pci_ids(gpu: Mapping[str, Any]) -> tuple[str, str, str]:
    """Device, subsystem vendor and subsystem of a GPU, as the catalogue asks for them; "" where not told.

    A benchmark's record has vendor and subsystem in one: ``10de:1839``.
    """
    vendor, _, subsystem = str(gpu.get("subsystem_id") or "").rpartition(":")
    return str(gpu.get("device_id") or ""), vendor or str(gpu.get("subsystem_vendor_id") or ""), subsystem


@cache
def newest_of(branch: int) -> Version:
    """A version above every one of a branch, for asking whether any of them would do."""
    return driver_version(f"{branch}.999")


def choices(gpu: Gpu, catalogue: Catalogue | None = None) -> frozenset[Choice]:
    """Every branch and flavour of the catalogue that serves a GPU."""
    return frozenset(
        (branch.number, flavour)
        for branch in (catalogue or load()).drivers.all
        if gpu.support(newest_of(branch.number)) not in ("too_old", "dropped")
        for flavour in branch.kernel_modules
        if flavour_fits(gpu, flavour)
    )


def flavour_fits(gpu: Gpu, flavour: str) -> bool:
    """Whether a GPU runs with kernel modules of a flavour."""
    return gpu.open_kernel_modules in (
        ("required", "possible") if flavour == "open" else ("possible", "impossible")
    )


def common(gpus: Iterable[HostGpu], catalogue: Catalogue | None = None) -> frozenset[Choice]:
    """What serves all GPUs of the host that the catalogue knows."""
    sets = [choices(gpu.known, catalogue) for gpu in gpus if gpu.known is not None]
    return frozenset.intersection(*sets) if sets else frozenset()


def at_odds(gpus: Iterable[HostGpu], catalogue: Catalogue | None = None) -> list[HostGpu]:
    """Two GPUs that no driver serves together; all known ones where only the whole set has none. Else empty."""
    known = [gpu for gpu in gpus if gpu.known is not None]
    if len(known) < 2 or common(known, catalogue):
        return []
    pair = next((pair for pair in combinations(known, 2) if not common(pair, catalogue)), None)
    return list(pair) if pair else known


def best_branch(
    gpus: Iterable[HostGpu], flavour: str = "auto", catalogue: Catalogue | None = None
) -> int | None:
    """The newest long term or production branch that serves every GPU; None where there is none."""
    lasting = {branch.number for branch in (catalogue or load()).drivers.all if branch.type != "new_feature"}
    fitting = [
        number for number, one in common(gpus, catalogue) if number in lasting and flavour in ("auto", one)
    ]
    return max(fitting, default=None)


def fabric_manager_needs(facts: Facts) -> FabricNeeds | None:
    """What this host's GPUs need beside the driver, where that is a fabric manager on the host itself."""
    return fabric_manager_for((gpu.known for gpu in host_gpus(facts)), bool(fact(facts, "nvswitches")))


def fabric_manager_for(
    gpus: Iterable[Gpu | None], switches: bool, catalogue: Catalogue | None = None
) -> FabricNeeds | None:
    """The same, of GPUs that the catalogue knows. ``switches``: NVSwitches are among the host's PCI devices."""
    for gpu in gpus:
        files = catalogue.files if catalogue is not None else None
        needs = fabric_needs(gpu, switches, files) if gpu is not None else None
        if needs is not None and needs.exact and "fabric_manager" in needs.needs:
            return needs
    return None


def served_by(gpu: Gpu) -> str:
    """``branches 570 to 580, open modules only``: what serves a product, in words."""
    first, last = gpu.architecture.first_branch, gpu.last_branch
    text = (
        f"branches {first} to {last}"
        if first and last
        else f"up to branch {last}"
        if last
        else f"branch {first} and newer"
    )
    only = {"required": ", open modules only", "impossible": ", proprietary modules only"}
    return text + only.get(gpu.open_kernel_modules or "", "")
