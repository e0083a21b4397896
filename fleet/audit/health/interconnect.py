"""Between hosts and between GPUs: HCA ports, the way of GPUDirect RDMA, and a PCIe tree that lets peers talk.

How many ports a host should have is not known here; so they are held against one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import bound, devices
from fleet.audit.interconnect import no_gpu_direct, ports, redirecting_bridges, translating
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS: tuple[str, ...] = ()
#: Counters that stay at 0 on a good cable. A link that came up counts in none of them.
_COUNTERS = ("symbol_error", "link_error_recovery", "local_link_integrity_errors", "port_rcv_errors")


def _port(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "device": f"mlx5_{number}", "port": 1, "address": f"0000:{0x18 + number:02x}:00.0", "link_layer": "infiniband",
        "state": "active", "physical_state": "link_up", "rate_gbit_s": 400.0, "firmware": "28.39.3004", "netdev": None,
        "numa_node": 0, "errors": {}, **changes,
    }  # fmt: skip


_WELL: dict[str, Any] = {
    "ofed_version": None, "doca_version": None, "nvidia_fs_version": None, "gdrcopy_version": None,
    "gpu_direct": {"nvidia_peermem": True, "dma_buf": True}, "iommu": {"groups": 0, "translating": False},
    "acs_redirect": [], "kernel_command_line": "quiet",
}  # fmt: skip


def _bad(**changes: Any) -> Sample:
    return Sample({"interconnect": {**_WELL, "ports": [_port(0), _port(1)], **changes}}, model="h100")


def _name(port: Mapping[str, Any]) -> str:
    return f"{port['device']} port {port['port']}"


@rule(
    "health.interconnect.unknown",
    known_bad=Sample({"interconnect": None, "interconnect_reason": "error"}, model="h100"),
    severity=Severity.WARNING,
)
def unknown(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """What joins this host to others can be read."""
    unread = fact(facts, "interconnect_reason") != "not_supported"
    if bound(facts) and fact(facts, "interconnect") is None and unread:
        yield self.unknown(facts, "interconnect")


@rule(
    "health.interconnect.port",
    known_bad=_bad(ports=[_port(0), _port(1, state="down", physical_state="polling")]),
    severity=Severity.WARNING,
)
def port_state(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every InfiniBand port is active; one that is up and not active has no subnet manager."""
    for port in ports(facts):
        state, layer = port.get("state"), port.get("link_layer")
        if state == "active" or state is None:
            continue
        unused = layer != "infiniband" or port.get("physical_state") == "disabled"
        waits = state in ("init", "armed")
        yield self.finding(
            f"{_name(port)} ({layer}) is {state}" + (": it waits for a subnet manager" if waits else ""),
            observed=state,
            limit="active",
            source="the InfiniBand port state of sysfs",
            remedy="start a subnet manager (opensm, or on the switch)"
            if waits
            else "look at cable, transceiver and switch",
            severity=Severity.INFO if unused else None,
        )


@rule(
    "health.interconnect.rate",
    known_bad=_bad(ports=[_port(0), _port(1, rate_gbit_s=200.0)]),
    severity=Severity.WARNING,
)
def port_rate(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Active ports of one firmware and link layer run at one rate."""
    active = [port for port in ports(facts) if port.get("state") == "active" and port.get("rate_gbit_s")]
    best: dict[tuple[Any, Any], float] = {}
    for port in active:
        kind = (port.get("link_layer"), port.get("firmware"))
        best[kind] = max(best.get(kind, 0.0), port["rate_gbit_s"])
    for port in active:
        most = best[port.get("link_layer"), port.get("firmware")]
        if port["rate_gbit_s"] < most:
            yield self.finding(
                f"{_name(port)} runs at {port['rate_gbit_s']:g} of {most:g} Gbit/s",
                observed=port["rate_gbit_s"],
                limit=most,
                source="the fastest port of the same kind in this host",
                remedy="look at cable, transceiver and switch port",
            )


@rule(
    "health.interconnect.errors",
    known_bad=_bad(ports=[_port(0), _port(1, errors={"symbol_error": 12})]),
    severity=Severity.INFO,
)
def port_errors(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Counters of errors that a good cable never counts are at 0."""
    for port in ports(facts):
        found = {name: count for name in _COUNTERS if (count := (port.get("errors") or {}).get(name))}
        if found:
            said = ", ".join(f"{name} {count}" for name, count in found.items())
            yield self.finding(
                f"{_name(port)} counted {said}",
                observed=found,
                limit=0,
                source="InfiniBand architecture: port counters",
                remedy="clear the counters, look again under load; where they grow, clean or change the cable",
            )


@rule(
    "health.interconnect.gpu_direct",
    known_bad=_bad(gpu_direct={"nvidia_peermem": False, "dma_buf": False}),
    severity=Severity.WARNING,
)
def gpu_direct(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Where GPUs and active InfiniBand ports meet, GPUDirect RDMA has a way: nvidia_peermem or dma-buf."""
    if no_gpu_direct(facts):
        yield self.finding(
            "neither nvidia_peermem nor dma-buf: NCCL copies what goes to other hosts through host memory",
            observed=dict(fact(facts, "interconnect.gpu_direct")),
            limit="one of them",
            source="NVIDIA GPUDirect RDMA; imbue: 720 Gbit/s with it, 300 without",
            remedy="modprobe nvidia_peermem, or use open kernel modules on a kernel with dma-buf",
        )


@rule(
    "health.interconnect.acs",
    known_bad=_bad(acs_redirect=["0000:16:01.0"]),
    severity=Severity.WARNING,
)
def acs(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """PCIe bridges above GPUs let peers talk directly: ACS does not send it up to the root."""
    bridges = redirecting_bridges(facts, len(devices(facts)))
    if bridges:
        more = f" and {len(bridges) - 1} more" if len(bridges) > 1 else ""
        yield self.finding(
            f"ACS redirects what peers send to one another at {bridges[0]}{more}",
            observed=bridges,
            limit="no redirect",
            source="NVIDIA NCCL, troubleshooting: PCI access control services",
            remedy="turn ACS off in the firmware's setup, or by setpci at every boot; not where GPUs are handed on",
        )


@rule(
    "health.interconnect.iommu",
    known_bad=_bad(iommu={"groups": 90, "translating": True}),
    severity=Severity.INFO,
)
def iommu(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The IOMMU passes the GPUs' accesses through."""
    if translating(facts):
        yield self.finding(
            "the IOMMU translates every access: peer to peer and RDMA are slower, or hang",
            observed=True,
            limit="pass-through",
            source="NVIDIA NCCL, troubleshooting; GPUDirect Storage guide",
            remedy="boot with iommu=pt on the kernel's command line",
        )
