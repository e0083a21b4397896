"""What stands in the way between GPUs, and between GPUs and adapters: asked by health and by the audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.audit.facts import Facts, fact
from fleet.audit.gpus import HANDED_ON, own_gpus


def handed_on(facts: Facts) -> bool:
    """Whether a GPU of this host belongs to a virtual machine."""
    return any(gpu.get("driver") == HANDED_ON for gpu in fact(facts, "gpus") or [])


def ports(facts: Facts) -> list[Mapping[str, Any]]:
    """The RDMA ports of a host with GPUs of its own."""
    return list(fact(facts, "interconnect.ports") or []) if own_gpus(facts) else []


def no_gpu_direct(facts: Facts) -> bool:
    """Whether active InfiniBand ports reach the GPUs neither by nvidia_peermem nor by dma-buf."""
    ways = fact(facts, "interconnect.gpu_direct") or {}
    active = any(
        port.get("state") == "active" and port.get("link_layer") == "infiniband" for port in ports(facts)
    )
    return active and ways.get("nvidia_peermem") is False and ways.get("dma_buf") is False


def redirecting_bridges(facts: Facts, gpus: int) -> list[str]:
    """Bridges that send up to the root what peers send to one another; none where there are no peers.

    ``gpus``: how many GPUs the host has. Nothing is said where GPUs are handed on: there it is meant.
    """
    bridges = list(fact(facts, "interconnect.acs_redirect") or [])
    peers = gpus > 1 or bool(ports(facts))
    return bridges if peers and not handed_on(facts) else []


def translating(facts: Facts) -> bool:
    """Whether the IOMMU translates the accesses of the host's own GPUs."""
    own = bool(own_gpus(facts)) and not handed_on(facts)
    return own and bool(fact(facts, "interconnect.iommu.translating"))
