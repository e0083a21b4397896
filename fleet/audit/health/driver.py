"""The driver: loaded, and one version throughout - in memory, on disk, as library, and as fabric manager.

Each state that leaves NVML unusable is its own finding, for each has its own repair.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.driver import loaded_version, parts, upstream
from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import fabric_manager_needs
from fleet.audit.health.devices import bound
from fleet.audit.rule import Rule, Sample, Wanted, rule

NEEDS: tuple[str, ...] = ()
_SOURCE = "NVML works with the library of the very version that is loaded"


def _state(self: Rule, facts: Facts, status: str, what: str, remedy: str) -> Iterator[Finding]:
    if fact(facts, "gpu_probe.status") == status:
        said = fact(facts, "gpu_probe.message")
        yield self.finding(
            f"{what} ({' '.join(str(said).split())})" if said else what,
            observed=status,
            limit="ok",
            source=_SOURCE,
            remedy=remedy,
        )


@rule("health.driver.not_loaded", known_bad=Sample({"gpu_probe.status": "driver_not_loaded"}, model="h100"))
def not_loaded(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """NVIDIA's kernel modules are loaded."""
    remedy = (
        "modprobe nvidia; where that fails, dmesg has the reason; fleet provision INVENTORY installs a driver"
    )
    yield from _state(self, facts, "driver_not_loaded", "the driver is not loaded", remedy)


@rule(
    "health.driver.library_mismatch",
    known_bad=Sample({"gpu_probe.status": "driver_library_mismatch"}, model="h100"),
)
def library_mismatch(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The library of the driver is that of the loaded module."""
    loaded, library = fact(facts, "driver.loaded.version"), fact(facts, "driver.library_version")
    apart = (
        f": {loaded} is loaded, the library is {library}" if loaded and library and loaded != library else ""
    )
    yield from _state(
        self,
        facts,
        "driver_library_mismatch",
        f"driver and library differ{apart}",
        "drain the host and reboot it, or reload the modules: fleet provision INVENTORY --limit HOST --disrupt",
    )


@rule(
    "health.driver.library_missing", known_bad=Sample({"gpu_probe.status": "library_missing"}, model="h100")
)
def library_missing(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The library of the driver, libnvidia-ml, is installed beside its modules."""
    remedy = (
        "install the driver's libraries in the version that is loaded: fleet provision INVENTORY --limit HOST"
    )
    yield from _state(self, facts, "library_missing", "libnvidia-ml.so.1 is not installed", remedy)


@rule("health.driver.tool_missing", known_bad=Sample({"gpu_probe.status": "tool_missing"}, model="h100"))
def tool_missing(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """NVML or nvidia-smi is there to ask."""
    remedy = (
        "install the driver's tools in the version that is loaded: fleet provision INVENTORY --limit HOST"
    )
    yield from _state(self, facts, "tool_missing", "neither NVML nor nvidia-smi can be used", remedy)


@rule(
    "health.driver.unknown",
    known_bad=Sample({"driver": None, "driver_reason": "permission"}, model="h100"),
    severity=Severity.WARNING,
)
def unknown(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """What the driver is can be read."""
    reason = fact(facts, "driver_reason")
    if bound(facts) and fact(facts, "driver") is None and reason != "not_supported":
        yield self.unknown(facts, "driver")


@rule(
    "health.driver.library",
    known_bad=Sample({"driver.library_version": "580.126.09"}, model="h100"),
)
def library(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The library on disk is that of the loaded module: programs that start from now on need it so."""
    there = parts(facts)
    loaded, found = there.loaded, there.library
    if loaded is None or found is None or loaded == found:
        return
    if fact(facts, "gpu_probe.status") == "driver_library_mismatch":
        return  # said already, by NVML itself
    yield self.finding(
        f"the library on disk is {found}, and {loaded} is loaded: programs that start now fail",
        observed=found.text,
        limit=loaded.text,
        source=_SOURCE,
        remedy="drain the host and reboot it; then hold the driver's packages: fleet provision INVENTORY",
    )


@rule(
    "health.driver.disk",
    known_bad=Sample({"driver.kernels.0.modules.0.version": "580.126.09"}, model="h100"),
    severity=Severity.WARNING,
)
def disk(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The module on disk is the one that is loaded, so that a reboot changes nothing."""
    there = parts(facts)
    loaded, found = there.loaded, there.disk
    if loaded is not None and found is not None and loaded != found:
        yield self.finding(
            f"{loaded} is loaded, and the next boot loads {found}",
            observed=found.text,
            limit=loaded.text,
            source="modprobe takes the module file of the running kernel",
            remedy="drain the host and reboot it, or install the loaded version again",
        )


@rule(
    "health.driver.fabric_manager",
    known_bad=Sample({"driver.fabric_manager.version": "580.126.09"}, model="h100"),
)
def fabric_manager(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Where there are NVSwitches, the fabric manager has the very version of the driver."""
    loaded, needs = loaded_version(facts), fabric_manager_needs(facts)
    if loaded is None or needs is None:
        return
    found = upstream(str(fact(facts, "driver.fabric_manager.version") or ""))
    if found != loaded:
        yield self.finding(
            f"fabric manager {found} beside driver {loaded}: it does not start with another version"
            if found is not None
            else f"there is no fabric manager beside driver {loaded}, and this host has NVSwitches",
            observed=found.text if found is not None else None,
            limit=loaded.text,
            source=needs.provenance.source("version_match"),
            remedy="fleet provision INVENTORY --limit HOST installs the one that goes with the driver",
        )


@rule(
    "health.driver.fabric_manager_active",
    known_bad=Sample({"driver.fabric_manager.active": False}, model="h100"),
)
def fabric_manager_active(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Where there are NVSwitches, the fabric manager runs: without it CUDA fails with error 802."""
    needs, version = fabric_manager_needs(facts), fact(facts, "driver.fabric_manager.version")
    if needs is not None and version is not None and fact(facts, "driver.fabric_manager.active") is False:
        yield self.finding(
            f"the fabric manager {version} is not running",
            observed=False,
            limit=True,
            source=needs.provenance.source("needs"),
            remedy="systemctl enable --now nvidia-fabricmanager; journalctl -u nvidia-fabricmanager -n 50",
        )
