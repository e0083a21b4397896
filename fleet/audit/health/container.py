"""GPUs in containers: what the container check found last, and a container that lost the ones it had."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS: tuple[str, ...] = ()
_FAILED = {
    "passed": False, "reason": "no_gpu: a container sees no GPU", "key": {"boot": None, "driver": None, "image": None},
    "reference": "docker.io/pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime", "digest": None,
    "checked_at": "2026-11-30T11:00:00Z", "simulated": False,
}  # fmt: skip


@rule("health.container.lost_gpu", known_bad=Sample({"gpu_probe.status": "container_lost_gpu"}, model="h100"))
def lost_gpu(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """A container that had GPUs still has them. The driver of the host is not at fault where one lost them."""
    if fact(facts, "gpu_probe.status") == "container_lost_gpu":
        yield self.finding(
            "this container lost its GPUs (Failed to initialize NVML: Unknown Error); the host may be well",
            observed="container_lost_gpu",
            limit="ok",
            source="NVIDIA/nvidia-container-toolkit issue 48: systemctl daemon-reload takes device rights away",
            remedy="start the container anew; on the host use CDI, or the cgroup driver cgroupfs",
        )


@rule(
    "health.container.check",
    known_bad=Sample({"container_check": _FAILED}, model="h100"),
)
def check(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """A container of the pinned image saw the host's GPUs when that was tried last."""
    found = fact(facts, "container_check") or {}
    if found.get("passed") is not False:
        return
    boot, driver = fact(found, "key.boot"), fact(found, "key.driver")
    now, loaded = fact(facts, "identity.boot_id"), fact(facts, "driver.loaded.version")
    old = (boot is not None and boot != now) or (driver is not None and driver != loaded)
    yield self.finding(
        f"the container check did not pass: {found.get('reason')}"
        + (" (before the last reboot or driver change)" if old else ""),
        observed=found.get("checked_at"),
        limit="passed",
        source="the check runs the pinned image on this host",
        remedy="fleet provision INVENTORY --limit HOST --tags check tries it again",
        severity=Severity.WARNING if old else None,
    )
