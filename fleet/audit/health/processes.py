"""Who may use a GPU, and memory that nobody answers for. That a GPU is at work is no fault."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import answering
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = ("compute_mode", "memory_used_mib", "processes")
#: So much memory without a process is not the driver's own use: less is seen on idle cards with a display.
UNEXPLAINED_MIB = 2048


@rule(
    "health.processes.compute_mode",
    known_bad=Sample({"gpu_probe.devices.0.compute_mode": "prohibited"}, model="h100"),
    severity=Severity.WARNING,
)
def compute_mode(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Programs may compute on every GPU."""
    for device, address in answering(facts):
        if device.get("compute_mode") == "prohibited":
            yield self.finding(
                "compute mode is prohibited: no CUDA program can use this GPU",
                observed="prohibited",
                limit="default or exclusive_process",
                source="NVML compute mode",
                remedy=f"where nobody meant it: nvidia-smi -i {address} -c DEFAULT",
                gpu=address,
            )


@rule(
    "health.processes.memory",
    known_bad=Sample({"gpu_probe.devices.0.memory_used_mib": 40_000}, model="h100"),
    severity=Severity.WARNING,
)
def memory(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Memory that is in use belongs to a process that can be seen."""
    holders = fact(facts, "driver.holders")
    if holders is None or any(holder.get("kind") != "service" for holder in holders):
        return  # who holds the GPUs cannot be seen, or somebody does
    for device, address in answering(facts):
        used = device.get("memory_used_mib")
        if device.get("processes") != [] or used is None or used < UNEXPLAINED_MIB:
            continue
        if fact(device, "mig.mode") == "enabled" or device.get("virtualization_mode") not in (
            None,
            "none",
            "passthrough",
        ):
            continue
        yield self.finding(
            f"{used} MiB of memory are in use and no process shows for it",
            observed=used,
            limit=f"below {UNEXPLAINED_MIB} MiB",
            source="idle cards of the catalogue use less",
            remedy="a process may have died in the driver: look for state D and Xids; drain and reset the GPU",
            gpu=address,
        )
