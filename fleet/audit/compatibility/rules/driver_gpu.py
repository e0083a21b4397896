"""Does the driver serve the GPUs: known yet, known still, and with the right flavour of kernel modules?

A driver's number says nothing of that by itself: ``fleet/catalogue/data/gpus.yaml`` has which branches know an
architecture, from when on a product is listed, and which modules run it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.compatibility.rule import AuditRule, Case, KnownBad, rule, with_caveat
from fleet.audit.compatibility.subject import Subject
from fleet.audit.findings import Finding, Severity
from fleet.audit.gpus import at_odds, best_branch, flavour_fits
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.gpus import Gpu
from fleet.catalogue.versions import Version

_GTX_1080_TI = {"gpus.0.device_id": "1b06", "gpus.0.subsystem_id": "3752"}
_B200 = {"gpus.0.device_id": "2901", "gpus.0.subsystem_id": "1999"}
_OLD = {"driver.loaded.version": "520.61.05"}


@rule("audit.driver.floor_gpu", known_bad=KnownBad(_OLD))
def floor_gpu(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The driver knows every GPU of the host, and NVIDIA lists the GPU for it."""
    driver = case.subject.driver
    if not isinstance(driver, Version):
        return
    for gpu, known in case.subject.known_gpus():
        support = known.support(driver)
        if support not in ("too_old", "not_listed", "unknown"):
            continue
        what, limit, source, severity = _floor(known, driver, support, case.catalogue)
        for place in gpu.places:
            yield self.finding(
                what,
                observed=driver.text,
                limit=limit,
                source=source,
                remedy=_serving(case.subject),
                severity=severity,
                gpu=place,
            )


def _floor(
    known: Gpu, driver: Version, support: str, catalogue: Catalogue
) -> tuple[str, str | None, str, Severity | None]:
    """Sentence, limit, source and severity where it is not an error."""
    family = known.architecture
    if support == "too_old":
        return _before_its_family(known, driver)
    if support == "not_listed":
        field = next(name for name in ("first_listed", "min_driver", "first_branch") if getattr(known, name))
        floor = str(getattr(known, field))
        return (
            with_caveat(
                f"driver {driver} does not list {known.name}: NVIDIA supports it from {floor} on",
                known.provenance.caveat(field),
            ),
            floor,
            known.provenance.source(field),
            None,
        )
    newest = _newest_listed(known, catalogue)
    late = newest is not None and driver >= newest
    return (
        f"from which driver on {known.name} is listed is not in the catalogue; {driver} knows {family.name}",
        None,
        family.provenance.source("first_branch"),
        Severity.INFO if late else Severity.UNKNOWN,
    )


def _before_its_family(known: Gpu, driver: Version) -> tuple[str, str, str, None]:
    """The GPU's own floor, where it is known: its family's first branch may not have it yet."""
    family = known.architecture
    what = f"driver {driver} does not know {family.name} ({known.name}): "
    field = next((name for name in ("first_listed", "min_driver") if getattr(known, name)), None)
    if field is None:
        what += f"branch {family.first_branch} is the first that does"
        caveat, limit = family.provenance.caveat("first_branch"), str(family.first_branch)
        return with_caveat(what, caveat), limit, family.provenance.source("first_branch"), None
    floor = str(getattr(known, field))
    what += f"NVIDIA supports it from {floor} on"
    return with_caveat(what, known.provenance.caveat(field)), floor, known.provenance.source(field), None


def _newest_listed(known: Gpu, catalogue: Catalogue) -> Version | None:
    """The driver by which every other product of the architecture was listed, as far as that is known."""
    same = (one for one in catalogue.gpus.all if one.architecture.id == known.architecture.id)
    floors = [floor for one in same if (floor := one.first_listed or one.min_driver) is not None]
    return max(floors, default=None)


@rule(
    "audit.driver.ceiling",
    known_bad=KnownBad({"driver.loaded.version": "595.91.07", **_GTX_1080_TI}),
)
def ceiling(self: AuditRule, case: Case) -> Iterator[Finding]:
    """The driver's branch still has the architecture of every GPU of the host."""
    driver = case.subject.driver
    if not isinstance(driver, Version):
        return
    for gpu, known in case.subject.known_gpus():
        if known.support(driver) != "dropped":
            continue
        family = known.architecture
        what = (
            f"driver {driver} does not have {family.name} ({known.name}) any more: {family.last_branch} is the last"
            " branch"
        )
        for place in gpu.places:
            yield self.finding(
                with_caveat(what, family.provenance.caveat("last_branch")),
                observed=driver.text,
                limit=f"up to {family.last_branch}",
                source=family.provenance.source("last_branch"),
                remedy=_serving(case.subject),
                gpu=place,
            )


@rule(
    "audit.driver.modules_required_open",
    known_bad=KnownBad({"driver.loaded.flavour": "proprietary", **_B200}),
)
def required_open(self: AuditRule, case: Case) -> Iterator[Finding]:
    """GPUs that run with open kernel modules alone have open ones."""
    yield from _flavour(self, case, "proprietary", "runs with open kernel modules only", "open")


@rule("audit.driver.modules_impossible_open", known_bad=KnownBad(_GTX_1080_TI))
def impossible_open(self: AuditRule, case: Case) -> Iterator[Finding]:
    """GPUs that open kernel modules do not run have proprietary ones."""
    yield from _flavour(self, case, "open", "does not run with open kernel modules", "proprietary")


def _flavour(self: AuditRule, case: Case, wrong: str, words: str, right: str) -> Iterator[Finding]:
    if case.subject.modules != wrong:
        return
    odd = at_odds(case.subject.host_gpus, case.catalogue)
    for gpu, known in case.subject.known_gpus():
        if known.open_kernel_modules is None or flavour_fits(known, wrong):
            continue
        for place in gpu.places:
            yield self.finding(
                with_caveat(
                    f"{known.name} {words}, and the {wrong} ones are in use",
                    known.provenance.caveat("open_kernel_modules"),
                ),
                observed=wrong,
                limit=right,
                source=known.provenance.source("open_kernel_modules"),
                remedy="see audit.mixed.impossible: another GPU of this host does not run with them"
                if odd
                else f"install the same driver with {right} modules: nvidia_driver_modules: {right}",
                gpu=place,
            )


def _serving(subject: Subject) -> str:
    """The driver to take: the newest of the best branch that serves every GPU of the host."""
    best = best_branch(subject.host_gpus, catalogue=subject.catalogue)
    branch = subject.catalogue.drivers.branch(best) if best is not None else None
    if branch is None:
        return "take a GPU out: no driver serves all that are here"
    return f"driver {branch.latest} (branch {branch.number})"
