"""Is the package manager fit to be used, and does nobody else keep packages where they are?"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.driver import goes_with_driver, to_be_changed, wanted_driver
from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import has_gpus
from fleet.audit.rule import Rule, Sample, Wanted, rule
from fleet.audit.settled import toolkit_differs
from fleet.catalogue.container_toolkit import toolkit_repository

#: The engine's packages by Debian's and by Docker's names.
ENGINE_PACKAGES = (
    "docker.io",
    "docker-cli",
    "docker-ce",
    "docker-ce-cli",
    "containerd",
    "containerd.io",
    "runc",
)


@rule(
    "preflight.package_manager",
    gate=True,
    reads=("packages.manager",),
    known_bad=Sample({"packages.manager": "dnf"}),
)
def manager(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The host has apt."""
    found = fact(facts, "packages.manager")
    if found != "apt":
        yield self.finding(
            f"packages are managed by {found} here; fleet provisions hosts with apt",
            observed=found,
            limit="apt",
            source="fleet/catalogue/data/operating_systems.yaml",
            remedy="leave the host out with --limit '!HOST'",
        )


@rule(
    "preflight.package_sources",
    known_bad=Sample({"packages.sources_errors": ["/etc/apt/sources.list.d/a.list:1: malformed entry"]}),
)
def sources(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Every configured source can be parsed: apt refuses to do anything while one cannot."""
    errors = fact(facts, "packages.sources_errors") or []
    if errors:
        yield self.finding(
            f"a package source cannot be read: {errors[0]}",
            observed=list(errors),
            limit="none",
            source="apt stops at the first malformed source",
            remedy="correct or remove that file, then: apt-get update",
        )


@rule(
    "preflight.packages_interrupted",
    severity=Severity.WARNING,
    known_bad=Sample({"packages.interrupted": ["docker.io"]}),
)
def interrupted(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """No package is left half configured. Only a warning: fleet finishes them before its own transaction."""
    names = fact(facts, "packages.interrupted") or []
    if names:
        yield self.finding(
            f"an earlier package run was interrupted: {', '.join(names)}",
            observed=list(names),
            limit="none",
            source="dpkg's status file",
            remedy="fleet runs dpkg --configure -a before it installs; nothing to do",
        )


@rule(
    "preflight.package_lock",
    severity=Severity.INFO,
    known_bad=Sample({"packages.lock_holder": {"pid": 812, "command": "unattended-upgrade"}}),
)
def lock(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Nobody else holds the package manager's lock. Only information: fleet waits for it."""
    holder = fact(facts, "packages.lock_holder")
    if holder:
        yield self.finding(
            f"the package manager is in use by {holder.get('command')} (pid {holder.get('pid')})",
            observed=holder.get("command"),
            limit="free",
            source="the lock files of dpkg and apt",
            remedy="fleet waits for it up to 5 minutes; nothing to do",
        )


@rule(
    "preflight.foreign_hold",
    known_bad=Sample(
        {"packages.held": ["docker.io"], "packages.held_by_fleet": [], "engine.present": False},
    ),
)
def foreign_hold(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Nobody but fleet holds packages of engine, driver or toolkit. Reads ``driver``, ``container_toolkit``.

    A warning where nothing of them is to be changed: then the hold is in nobody's way.
    """
    ours = fact(facts, "packages.held_by_fleet")
    if ours is None:
        return  # an agent that does not say whose holds they are; the package step refuses by itself
    held = [str(name) for name in fact(facts, "packages.held") or [] if name not in ours]
    in_the_way = [name for name in held if _changes(name, facts, wanted)]
    names = in_the_way or [name for name in held if _concerns(name, facts, wanted)]
    if names:
        verb = "is" if len(names) == 1 else "are"
        yield self.finding(
            f"{', '.join(names)} {verb} on hold, and fleet did not set that hold"
            + ("" if in_the_way else "; nothing of it is to be changed now"),
            observed=names,
            limit="no hold of others",
            source="a hold is somebody's decision",
            remedy=f"find out who holds it and why; then: apt-mark unhold {' '.join(names)}",
            severity=None if in_the_way else Severity.WARNING,
        )


def _concerns(name: str, facts: Facts, wanted: Wanted) -> bool:
    """Whether a package belongs to what the play brings to this host."""
    driver = wanted_driver(wanted)
    if goes_with_driver(name):
        return has_gpus(facts) and driver is not None and driver.installed_by_fleet
    if name in toolkit_repository().packages:
        return has_gpus(facts) and bool(wanted.get("container_toolkit"))
    return name in ENGINE_PACKAGES


def _changes(name: str, facts: Facts, wanted: Wanted) -> bool:
    """Whether, as far as facts tell, the play will have to change a package."""
    if goes_with_driver(name):
        return to_be_changed(facts, wanted) is not None
    if name in toolkit_repository().packages:
        return toolkit_differs(facts, wanted)
    return name in ENGINE_PACKAGES and fact(facts, "engine.present") is False
