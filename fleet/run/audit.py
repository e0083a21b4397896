"""Does an image run on these hosts? Judges what :mod:`fleet.run.audit_sources` gives, and makes one document of it.

The document (schemas/audit.schema.json) is what ``--json`` prints; table and Markdown are made from it
(:mod:`fleet.report.audit`). It has no time of its own: of the same facts, on the same day, it is the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.audit.compatibility.best_image import Best, best
from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.remedy import Remedy, smallest
from fleet.audit.compatibility.rule import Asked as AskedImage
from fleet.audit.compatibility.subject import Subject
from fleet.audit.compatibility.verdict import Verdict, judge
from fleet.audit.compatibility.whatif import Change, changed
from fleet.audit.findings import Finding
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.images import Image, NoSuchTag
from fleet.core.errors import ExitCode, FleetError, overall
from fleet.report.audit_causes import causes, counts
from fleet.run.audit_sources import HostAudit
from fleet.run.images import Inspector

SCHEMA = "fleet.audit/1"
NO_REPORT, NO_GPU = "no_report", "no_gpu"
UNREACHABLE, FAILED, STALE = "unreachable", "failed", "stale"


@dataclass(frozen=True)
class Wanted:
    """What is asked of every host. ``image`` None: the one that the inventory wants on it, if any.

    ``one_job``: the hosts work on one job together. ``best``: also name the best image.
    """

    image: str | None = None
    change: Change = field(default_factory=Change)
    options: Options = field(default_factory=Options)
    one_job: bool = False
    best: bool = False
    fail_on: str = "error"


@dataclass(frozen=True)
class Judged:
    """One host with its verdict, where it has one: of a host that is known, by no stale report, and has GPUs.

    Of a host without GPUs only an image that cannot exist is judged: that holds wherever it is to run.
    """

    host: HostAudit
    image: AskedImage = None
    verdict: Verdict | None = None
    remedy: Remedy | None = None

    @property
    def status(self) -> str:
        """One word."""
        error = self.host.error
        if error is not None:
            return UNREACHABLE if error.exit_code is ExitCode.UNREACHABLE else FAILED
        if self.host.subject is None:
            return NO_REPORT
        if self.host.stale:
            return STALE
        return NO_GPU if self.verdict is None else self.verdict.status

    def exit_code(self, fail_on: str, allow_unknown: bool) -> ExitCode:
        """What it contributes to fleet's exit code: nothing known is not running."""
        if self.host.error is not None:
            return self.host.error.exit_code
        bad = {"does_not_run", NO_REPORT, STALE}
        bad |= set() if allow_unknown else {"unknown"}
        bad |= {"runs_with_warnings"} if fail_on == "warning" else set()
        return ExitCode.FINDINGS if self.status in bad else ExitCode.DONE


def judged(
    hosts: Sequence[HostAudit], wanted: Wanted, catalogue: Catalogue, inspector: Inspector | None = None
) -> list[Judged]:
    """The verdict on every host. ``inspector`` says what an image is; without one, catalogue and hosts' facts do.

    Raises InputError for an image's name that is none, and what the inspector raises.
    """
    look_up = _LookUp(hosts, wanted.image, inspector or Inspector(catalogue.images))
    options = wanted.options
    if wanted.one_job:
        products = {gpu.id for host in hosts if host.subject for gpu in host.subject.products if gpu.id}
        options = replace(options, job_groups=(tuple(sorted(products)),))
    return [_judged(host, look_up(host), wanted.change, options) for host in hosts]


def _judged(host: HostAudit, image: AskedImage, change: Change, options: Options) -> Judged:
    if host.subject is None or not host.judgeable:
        return Judged(host, image)
    if host.needs_bytes is not None and options.intended_memory_bytes is None:
        options = replace(options, intended_memory_bytes=host.needs_bytes)
    subject, image = changed(host.subject, image, change)
    if subject.gpus == ():
        if not isinstance(image, NoSuchTag):
            return Judged(host, image)
        subject = Subject(gpus=(), catalogue=subject.catalogue)  # all else is not asked
    verdict = judge(subject, image, options)
    return Judged(host, image, verdict, smallest(subject, image, options))


class _LookUp:
    """The image of a host, each name looked into once."""

    def __init__(self, hosts: Sequence[HostAudit], image: str | None, inspector: Inspector) -> None:
        self._image = image
        self._inspector = inspector
        self._found = {one.found.digest: one for one in hosts if one.found is not None}
        self._known: dict[str, AskedImage] = {}
        if image is not None:
            self._known[image] = inspector(image, hosts)

    def __call__(self, host: HostAudit) -> AskedImage:
        reference = self._image or host.image
        if reference is None:
            return None
        if reference not in self._known:
            try:
                self._known[reference] = self._inspector(reference, self._who_knows(host, reference))
            except FleetError as error:
                error.host = host.name
                raise
        return self._known[reference]

    def _who_knows(self, host: HostAudit, reference: str) -> list[HostAudit]:
        """The host, and one where a container of the same digest was checked."""
        checked = self._found.get(reference.partition("@")[2] or host.held)
        if checked is None or checked is host:
            return [host]
        return [host, replace(checked, held=None, look=None)]  # what it holds is its own image


# -- the document -----------------------------------------------------------------------------------


