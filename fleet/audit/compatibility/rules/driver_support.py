"""How NVIDIA stands to the driver's branch: known, supported, with the fixes of every bulletin.

Branches, dates and bulletins are in ``fleet/catalogue/data/drivers.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule, with_caveat
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import best_branch
from fleet.catalogue.drivers import TYPE_NAMES, Branch
from fleet.catalogue.versions import Version


def _branch(case: Case) -> tuple[Version, Branch] | None:
    """The loaded driver and its branch; None where there is none, or it is not in the catalogue."""
    driver = case.subject.driver
    if not isinstance(driver, Version):
        return None
    branch = case.catalogue.drivers.branch_of(driver)
    return (driver, branch) if branch is not None else None


@rule(
    "audit.driver.branch_not_in_catalogue",
    severity=Severity.UNKNOWN,
    known_bad=KnownBad({"driver.loaded.version": "605.10.01"}),
)
def not_in_catalogue(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The driver's branch is in the catalogue."""
    driver = case.subject.driver
    if not isinstance(driver, Version) or case.catalogue.drivers.branch_of(driver) is not None:
        return
    yield self.finding(
        f"branch {driver.major} of driver {driver} is not in the catalogue: what it serves is not known",
        observed=driver.text,
        limit="a branch of the catalogue",
        source="fleet/catalogue/data/drivers.yaml",
        remedy="add the branch to the site's catalogue, or take one that fleet catalogue show driver has",
    )


@rule(
    "audit.driver.end_of_life",
    severity=Severity.WARNING,
    known_bad=KnownBad({"driver.loaded.version": "570.211.01"}),
)
def end_of_life(self: AuditRule, case: Case) -> Iterator[Finding]:
    """NVIDIA still supports the driver's branch."""
    found = _branch(case)
    if found is None:
        return
    driver, branch = found
    support = case.catalogue.drivers.support(branch, case.options.on)
    if support == "ended":
        what = f"branch {branch.number} of driver {driver} is past its end of life, {branch.end_of_life}"
    elif support == "superseded":
        what = f"branch {branch.number} of driver {driver}, a {TYPE_NAMES[branch.type]}, is superseded by a newer one"
    else:
        return
    yield self.finding(
        with_caveat(what, branch.provenance.caveat("end_of_life" if branch.end_of_life else "type")),
        observed=driver.text,
        limit=branch.end_of_life,
        source=branch.provenance.source("end_of_life" if branch.end_of_life else "type"),
        remedy=_supported(case),
    )


@rule(
    "audit.driver.security",
    severity=Severity.WARNING,
    known_bad=KnownBad({"driver.loaded.version": "580.95.05"}),
)
def security(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The driver has the fixes of every bulletin that NVIDIA published for Linux."""
    found = _branch(case)
    fix = found[1].security_floor if found is not None else None
    if found is None or fix is None:
        return
    driver, branch = found
    never = case.catalogue.drivers.unfixed(branch)
    if driver >= fix.version and not never:
        return
    says = []
    if driver < fix.version:
        open_fixes = [one for one in branch.security_fixes if driver < one.version]
        says.append(
            f"driver {driver} is below {fix.version}, which has the fixes of bulletin"
            f" {', '.join(one.bulletin for one in open_fixes)}"
            f" ({sum(one.cves for one in open_fixes)} CVEs, CVSS up to {max(one.max_cvss for one in open_fixes):g})"
        )
    if never:
        says.append(
            f"branch {branch.number} never got the fixes of bulletin {', '.join(never)}"
            if says
            else f"driver {driver}: branch {branch.number} never got the fixes of bulletin {', '.join(never)}"
        )
    yield self.finding(
        with_caveat("; ".join(says), branch.provenance.caveat("security_fixes")),
        observed=driver.text,
        limit=fix.version.text if not never else "a branch that gets fixes",
        source=branch.provenance.source("security_fixes"),
        remedy=_supported(case) if never else f"driver {fix.version} or newer of branch {branch.number}",
    )


def _supported(case: Case) -> str:
    """The newest lasting branch that serves every GPU of the host."""
    best = best_branch(case.subject.host_gpus, catalogue=case.catalogue)
    branch = case.catalogue.drivers.branch(best) if best is not None else None
    return f"driver {branch.latest} (branch {branch.number})" if branch is not None else "a newer branch"
