"""The NVLink fabric as each GPU sees it: its state, the status of the last registration, and its health.

A GPU may be listed as healthy, have all its links, and still run no CUDA program, because it was never registered with
the fabric; and one that completed may have failed. So state *and* status *and* health are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import answering
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = ("fabric.state",)
#: The fabric manager trains every link after a boot before it registers GPUs.
TRAINING_S = 300.0
_SOURCE = "NVML GpuFabricInfo: CUDA needs state completed with status success"
_REMEDY = "journalctl -u nvidia-fabricmanager -n 50; it must run, and have the very version of the driver"
_FLAGS = {
    "degraded_bandwidth": "its bandwidth is degraded",
    "route_unhealthy": "a route is unhealthy",
    "access_timeout_recovery": "it recovers from an access timeout",
    "route_recovery": "a route is being recovered",
}


@rule(
    "health.fabric.state", known_bad=Sample({"gpu_probe.devices.0.fabric.state": "not_started"}, model="h100")
)
def state(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every GPU of a fabric has completed its registration."""
    up_s = fact(facts, "uptime_s")
    for device, address in answering(facts):
        seen = fact(device, "fabric.state")
        if seen not in ("not_started", "in_progress"):
            continue
        early = up_s is not None and up_s < TRAINING_S
        yield self.finding(
            f"the fabric is not ready: registration {seen.replace('_', ' ')}"
            + (f", {up_s:.0f} s after the boot" if early else ""),
            observed=seen,
            limit="completed",
            source=_SOURCE,
            remedy=f"look again in {TRAINING_S / 60:.0f} minutes" if early else _REMEDY,
            severity=Severity.WARNING if early else None,
            gpu=address,
        )


@rule("health.fabric.status", known_bad=Sample({"gpu_probe.devices.0.fabric.status": 999}, model="h100"))
def status(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The registration of a GPU with the fabric succeeded, and not only ended."""
    for device, address in answering(facts):
        code = fact(device, "fabric.status")
        if fact(device, "fabric.state") == "completed" and code:
            yield self.finding(
                f"registration with the fabric ended with NVML's error {code}",
                observed=code,
                limit=0,
                source=_SOURCE,
                remedy=_REMEDY,
                gpu=address,
            )


@rule(
    "health.fabric.health",
    known_bad=Sample({"gpu_probe.devices.0.fabric.health.degraded_bandwidth": True}, model="h100"),
)
def health(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The fabric is healthy: full bandwidth, no bad route, no wrong configuration."""
    for device, address in answering(facts):
        said = fact(device, "fabric.health") or {}
        wrong = [name for name in _FLAGS if said.get(name)]
        configuration = said.get("incorrect_configuration")
        words = [_FLAGS[name] for name in wrong]
        if configuration not in (None, "none"):
            words.append(f"it is configured wrongly ({str(configuration).replace('_', ' ')})")
        if words:
            yield self.finding(
                f"the fabric is not healthy: {', '.join(words)}",
                observed={**dict.fromkeys(wrong, True), "incorrect_configuration": configuration},
                limit="healthy",
                source="NVML GpuFabricInfo, health mask",
                remedy=f"{_REMEDY}; look for SXids in dmesg",
                severity=Severity.WARNING if wrong == ["route_recovery"] and len(words) == 1 else None,
                gpu=address,
            )
