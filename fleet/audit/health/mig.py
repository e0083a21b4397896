"""MIG: a mode that will be another one after the next reset, and a GPU that was split and has no part."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import answering
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = ("mig.mode", "mig.mode_pending")


@rule(
    "health.mig.change_pending",
    known_bad=Sample({"gpu_probe.devices.2.mig.mode_pending": "enabled"}, model="h100"),
    severity=Severity.WARNING,
)
def change_pending(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The next reboot or reset does not turn MIG on or off."""
    for device, address in answering(facts):
        now, then = fact(device, "mig.mode"), fact(device, "mig.mode_pending")
        if now is not None and then is not None and now != then:
            back = 1 if now == "enabled" else 0
            yield self.finding(
                f"MIG is {now} and will be {then} after the next reboot or reset",
                observed=then,
                limit=now,
                source="NVML, current and pending MIG mode",
                remedy=f"reset or reboot when drained, or take it back: nvidia-smi -i {address} -mig {back}",
                gpu=address,
            )


@rule(
    "health.mig.without_instance",
    known_bad=Sample({"gpu_probe.devices.0.mig.devices": []}, model="a100_mig"),
    severity=Severity.WARNING,
)
def without_instance(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """A GPU with MIG on has an instance: without one no program can use it."""
    for device, address in answering(facts):
        if fact(device, "mig.mode") == "enabled" and not fact(device, "mig.devices"):
            yield self.finding(
                "MIG is on and there is no instance: no program can use this GPU",
                observed=0,
                limit="one instance or more",
                source="NVIDIA MIG user guide: work runs on compute instances only",
                remedy=f"make instances (nvidia-smi mig -i {address} -cgi …) or turn MIG off: "
                f"nvidia-smi -i {address} -mig 0",
                gpu=address,
            )
