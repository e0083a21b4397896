"""Where an audit's facts come from: hosts asked now, their newest stored reports, a folder of reports, a question.

All four give a :class:`HostAudit` per host, which keeps what rules read and not the facts themselves: ten thousand
reports would fill gigabytes. :mod:`fleet.run.audit` judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fleet.agent import strict_json
from fleet.agent.facts import KEYS_OF
from fleet.audit.benchmarks.watch import TRAINING_BYTES_PER_PARAMETER
from fleet.audit.compatibility.inspected import inspected
from fleet.audit.compatibility.subject import Subject, subject_of
from fleet.audit.health.age import age_s
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.images import Image
from fleet.catalogue.references import Reference
from fleet.core.errors import FleetError, HostFailed, InputError, Problem
from fleet.core.schema import faults, named_by, readable, upcast
from fleet.core.secret import Scrubber
from fleet.inventory import Host, LoadOptions
from fleet.report.summary import facts_words
from fleet.run.asking import Asked, chosen_hosts, unread
from fleet.run.images.access import Access, access_of
from fleet.store import Store

Facts = Mapping[str, Any]
#: A reference -> what the agent's query image_configuration answers. Raises FleetError.
Look = Callable[[str], Mapping[str, Any]]

#: The groups of facts that compatibility rules read, beside those that say who the host is.
FACT_GROUPS = (
    "identity", "os_release", "kernel", "packages", "gpus", "driver", "interconnect", "container_toolkit", "engine",
    "services", "checks",
)  # fmt: skip
#: Parts of the facts that come from other groups.
NOT_READ = tuple(key for group, keys in KEYS_OF.items() if group not in FACT_GROUPS for key in keys)
#: Documents in a folder that hold facts, by the name in their field ``schema``.
_WITH_FACTS = ("report", "agent-report", "facts")


@dataclass
class HostAudit:
    """What is known of one host. ``subject`` is None where nothing is; ``error`` says why, if something went wrong.

    ``image`` is the one that the inventory wants on it; ``needs_bytes`` the memory that its model needs on one GPU;
    ``found``: an image that was inspected there; ``held``: the digest under which its engine has the image that is
    asked for. ``look`` asks the host's engine for an image's configuration; ``access``: how its registry may be asked.
    ``stale``: the report is older than it may be (:func:`outdate`).
    """

    name: str
    image: str | None = None
    needs_bytes: int | None = None
    subject: Subject | None = None
    gpus: tuple[tuple[str | None, str], ...] = ()
    summary: tuple[str, ...] = ()
    simulated: bool | None = None
    collected_at: str | None = None
    run: str | None = None
    root: bool | None = None
    notes: list[str] = field(default_factory=list)
    found: Image | None = None
    held: str | None = None
    look: Look | None = None
    access: Callable[[], Access] | None = None
    stale: bool = False
    error: FleetError | None = None

    @property
    def judgeable(self) -> bool:
        """Whether something is known of it that may be believed."""
        return self.subject is not None and self.error is None and not self.stale


class _Alike:
    """One object for what many hosts have in common. ``catalogue`` is what all of them are judged by."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._known: dict[Any, Any] = {}

    def __call__(self, value: Any) -> Any:
        return self._known.setdefault(value, value)


def live(
    asked: Asked, load: LoadOptions, scrubber: Scrubber, catalogue: Catalogue, seek: str | None = None
) -> list[HostAudit]:
    """Read the facts of every host now. Raises InputError before any host is asked."""
    from fleet.run.images.on_host import configuration_on  # SSH: no other source needs it
    from fleet.run.live import LiveFacts

    hosts = chosen_hosts(asked, load)
    audits, alike = {host.name: _started(host) for host in hosts}, _Alike(catalogue)
    for host in hosts:
        audits[host.name].look = partial(configuration_on, host, scrubber, asked.how)
    with LiveFacts(hosts, FACT_GROUPS, scrubber, asked.how) as reading:
        for one in reading.each():
            audit = audits[one.host]
            audit.error, audit.root = one.error, one.as_root
            audit.notes += [one.note] if one.note is not None else []
            if one.facts is not None:
                _taken(audit, one.facts, alike, seek)
    return list(audits.values())


def stored(
    asked: Asked, load: LoadOptions, store: Store, catalogue: Catalogue, seek: str | None = None
) -> list[HostAudit]:
    """The newest report of every host in the store; a host without one has no subject."""
    audits = {host.name: _started(host) for host in chosen_hosts(asked, load)}
    alike = _Alike(catalogue)
    for name, run, facts in store.newest_facts(audits, without=NOT_READ):
        audits[name].run = run
        _taken(audits[name], facts, alike, seek)
    return list(audits.values())


