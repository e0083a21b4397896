"""The smallest change that makes an image run on a host, and what else that change would break.

Changes are tried by how few they are and then by how little they disturb. The image that was asked for is what is
wanted: another one comes last, where no change of the host makes this one run. A change is judged by the same rules
as the host itself, so a remedy is proved, not looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from itertools import combinations, product

from fleet.audit.compatibility.best_image import PTX
from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.rule import Asked
from fleet.audit.compatibility.subject import Program, Subject
from fleet.audit.compatibility.verdict import judge
from fleet.audit.compatibility.whatif import Change, changed, common_choices, has
from fleet.audit.findings import Finding, Severity
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.container_toolkit import toolkit_floor, toolkit_versions
from fleet.catalogue.drivers import TYPE_NAMES, Branch
from fleet.catalogue.images import Image, NoSuchTag, NotInCatalogue
from fleet.catalogue.versions import Version, release

#: Kinds of change, the least disturbing first; another image than the one that is wanted, last.
KINDS = ("toolkit", "cdi", "fabric_manager", "docker", "driver_of_branch", "driver_of_other_branch", "image")
_BAD = (Severity.ERROR, Severity.UNKNOWN)
_MOST = 3


@dataclass(frozen=True)
class Step:
    """One change of a remedy: ``name`` (driver, image …), ``to`` (the version), and as people say it."""

    name: str
    to: str
    words: str


@dataclass(frozen=True)
class Remedy:
    """``steps`` in the order to make them; ``clears``: ids of rules; ``would_break``: findings that come with it."""

    change: Change
    steps: tuple[Step, ...]
    clears: tuple[str, ...]
    would_break: tuple[Finding, ...]


@dataclass(frozen=True)
class Option:
    """One thing that could be changed, of a kind; ``leaves``: what would still be bad with it alone."""

    kind: str
    change: Change
    leaves: frozenset[str]


@lru_cache(maxsize=50_000)
def smallest(subject: Subject, image: Asked, options: Options) -> Remedy | None:
    """The smallest change after which the image runs; None where it runs now, and where no change here would do."""
    before = judge(subject, image, options).findings
    bad = _bad(before, options)
    if not bad:
        return None
    useful: list[Option] = []
    second: Option | None = None  # clears all, but then only PTX makes the image run
    for option in _options(subject, image, options.on):
        if second is not None and option.kind != second.kind:
            break
        after = judge(*changed(subject, image, option.change), options).findings
        leaves = _bad(after, options)
        if not leaves and not any(one.id == PTX for one in after):
            return _remedy(subject, image, option.change, options)
        if not leaves:
            second = second or option
        elif leaves < bad:
            useful.append(replace(option, leaves=leaves))
    if second is not None:
        return _remedy(subject, image, second.change, options)
    for size in range(2, _MOST + 1):
        for change in _together(useful, size, bad):
            if not _leaves(subject, image, change, options):
                return _remedy(subject, image, change, options)
    return None


def _together(useful: Sequence[Option], size: int, bad: frozenset[str]) -> Iterator[Change]:
    """Changes of several kinds at once that may clear all, the least disturbing first."""
    kinds = [kind for kind in KINDS if any(option.kind == kind for option in useful)]
    for some in combinations(kinds, size):
        if {"driver_of_branch", "driver_of_other_branch"} <= set(some):
            continue
        for chosen in product(*([option for option in useful if option.kind == kind] for kind in some)):
            if not frozenset.intersection(*(option.leaves for option in chosen)):
                yield _sum([option.change for option in chosen])


def _sum(changes: Sequence[Change]) -> Change:
    return Change(**{name: value for change in changes for name, value in change.items()})


def _bad(findings: Sequence[Finding], options: Options) -> frozenset[str]:
    """What keeps the image from running, each with the GPU that it is about."""
    counted = _BAD[:1] if options.allow_unknown else _BAD
    return frozenset(f"{one.id} {one.gpu or ''}" for one in findings if one.severity in counted)


def _leaves(subject: Subject, image: Asked, change: Change, options: Options) -> frozenset[str]:
    after = judge(*changed(subject, image, change), options)
    return _bad(after.findings, options)


def _remedy(subject: Subject, image: Asked, change: Change, options: Options) -> Remedy:
    before = judge(subject, image, options).findings
    after = judge(*changed(subject, image, change), options).findings
    left = {one.id for one in after}
    there = {(one.id, one.gpu) for one in before}
    return Remedy(
        change,
        tuple(_steps(subject, image, change)),
        tuple(dict.fromkeys(one.id for one in before if one.id not in left)),
        tuple(one for one in after if one.severity is not Severity.INFO and (one.id, one.gpu) not in there),
    )


# -- what could be changed --------------------------------------------------------------------------


def _options(subject: Subject, image: Asked, on: date) -> Iterator[Option]:
    """All there is to try, in the order of :data:`KINDS`; of alternatives the nearest first."""
    known = subject.catalogue
    nothing = frozenset[str]()
    for toolkit in dict.fromkeys((toolkit_floor(known.files), toolkit_versions(known.files)[-1])):
        if not isinstance(subject.toolkit, Version) or subject.toolkit < toolkit:
            yield Option("toolkit", Change(toolkit=toolkit.text), nothing)
    if isinstance(subject.driver, Version):
        yield Option("cdi", Change(cdi=subject.driver.text), nothing)
        if subject.fabric_manager != subject.driver:
            yield Option("fabric_manager", Change(fabric_manager=subject.driver.text), nothing)
    engine = engine_floor(known)
    if not isinstance(subject.engine, Program) or subject.engine.version < engine:
        yield Option("docker", Change(docker=engine.text), nothing)
    yield from _drivers(subject, on)
    for one in nearest_images(image, known):
        yield Option("image", Change(image=one.reference), nothing)


def _drivers(subject: Subject, on: date) -> Iterator[Option]:
    """The newest driver of each branch that serves every GPU: its own branch, then the one that lasts longest."""
    if not subject.has_gpus:
        return
    known = subject.catalogue
    own = subject.driver.major if isinstance(subject.driver, Version) else None
    serving = {branch for branch, _ in common_choices(subject)}
    for branch in sorted(known.drivers.all, key=lambda one: _branch_rank(one, own, known, on)):
        if branch.number in serving and branch.latest != subject.driver:
            kind = "driver_of_branch" if branch.number == own else "driver_of_other_branch"
            yield Option(kind, Change(driver=branch.latest.text), frozenset())


def _branch_rank(branch: Branch, own: int | None, known: Catalogue, on: date) -> tuple[bool, bool, int, int]:
    kinds = ("long_term", "production", "new_feature")
    supported = known.drivers.support(branch, on) == "supported"
    return branch.number != own, not supported, kinds.index(branch.type), -branch.number


def nearest_images(image: Asked, known: Catalogue) -> Iterator[Image]:
    """Official images, the nearest first: the one that was meant, the same torch for another CUDA, then other torch.

    One for each set of code: another tag with the same code would not run either.
    """
    meant = image.proposal if isinstance(image, NoSuchTag) else None
    near = image.nearest if isinstance(image, NotInCatalogue) else ()
    official = [one for one in known.images.all if one.origin == "catalogue" and one.torch and one.cuda]
    flavour = image.flavour if isinstance(image, Image) and image.flavour else "runtime"
    torch = image.torch if isinstance(image, Image) else None
    releases = list(known.torch.releases())
    place = releases.index(torch) if torch in releases else len(releases) - 1

    def rank(one: Image) -> tuple[bool, bool, int, bool, list[int]]:
        away = releases.index(str(one.torch)) - place if one.torch in releases else 0
        distance = 2 * abs(away) - (away > 0)  # of two as near the newer one
        cuda = [-number for number in release(str(one.cuda)).numbers]
        return one.reference != meant, one.reference not in near, distance, not one.verified, cuda

    seen = set()
    for one in sorted((one for one in official if one.flavour == flavour), key=rank):
        code = (one.cuda, one.arch_list, one.ptx, one.cudnn)
        if code not in seen and one != image:
            seen.add(code)
            yield one


def engine_floor(known: Catalogue) -> Version:
    """The first Docker Engine with every fix that the catalogue knows of."""
    floors = {one.id: one for one in known.files.section("docker", "floors")}
    return release(floors["engine"]["version"])


# -- in words ---------------------------------------------------------------------------------------


def _steps(subject: Subject, image: Asked, change: Change) -> Iterator[Step]:
    """In the order to make them: the host first, then what runs on it."""
    order = ("driver", "fabric_manager", "docker", "toolkit", "cdi", "image")
    said = dict(change.items())
    for name in order:
        if name in said:
            yield Step(name, said[name], _words(name, said[name], subject, image))


def _words(name: str, to: str, subject: Subject, image: Asked) -> str:
    if name == "image":
        before = image.reference if image is not None else ""
        repository, _, tag = to.rpartition(":")
        return f"image {tag}" if before.startswith(f"{repository}:") else f"image {to}"
    if name == "driver":
        return f"driver {to}{_lasting(subject.catalogue.drivers.branch_of(to))}{_flavour(subject, to)}"
    if name == "docker":
        return f"{'docker' if has(subject.engine) else 'install docker'} {to}"
    if name == "toolkit":
        words = "nvidia-container-toolkit"
        return f"{words if has(subject.toolkit) else 'install ' + words} {to}"
    if name == "cdi":
        return f"nvidia-ctk cdi generate for driver {to}"
    return f"nvidia-fabricmanager {to}"


def _lasting(branch: Branch | None) -> str:
    if branch is None:
        return ""
    until = f" until {branch.end_of_life}" if branch.end_of_life else ""
    return f" ({TYPE_NAMES[branch.type]}{until})"


def _flavour(subject: Subject, to: str) -> str:
    """The kernel modules, where they have to be another flavour than now."""
    after, _ = changed(subject, None, Change(driver=to))
    if after.modules == subject.modules or not isinstance(after.modules, str):
        return ""
    return f", {after.modules} kernel modules"
