"""Docker Engine, containerd and runc: there, able to give GPUs, supported, and with the fixes of known weaknesses.

Branches, features and floors are in ``fleet/catalogue/data/docker.yaml``, weaknesses in ``advisories.yaml``, all by
upstream's versions. A distribution fixes without raising those, so what it built is not judged by them:
a remark says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule, with_caveat
from fleet.audit.compatibility.subject import NOTHING, Program
from fleet.audit.compatibility.weaknesses import caveat, listed, open_ones, with_numbers
from fleet.audit.findings import Finding, Severity
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.docker import feature_since
from fleet.catalogue.entries import Entry
from fleet.catalogue.runtimes import RuntimeBranch
from fleet.catalogue.versions import Version, last_day, release

_UPSTREAM = {"packages.installed": {"docker-ce": "5:24.0.9-1~debian.12~bookworm"}, "engine.version": "24.0.9"}


def _engine(case: Case) -> Program | None:
    engine = case.subject.engine
    return engine if case.options.where == "container" and isinstance(engine, Program) else None


@rule("audit.docker.absent", known_bad=KnownBad({"engine.present": False}))
def absent(self: AuditRule, case: Case) -> Iterator[Finding]:
    """There is an engine to run the image."""
    if case.options.where == "container" and case.subject.engine is NOTHING:
        yield self.finding(
            "Docker is not installed",
            observed=None,
            limit="Docker Engine",
            source="the image is run by Docker",
            remedy="fleet provision INVENTORY installs it",
        )


@rule("audit.docker.floor", known_bad=KnownBad({"engine.version": "18.09.9"}))
def floor(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The engine is new enough for ``--gpus``."""
    engine, since = _engine(case), feature_since("gpus", case.catalogue.files)
    if engine is None or engine.version >= since:
        return
    yield self.finding(
        f"Docker {engine.text} does not know --gpus, which came with {since}",
        observed=engine.text,
        limit=str(since),
        source=_entry(case.catalogue, "features", "gpus").provenance.source("since"),
        remedy=f"Docker {_floor(case)} or newer",
    )


@rule("audit.docker.end_of_life", severity=Severity.WARNING, known_bad=KnownBad(_UPSTREAM))
def end_of_life(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The engine is of a branch that its makers still mend. Not asked of what a distribution built."""
    engine = _engine(case)
    if engine is None or engine.distribution:
        return
    branch = _branch(engine.version, case.catalogue)
    if branch is None or not branch.ended(case.options.on):
        return
    older, ended = not engine.version.begins_with(branch.version), branch.end_of_life
    yield self.finding(
        f"Docker {engine.text} is older than {branch.id}, which had its end of life on {ended}"
        if older
        else f"branch {branch.id} of Docker {engine.text} is past its end of life, {ended}",
        observed=engine.text,
        limit=ended,
        source=branch.provenance.source("end_of_life"),
        remedy=f"Docker {_floor(case)} or newer",
    )


def _branch(version: Version, catalogue: Catalogue) -> RuntimeBranch | None:
    """The branch of a version; for one older than all that are known, the oldest. None for a newer one."""
    runtimes = catalogue.runtimes
    oldest = runtimes.branches["engine"][-1]
    return runtimes.branch_of("engine", version) or (oldest if version < oldest.version else None)


@rule("audit.docker.security", severity=Severity.WARNING, known_bad=KnownBad(_UPSTREAM))
def security(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The engine has the fixes of every weakness known. A remark where a distribution built it."""
    engine = _engine(case)
    if engine is None:
        return
    if engine.distribution:
        yield _by_distribution(self, "Docker", engine)
        return
    unfixed = open_ones("engine", engine.version, case.subject)
    enough = _enough(engine.version, case)
    if not unfixed:
        return
    yield self.finding(
        with_caveat(f"Docker {engine.text} has {listed(unfixed)}", caveat(unfixed))
        if not enough
        else f"whether Docker {engine.text} of the long term branch has the fixes of {listed(unfixed)} is not known",
        observed=with_numbers(engine.text, unfixed),
        limit=_floor(case),
        source=_entry(case.catalogue, "floors", "engine").provenance.source("version"),
        remedy=f"Docker {_floor(case)} or newer",
        severity=Severity.INFO if enough else None,
    )


def _enough(version: Version, case: Case) -> bool:
    """Whether the catalogue calls a version of the long term branch safe, which gets fixes until its end."""
    long_term = _entry(case.catalogue, "floors", "engine_long_term")
    fixed = release(long_term["version"])
    branch = release(".".join(map(str, fixed.numbers[:2])))
    return (
        version.begins_with(branch) and version >= fixed and case.options.on <= last_day(long_term["until"])
    )


@rule(
    "audit.runc.security",
    severity=Severity.WARNING,
    known_bad=KnownBad({"packages.installed": {"runc": "1.1.11"}}),
)
def runc_security(self: AuditRule, case: Case) -> Iterator[Finding]:
    """runc has the fixes of every weakness that containers of Docker can use.

    A remark where a distribution built it.
    """
    runc = case.subject.runc
    if case.options.where != "container" or not isinstance(runc, Program):
        return
    if runc.distribution:
        yield _by_distribution(self, "runc", runc)
        return
    unfixed = open_ones("runc", runc.version, case.subject)
    if not unfixed:
        return
    fixed = max(one.fix_for(runc.version) for one in unfixed)
    yield self.finding(
        with_caveat(f"runc {runc.text} has {listed(unfixed)}", caveat(unfixed)),
        observed=with_numbers(runc.text, unfixed),
        limit=str(fixed),
        source=unfixed[-1].provenance.source("fixed_in"),
        remedy=f"runc {fixed} or newer: upgrade containerd.io, or the distribution's runc",
    )


@rule(
    "audit.containerd.security",
    severity=Severity.WARNING,
    known_bad=KnownBad({"packages.installed": {"containerd.io": "1.7.28-1~debian.12~bookworm"}}),
)
def containerd_security(self: AuditRule, case: Case) -> Iterator[Finding]:
    """containerd has the fixes of every weakness known; of those in its part for kubelets, where there is one.

    A remark where a distribution built it.
    """
    containerd = case.subject.containerd
    if case.options.where != "container" or containerd is None:
        return
    if containerd.distribution:
        yield _by_distribution(self, "containerd", containerd)
        return
    unfixed = open_ones("containerd", containerd.version, case.subject)
    if not unfixed:
        return
    fixed = max(one.fix_for(containerd.version) for one in unfixed)
    yield self.finding(
        with_caveat(f"containerd {containerd.version} has {listed(unfixed)}", caveat(unfixed)),
        observed=with_numbers(containerd.version.text, unfixed),
        limit=str(fixed),
        source=unfixed[-1].provenance.source("fixed_in"),
        remedy=f"containerd.io {fixed} or newer, of Docker's repository",
    )


def _by_distribution(self: AuditRule, name: str, program: Program) -> Finding:
    return self.finding(
        f"{name} {program.text} is built by the distribution, whose fixes its version does not tell",
        observed=program.text,
        limit=None,
        source="distributions fix without raising upstream's version",
        remedy="keep the distribution's security updates installed",
        severity=Severity.INFO,
    )


def _floor(case: Case) -> str:
    """The first engine without a known weakness."""
    return str(_entry(case.catalogue, "floors", "engine")["version"])


def _entry(catalogue: Catalogue, section: str, name: str) -> Entry:
    return next(one for one in catalogue.files.section("docker", section) if one.id == name)
