"""NVSwitch: which PCI devices betray one, and what a system with it needs. Data in ``data/fabric.yaml``.

Whether a GPU's boards have NVSwitch at all is :attr:`fleet.catalogue.gpus.Gpu.nvswitch`; the names of packages
are in :class:`fleet.catalogue.operating_systems.PackageFamily`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.catalogue.entries import Entry, Files, Provenance
from fleet.catalogue.gpus import Gpu


@dataclass(frozen=True)
class FabricNeeds:
    """What must run beside the driver, by the names its makers use. ``exact``: of the driver's very version."""

    id: str
    needs: tuple[str, ...]
    exact: bool
    note: str
    provenance: Provenance


def nvswitch_devices(files: Files | None = None) -> dict[str, str]:
    """PCI device id (of vendor 10de) -> name of the switch."""
    return {entry.id: str(entry["name"]) for entry in (files or Files()).section("fabric", "nvswitches")}


def fabric_needs(gpu: Gpu | None, nvswitch_found: bool, files: Files | None = None) -> FabricNeeds:
    """What a system of this GPU needs. ``nvswitch_found``: a switch is among its PCI devices; of a GPU that is
    not known (None) nothing else tells."""
    if gpu is None:
        kind = "nvswitch" if nvswitch_found else "none"
    elif gpu.nvswitch == "external":
        kind = "external"
    elif gpu.nvswitch == "always":
        kind = "nvlink_5"
    else:
        kind = "nvswitch" if gpu.nvswitch == "some" and nvswitch_found else "none"
    return next(_needs(entry) for entry in (files or Files()).section("fabric", "needs") if entry.id == kind)


def _needs(entry: Entry) -> FabricNeeds:
    return FabricNeeds(
        entry.id,
        tuple(entry["needs"]),
        entry.get("version_match") == "exact",
        entry.get("note", ""),
        entry.provenance,
    )