def document(
    found: Sequence[Judged], wanted: Wanted, catalogue: Catalogue, *, source: str, inventory: str | None
) -> dict[str, Any]:
    """All of it, as ``--json`` prints it. ``source``: live, store, folder or question."""
    shown = _Shown()
    hosts = [shown.host(one) for one in found]
    allow_unknown = wanted.options.allow_unknown
    codes = (one.exit_code(wanted.fail_on, allow_unknown) for one in found)
    return {
        "schema": SCHEMA,
        "as_of": wanted.options.on.isoformat(),
        "source": source,
        "inventory": inventory,
        "image": wanted.image,
        "what_if": dict(wanted.change.items()) or None,
        "where": wanted.options.where,
        "fail_on": wanted.fail_on,
        "allow_unknown": allow_unknown,
        "exit_code": int(overall(codes)),
        "counts": counts(hosts),
        "reports": _reports(found, source),
        "best_image": _best(found, wanted, catalogue) if wanted.best else None,
        "causes": causes(hosts),
        "hosts": hosts,
    }


def _reports(found: Sequence[Judged], source: str) -> dict[str, Any] | None:
    """The oldest and the newest report; None where no report was read."""
    if source not in ("store", "folder"):
        return None
    times = [one.host.collected_at for one in found if one.host.collected_at is not None]
    return {"oldest": min(times, default=None), "newest": max(times, default=None)}


class _Shown:
    """Hosts for the document. What many of them have in common is one object, made once."""

    def __init__(self) -> None:
        self._findings: dict[int, list[dict[str, Any]]] = {}
        self._remedies: dict[int, dict[str, Any]] = {}

    def host(self, one: Judged) -> dict[str, Any]:
        host = one.host
        return {
            "name": host.name,
            "status": one.status,
            "image": one.image.reference if one.image is not None else None,
            "simulated": host.simulated,
            "collected_at": host.collected_at,
            "run": host.run,
            "root": host.root,
            "summary": list(host.summary),
            "gpus": _gpus(one),
            "findings": self._findings_of(one.verdict),
            "smallest_change": self._remedy_of(one.remedy),
            "notes": host.notes,
            "error": _error(one)[0],
            "error_remedy": _error(one)[1],
        }

    def _findings_of(self, verdict: Verdict | None) -> list[dict[str, Any]]:
        if verdict is None:
            return []
        if id(verdict) not in self._findings:
            self._findings[id(verdict)] = [_finding(one) for one in verdict.findings]
        return self._findings[id(verdict)]

    def _remedy_of(self, remedy: Remedy | None) -> dict[str, Any] | None:
        if remedy is None:
            return None
        if id(remedy) not in self._remedies:
            self._remedies[id(remedy)] = {
                "changes": [{"what": step.name, "to": step.to, "words": step.words} for step in remedy.steps],
                "clears": list(remedy.clears),
                "would_break": [_finding(one) for one in remedy.would_break],
            }
        return self._remedies[id(remedy)]


def _finding(finding: Finding) -> dict[str, Any]:
    shown = finding.as_json()
    del shown["needs_leave"]  # an audit asks for no leave: it changes nothing
    return {**shown, "gpu": finding.gpu}


def _error(one: Judged) -> tuple[str | None, str | None]:
    error = one.host.error
    if error is not None:
        return error.what, error.remedy
    if one.status == NO_REPORT:
        return "there is no report of it", "fleet audit INVENTORY asks the host itself"
    if one.status == STALE:
        collected = one.host.collected_at
        what = (
            f"its report is of {collected}, older than --max-age"
            if collected
            else "nobody knows how old its report is"
        )
        return what, "fleet audit INVENTORY asks the host itself"
    return None, None


def _gpus(one: Judged) -> list[dict[str, Any]]:
    """Every GPU with the worst that is said of it, or of its host as a whole."""
    if one.verdict is None:
        return []
    whole = _worst([each for each in one.verdict.findings if each.gpu is None])
    status = {
        address: _worst([each for each in one.verdict.findings if each.gpu == address])
        for address in {address for address, _ in one.host.gpus if address}
    }
    return [
        {
            "address": address or None,
            "name": name,
            "status": _STATUS[min(whole, status.get(address or "", 3))],
        }
        for address, name in one.host.gpus
    ]


_STATUS = ("does_not_run", "unknown", "runs_with_warnings", "runs")
_PLACE = {"error": 0, "unknown": 1, "warning": 2, "info": 3}


def _worst(findings: Sequence[Finding]) -> int:
    return min((_PLACE[one.severity.value] for one in findings), default=3)


def _best(found: Sequence[Judged], wanted: Wanted, catalogue: Catalogue) -> dict[str, Any]:
    """The best image for the hosts that have GPUs and are known; refused hosts by their reason."""
    change = replace(wanted.change, image=None)
    subjects: dict[str, Subject] = {
        one.host.name: changed(one.host.subject, None, change)[0]
        for one in found
        if one.host.subject is not None and one.host.judgeable and one.host.subject.gpus != ()
    }
    flavour = next((one.image.flavour for one in found if isinstance(one.image, Image)), None)
    chosen: Best = best(subjects, wanted.options, flavour=flavour or "runtime", catalogue=catalogue)
    return {
        "one": chosen.one.reference if chosen.one is not None else None,
        "groups": [{"image": image.reference, "hosts": list(names)} for image, names in chosen.groups],
        "refused": _by_reason(chosen.refused),
    }


def _by_reason(refused: Mapping[str, str]) -> list[dict[str, Any]]:
    same: dict[str, list[str]] = {}
    for name, why in refused.items():
        same.setdefault(why, []).append(name)
    return [{"hosts": names, "why": why} for why, names in same.items()]