def of_folder(
    folder: Path, asked: Asked | None, load: LoadOptions, catalogue: Catalogue, seek: str | None = None
) -> list[HostAudit]:
    """The newest report of every host among the files of a folder; with an inventory, of its hosts.

    Raises InputError for a folder without reports, and for files that are not JSON.
    """
    audits = {host.name: _started(host) for host in chosen_hosts(asked, load)} if asked else {}
    alike, newest, problems = _Alike(catalogue), dict[str, str](), list[Problem]()
    for path in sorted(folder.rglob("*.json")):
        try:
            document = strict_json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            problems.append(Problem(None, f"{path} cannot be read as JSON: {error}"))
            continue
        for name, run, facts in _facts_in(path, document):
            at = str(facts.get("collected_at") or "")
            if (asked and name not in audits) or at < newest.get(name, ""):
                continue
            newest[name] = at
            audits[name] = _taken(_again(audits.get(name), name, run), facts, alike, seek)
    if problems:
        raise InputError(problems)
    if not newest:
        raise InputError(
            f"{folder} has no report of {'these hosts' if asked else 'a host'}",
            remedy="it takes files that fleet writes: reports/RUN, or fleet report RUN HOST --json > HOST.json",
        )
    return [audits[name] for name in (audits if asked else sorted(audits))]


def _facts_in(path: Path, document: Any) -> Iterator[tuple[str, str | None, Facts]]:
    """(host, run, facts) of a document that has some; nothing for any other."""
    try:
        kind, _ = named_by(document)
    except InputError:
        return
    if kind not in _WITH_FACTS:
        return
    lifted = upcast(document)
    facts = lifted if kind == "facts" else lifted.get("facts")
    if isinstance(facts, Mapping):
        hostname = (facts.get("identity") or {}).get("hostname")
        yield str(lifted.get("host") or hostname or path.stem), lifted.get("run"), facts


def _again(before: HostAudit | None, name: str, run: str | None) -> HostAudit:
    if before is None:
        return HostAudit(name, run=run)
    return HostAudit(name, before.image, before.needs_bytes, run=run, access=before.access)


def question(subject: Subject, name: str) -> list[HostAudit]:
    """The one host that somebody asks about."""
    gpus: tuple[tuple[str | None, str], ...] = tuple((None, gpu.name) for gpu in subject.products)
    return [HostAudit(name, subject=subject, gpus=gpus)]


def outdate(audits: Iterable[HostAudit], max_age_s: float, now_unix: float) -> None:
    """Mark the reports that are older than they may be, or of which nobody knows how old they are."""
    for audit in audits:
        age = age_s({"collected_at": audit.collected_at}, now_unix)
        audit.stale = audit.subject is not None and (age is None or age > max_age_s)


# -- what is kept of facts, and what an inventory says ----------------------------------------------


def _taken(audit: HostAudit, facts: Facts, alike: _Alike, seek: str | None = None) -> HostAudit:
    """What rules read of a host's facts, and of ``seek``, the image asked for. Bad facts cost that host only."""
    if not readable(facts, "facts"):
        wrong = [one for one in faults(facts, "facts", tolerant=True) if "missing: " not in one.message]
        audit.error = HostFailed(
            f"what is known of it does not follow schema facts: {next(iter(wrong), '')}",
            remedy="fleet schema check tells all that is wrong with a report; fleet audit INVENTORY asks anew",
        )
        return audit
    audit.subject = alike(subject_of(facts, alike.catalogue))
    audit.gpus = alike(_gpus(audit.subject))
    audit.summary = alike(tuple(facts_words(facts)))
    audit.simulated = facts.get("simulated")
    audit.collected_at = facts.get("collected_at")
    audit.notes += unread(facts)
    audit.found = alike(inspected(facts))
    audit.held = held_digest(facts, seek or audit.image)
    return audit


def held_digest(facts: Facts, reference: str | None) -> str | None:
    """The digest by which a host's engine has an image: the one that is asked for, else that of the tag.

    None where it has none such, or by several digests.
    """
    if reference is None:
        return None
    name, _, digest = reference.partition("@")
    tag = name.rpartition(":")[2]
    for image in (facts.get("engine") or {}).get("images") or ():
        if digest:
            if digest in (image.get("digests") or ()):
                return digest
            continue
        names = [one for one in image.get("tags") or () if one.endswith(f":{tag}")]
        if any(same_image(one, reference) for one in names):
            digests = image.get("digests") or []
            return str(digests[0]) if len(digests) == 1 else None
    return None


def same_image(one: str, other: str) -> bool:
    """Whether two references are of one name and tag, however they spell Docker Hub."""
    try:
        first, second = Reference.parse(one), Reference.parse(other)
    except InputError:
        return False
    return (first.name, first.tag) == (second.name, second.tag)


def _gpus(subject: Subject) -> tuple[tuple[str | None, str], ...]:
    return tuple(sorted((place or "", gpu.name) for gpu in subject.products for place in gpu.places))


def _started(host: Host) -> HostAudit:
    return HostAudit(host.name, wanted_image(host), model_bytes(host), access=partial(access_of, host))


def wanted_image(host: Host) -> str | None:
    """The image that the inventory wants on a host, with its digest; None where it says nothing of one."""
    reference = host.variables.get("image")
    if reference is None:
        return None
    text = str(host.templar.render(reference))
    digest = host.variables.get("image_digest")
    pinned = str(host.templar.render(digest)) if digest else ""
    return f"{text}@{pinned}" if pinned and "@" not in text else text


def model_bytes(host: Host) -> int | None:
    """What the inventory's ``training_model`` needs on one GPU; None where it names none."""
    model = host.variables.get("training_model")
    billions = model.get("parameters_b") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(billions, (int, float)):
        return None
    each = float(model.get("bytes_per_parameter", TRAINING_BYTES_PER_PARAMETER))
    return int(billions * each * 1e9)
