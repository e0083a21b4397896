"""Between GPUs, and from GPUs to adapters: the same questions as health asks, for many hosts at once."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule
from fleet.audit.findings import Finding, Severity
from fleet.catalogue.versions import Version


@rule(
    "audit.peermem",
    severity=Severity.WARNING,
    known_bad=KnownBad({"interconnect.gpu_direct": {"nvidia_peermem": False, "dma_buf": False}}),
)
def peermem(self: AuditRule, case: Case) -> Iterator[Finding]:
    """Where GPUs and InfiniBand meet, GPUDirect RDMA has a way, and nvidia_peermem is of the loaded driver."""
    subject = case.subject
    driver, module = subject.driver, subject.peermem
    if subject.no_gpu_direct:
        yield self.finding(
            "neither nvidia_peermem nor dma-buf: what goes to other hosts is copied through host memory",
            observed="neither",
            limit="one of them",
            source="NVIDIA GPUDirect RDMA",
            remedy="modprobe nvidia_peermem, or use open kernel modules on a kernel with dma-buf",
        )
    elif isinstance(driver, Version) and module is not None and module != driver:
        yield self.finding(
            f"nvidia_peermem {module} beside driver {driver}: it was built for another",
            observed=module.text,
            limit=driver.text,
            source="nvidia_peermem is a part of the driver, built against OFED",
            remedy=f"build it again: dkms install nvidia/{driver} --force, then modprobe nvidia_peermem",
        )


@rule(
    "audit.acs",
    severity=Severity.WARNING,
    known_bad=KnownBad({"interconnect.acs_redirect": ["0000:16:01.0"]}),
)
def acs(self: AuditRule, case: Case) -> Iterator[Finding]:
    """GPUs of one host talk to one another directly: neither ACS nor the IOMMU stands between."""
    bridges, translating = case.subject.acs_redirect, case.subject.iommu_translating
    says = []
    if bridges:
        more = f" and {len(bridges) - 1} more" if len(bridges) > 1 else ""
        says.append(f"ACS redirects what peers send to one another at {bridges[0]}{more}")
    if translating:
        says.append("the IOMMU translates every access of the GPUs")
    if says:
        yield self.finding(
            f"{'; '.join(says)}: peer to peer is slower, or hangs",
            observed=[*bridges, *(["IOMMU"] if translating else [])],
            limit="no redirect, pass-through",
            source="NVIDIA NCCL, troubleshooting: PCI access control services",
            remedy="turn ACS off in the firmware's setup and boot with iommu=pt; not where GPUs are handed on",
        )
