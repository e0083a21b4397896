"""The facts of three healthy hosts, for every test that needs a facts document.

``tests/audit/healthy.json`` is a host without GPUs; ``tests/audit/healthy_gpu.json`` the same with eight
H100 SXM behind four NVSwitches and a driver, a fabric manager and a container toolkit that agree;
``tests/audit/rented.json`` a container of a GPU cloud with an H200: no systemd, no kernel packages, nothing in
/boot, a driver in /usr/local/nvidia, an engine that somebody started, no container toolkit. What NVML says of
GPUs is in :mod:`tests.devices`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.devices import healthy_device, healthy_probe
from tests.paths import set_path

__all__ = [
    "health_facts", "healthy_device", "healthy_facts", "healthy_gpu_facts", "healthy_probe", "rented_facts",
]  # fmt: skip

_AUDIT = Path(__file__).parent / "audit"
_HEALTHY: dict[str, Any] = json.loads((_AUDIT / "healthy.json").read_text())
_HEALTHY_GPU: dict[str, Any] = json.loads((_AUDIT / "healthy_gpu.json").read_text())
_RENTED: dict[str, Any] = json.loads((_AUDIT / "rented.json").read_text())


def healthy_facts(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A copy of the host without GPUs, with values set by dotted path: ``{"engine.present": False}``."""
    return _changed(_HEALTHY, changes or {})


def healthy_gpu_facts(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A copy of the host with GPUs; a number in a path is a place: ``{"gpus.0.driver": "nouveau"}``."""
    return _changed(_HEALTHY_GPU, changes or {})


def rented_facts(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A copy of the host without systemd, where driver and engine are somebody else's."""
    return _changed(_RENTED, changes or {})


def health_facts(model: str = "h100", changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A copy of a healthy host whose GPUs are of a model of :data:`tests.devices.HOSTS`, with ``gpu_probe``.

    Changes as for :func:`healthy_gpu_facts`: ``{"gpu_probe.devices.0.pcie.width": 8}``.
    """
    facts = copy.deepcopy(_HEALTHY_GPU)
    probe = healthy_probe(model)
    facts["gpus"] = [_on_the_bus(device) for device in probe["devices"]]
    if model != "h100":
        facts["nvswitches"] = []
        facts["driver"]["fabric_manager"] = {"version": None, "active": False}
    facts["gpu_probe"] = probe
    facts["kernel_log"] = {
        "source": "kmsg",
        "begins_at": None,
        "overwritten": False,
        "xids": [],
        "sxids": [],
        "fallen_off_bus": [],
    }
    facts["interconnect"] = {
        "ports": [], "ofed_version": None, "doca_version": None, "nvidia_fs_version": None, "gdrcopy_version": None,
        "gpu_direct": {"nvidia_peermem": False, "dma_buf": False}, "iommu": {"groups": 0, "translating": False},
        "acs_redirect": [], "kernel_command_line": "quiet",
    }  # fmt: skip
    return _changed(facts, changes or {})


def _on_the_bus(device: Mapping[str, Any]) -> dict[str, Any]:
    same = (
        "address",
        "device_id",
        "subsystem_vendor_id",
        "subsystem_id",
        "numa_node",
        "uuid",
        "name",
        "minor",
    )
    return {"vendor_id": "10de", "class": "0302", "driver": "nvidia", **{name: device[name] for name in same}}


def _changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = copy.deepcopy(dict(document))
    for path, value in changes.items():
        set_path(facts, path, value)
    return facts
