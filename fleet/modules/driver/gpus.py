"""Which drivers serve the GPUs of a host: flavour of the kernel modules, branch, version. Pure.

GPUs are known by their PCI ids (:mod:`fleet.catalogue.gpus`), never by a name. What the packages of the answer
are is :mod:`fleet.modules.driver.packages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.audit.facts import fact
from fleet.audit.gpus import catalogued, own_gpus
from fleet.catalogue.catalogue import load as load_catalogue
from fleet.catalogue.driver_packages import driver_repository
from fleet.catalogue.drivers import Branch
from fleet.catalogue.fabric import FabricNeeds, fabric_needs
from fleet.catalogue.gpus import Gpu
from fleet.catalogue.versions import Version
from fleet.modules.base import Facts

OPEN = "open"
PROPRIETARY = "proprietary"


class Refused(Exception):
    """This driver cannot be had on this host: ``what`` is wrong, and what to do (``remedy``)."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


@dataclass(frozen=True)
class Card:
    """One GPU of the host; ``gpu`` is what the catalogue knows of it, or None."""

    address: str
    device: str
    gpu: Gpu | None

    def __str__(self) -> str:
        name = self.gpu.name if self.gpu is not None else "an unknown GPU"
        return f"{name} (10de:{self.device} at {self.address})"


def cards(facts: Facts) -> list[Card]:
    """The host's GPUs, without those that are handed on to virtual machines."""
    return [Card(str(one["address"]), str(one["device_id"]), catalogued(one)) for one in own_gpus(facts)]


def refuse_unknown(found: Sequence[Card], *, flavour: str, pinned: bool) -> None:
    """A card that the catalogue does not know is the operator's to answer for: flavour and version named."""
    stranger = next((card for card in found if _modules(card) is None), None)
    if stranger is not None and not (flavour != "auto" and pinned):
        raise Refused(
            f"{stranger} is not in the catalogue, so which driver serves it is not known",
            "name version (or branch) and modules for this host, or a newer fleet may know the GPU",
        )


def flavours(found: Sequence[Card], asked: str) -> tuple[str, ...]:
    """The flavours of the kernel modules that serve all cards. Raises Refused where there is none."""
    needs_open = next((card for card in found if _modules(card) == "required"), None)
    never_open = next((card for card in found if _modules(card) == "impossible"), None)
    if needs_open is not None and never_open is not None:
        raise Refused(
            f"no driver serves both {needs_open}, which needs the open kernel modules, and {never_open}, "
            "which only the proprietary ones serve",
            "put the cards into different hosts, or hand one kind on to virtual machines (vfio-pci)",
        )
    if asked == OPEN and never_open is not None:
        raise Refused(f"the open kernel modules do not serve {never_open}", "modules: proprietary (or auto)")
    if asked == PROPRIETARY and needs_open is not None:
        raise Refused(f"the proprietary kernel modules do not serve {needs_open}", "modules: open (or auto)")
    if asked != "auto":
        return (asked,)
    if needs_open is not None:
        return (OPEN,)
    return (PROPRIETARY,) if never_open is not None else (OPEN, PROPRIETARY)


def flavour_of(branch: Branch, permitted: Sequence[str], kept: str | None) -> str:
    """The flavour to install: the one that is there where it may stay, else what NVIDIA installs by default.

    Raises Refused where the branch has none of those permitted.
    """
    usable = [one for one in permitted if one in branch.kernel_modules]
    if not usable:
        raise Refused(
            f"branch {branch.number} has no {' or '.join(permitted)} kernel modules",
            "choose a branch that has: fleet catalogue show driver",
        )
    if kept in usable:
        return str(kept)
    default = OPEN if branch.number >= driver_repository().open_modules_since else PROPRIETARY
    return default if default in usable else usable[0]


def refuse_unserved(found: Sequence[Card], version: Version) -> None:
    """Raises Refused where a driver's branch does not know one of the cards, or not any more."""
    for card in found:
        if card.gpu is None:
            continue
        support = card.gpu.support(version)
        if support == "dropped":
            raise Refused(
                f"driver {version} does not serve {card}: the last branch that does is {card.gpu.last_branch}",
                f"choose a driver up to branch {card.gpu.last_branch}, or leave it to auto",
            )
        if support == "too_old":
            first = card.gpu.architecture.first_branch
            raise Refused(
                f"driver {version} does not serve {card}: the first branch that does is {first}",
                f"choose a driver from branch {first} on, or leave it to auto",
            )


def not_listed(found: Iterable[Card], version: Version) -> list[Card]:
    """Cards whose architecture a driver knows, but not the product: it may run, NVIDIA does not support it."""
    return [card for card in found if card.gpu is not None and card.gpu.support(version) == "not_listed"]


def branches_for(found: Sequence[Card], permitted: Sequence[str]) -> list[Branch]:
    """Long-term and production branches that serve every card, newest first. Raises Refused for none."""
    lasting = [one for one in reversed(load_catalogue().drivers.all) if one.type != "new_feature"]
    fitting = [
        branch
        for branch in lasting
        if set(permitted) & set(branch.kernel_modules)
        and all(card.gpu is not None and _serves(branch, card.gpu) for card in found)
    ]
    if fitting:
        return fitting
    known = [card for card in found if card.gpu is not None]
    oldest = min(known, key=lambda card: _last(card.gpu))
    newest = max(known, key=lambda card: _first(card.gpu))
    if oldest.device == newest.device:
        raise Refused(
            f"no long-term or production branch of the driver serves {oldest}",
            "name the branch or version yourself: fleet catalogue show gpu",
        )
    raise Refused(
        f"no branch of the driver serves both {oldest}, whose last one is {_last(oldest.gpu)}, and {newest}, "
        f"whose first one is {_first(newest.gpu)}",
        "put the cards into different hosts, or hand one kind on to virtual machines (vfio-pci)",
    )


def fabric(found: Iterable[Card], facts: Facts) -> list[FabricNeeds]:
    """What the cards' links need beside the driver, each kind once."""
    switches = bool(fact(facts, "nvswitches"))
    needs: dict[str, FabricNeeds] = {}
    for card in found:
        one = fabric_needs(card.gpu, switches)
        if one.needs:
            needs[one.id] = one
    return [needs[name] for name in sorted(needs)]


def _modules(card: Card) -> str | None:
    return card.gpu.open_kernel_modules if card.gpu is not None else None


def _serves(branch: Branch, gpu: Gpu) -> bool:
    return gpu.support(branch.latest) in ("supported", "unknown")


def _last(gpu: Gpu | None) -> int:
    return gpu.last_branch if gpu is not None and gpu.last_branch is not None else 9999


def _first(gpu: Gpu | None) -> int:
    first = (gpu.first_branch or gpu.architecture.first_branch) if gpu is not None else None
    return first or 0
