"""Is the package manager fit to be used?"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.rule import Rule, Sample, Wanted, rule


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
