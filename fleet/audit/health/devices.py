"""The GPUs of ``facts.gpu_probe`` as health rules read them: which answer, what the catalogue knows of each.

A value that is null says nothing by itself: why it is null stands in the device's ``absent``. What a GPU does not
have is no fault, and what could not be read is not healthy: that is judged in one place, :mod:`.unknown`, from the
``NEEDS`` of every component.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.audit import gpus
from fleet.audit.facts import Facts, fact
from fleet.audit.gpus import own_gpus
from fleet.catalogue.gpus import Gpu

Device = Mapping[str, Any]


def devices(facts: Facts) -> list[Device]:
    """Every GPU that the probe was told of, also one that is lost."""
    return list(fact(facts, "gpu_probe.devices") or [])


def answering(facts: Facts) -> Iterator[tuple[Device, str]]:
    """The GPUs whose values were read, each with its address. Of others only their status is to be judged."""
    for device in devices(facts):
        if device.get("status") == "ok":
            yield device, str(device["address"])


def absent_reason(device: Device, path: str) -> str | None:
    """Why the value at ``path`` is null: its own entry in ``absent``, or that of a part it lies in."""
    absent = device.get("absent") or {}
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        entry = absent.get(".".join(parts[:length]))
        if entry is not None:
            return str(entry.get("reason"))
    return None


def catalogued(facts: Facts, device: Device) -> Gpu | None:
    """The product by its PCI ids, as NVML or else the bus gives them; None for one the catalogue lacks."""
    return gpus.catalogued(device if device.get("device_id") else on_bus(facts, device))


def on_bus(facts: Facts, device: Device) -> Mapping[str, Any]:
    """What PCI says of a GPU; empty where the bus does not name it."""
    return next((gpu for gpu in fact(facts, "gpus") or [] if gpu.get("address") == device.get("address")), {})


def measured(facts: Facts, device: Device) -> Mapping[str, Any]:
    """What was seen of this GPU while the last benchmark loaded it; empty where none did."""
    for gpu in fact(facts, "benchmark.gpus") or []:
        if gpu.get("uuid") == device.get("uuid") and gpu.get("state") == "measured":
            during: Mapping[str, Any] = gpu.get("during") or {}
            return during
    return {}


def reasons(facts: Facts, device: Device) -> set[str]:
    """What held its clocks back, now or under the last benchmark. That it was idle is no such thing."""
    seen = {
        *(device.get("clocks_event_reasons") or ()),
        *(measured(facts, device).get("clocks_event_reasons") or ()),
    }
    return seen - {"gpu_idle"}


def bound(facts: Facts) -> list[Mapping[str, Any]]:
    """The GPUs on the PCI bus that are this host's own."""
    return own_gpus(facts)
