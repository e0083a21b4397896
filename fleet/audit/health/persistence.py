"""Persistence: a driver that stays initialised while nobody uses the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.health.devices import answering
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS = ("persistence_mode",)
#: Units that turn it on need so long after a boot.
GRACE_S = 120.0
_DAEMON = "nvidia-persistenced"


@rule(
    "health.persistence.off",
    known_bad=Sample(
        {"gpu_probe.devices.6.persistence_mode": False, "driver.persistence_daemon.active": False},
        model="h100",
    ),
    severity=Severity.WARNING,
)
def off(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Persistence mode is on: without it every first use waits, and settings such as clocks are forgotten."""
    up_s = fact(facts, "uptime_s")
    if up_s is not None and up_s < GRACE_S:
        return
    for device, address in answering(facts):
        if device.get("persistence_mode") is False:
            yield self.finding(
                f"persistence mode is off{_why(facts)}",
                observed=False,
                limit=True,
                source="NVIDIA driver persistence: the daemon is the way to keep it on",
                remedy=_remedy(facts),
                gpu=address,
            )


def _remedy(facts: Facts) -> str:
    daemon = fact(facts, "driver.persistence_daemon") or {}
    if daemon.get("condition") == "unmet":
        return (
            f"systemctl start {_DAEMON}; where it is skipped again at boot, load nvidia early: a line nvidia in"
            " /etc/modules-load.d"
        )
    if daemon.get("state") == "failed":
        return f"journalctl -u {_DAEMON} -n 50; then systemctl restart {_DAEMON}"
    return f"systemctl enable --now {_DAEMON}, or once: nvidia-smi -pm 1"


def _why(facts: Facts) -> str:
    """What the daemon has to do with it: a unit that was skipped at boot is inactive, and neither failed nor well."""
    daemon = fact(facts, "driver.persistence_daemon") or {}
    if daemon.get("active"):
        return f", though {_DAEMON} runs"
    if daemon.get("active") is None:
        return ""
    if daemon.get("condition") == "unmet":
        return f": {_DAEMON} was skipped, for a condition of its unit was not met when it was to start (/dev/nvidia*)"
    if daemon.get("state") == "failed":
        return f": {_DAEMON} failed"
    return f": {_DAEMON} is not active"
