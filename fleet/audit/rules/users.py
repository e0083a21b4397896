"""Who uses the GPUs of this host?

Being used is no fault. The rules here name people and containers that a wanted change would disturb; the change
itself waits for leave in the module that makes it (:mod:`fleet.audit.leave`), so that everything else is done.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.driver import loaded_version, to_be_changed
from fleet.audit.facts import Facts, fact, why_absent
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import has_gpus
from fleet.audit.leave import gpu_user_words, gpu_users
from fleet.audit.rule import Rule, Sample, Wanted, rule

_JOB = {
    "pid": 40335, "command": "python", "uid": 1000, "user": "anna", "container_id": None, "unit": None,
    "devices": ["/dev/nvidia0", "/dev/nvidiactl"], "kind": "work",
}  # fmt: skip


@rule(
    "preflight.gpu_users",
    severity=Severity.WARNING,
    needs_leave=True,
    known_bad=Sample(
        {"driver.holders": [_JOB]}, {"driver": {"source": "nvidia", "version": "580.159.04"}}, gpu=True
    ),
)
def gpu_users_there(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Nobody is on a GPU whose driver is to be changed. Reads ``driver``.

    Only a warning: the driver task leaves the driver alone and ends pending, and the rest is done. Silent where
    the driver is as wanted: then nobody is disturbed.
    """
    driver = to_be_changed(facts, wanted)
    loaded = loaded_version(facts)
    if driver is None or loaded is None:
        return
    users = gpu_users(facts)
    if users == []:
        return
    words = (
        "; ".join(gpu_user_words(facts, holder) for holder in users)
        if users
        else f"who uses the GPUs is not known: {why_absent(facts, 'driver.holders')}"
    )
    flavour = f" with {driver.modules} modules" if driver.modules != "auto" else ""
    yield self.finding(
        f"{words}; replacing driver {loaded} by {driver.words}{flavour} waits for leave",
        observed=[gpu_user_words(facts, holder) for holder in users] if users else None,
        limit="nobody, or leave given",
        source="a driver can be replaced only while no process has a GPU open",
        remedy="agree with them, or wait until they are done; then give leave with --disrupt",
    )


@rule(
    "preflight.gpu_containers",
    severity=Severity.INFO,
    known_bad=Sample({"engine.gpu_containers": [{"id": "0123456789ab", "name": "train-17"}]}, gpu=True),
)
def containers_lose_gpus(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No container with GPUs runs where systemd manages the control groups: a daemon-reload may take them away.

    Only information: the host and its driver stay well, and a container made anew has its GPUs again.
    """
    containers = fact(facts, "engine.gpu_containers") or []
    if not has_gpus(facts) or fact(facts, "engine.cgroup_driver") != "systemd" or not containers:
        return
    names = [str(container.get("name") or container.get("id")) for container in containers]
    yield self.finding(
        f"containers with GPUs run under the systemd cgroup driver ({', '.join(names)}):"
        " installing a package with a unit may take their GPUs away",
        observed=names,
        limit="none, or CDI",
        source="NVIDIA/nvidia-docker issue 1730: systemctl daemon-reload drops devices that the runtime hook added",
        remedy="where nvidia-smi says Unknown Error in one of them, make that container anew; do not reboot the host",
    )
