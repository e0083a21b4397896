"""The newest official image for a whole fleet; where none runs everywhere, one for each of as few groups as may be.

Hosts are judged as they are (or as ``--what-if`` has them): an image is not called fit because another driver would
make it so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.subject import Subject
from fleet.audit.compatibility.verdict import judge
from fleet.audit.findings import Severity
from fleet.catalogue.catalogue import Catalogue, load
from fleet.catalogue.images import Image
from fleet.catalogue.versions import release

RUNS = ("runs", "runs_with_warnings")
#: The rule that says that an image has no code for a GPU, and PTX alone.
PTX = "audit.image.ptx"


@dataclass(frozen=True)
class Best:
    """``one`` image for all hosts, if there is one; else ``groups``, and why each of the ``refused`` has none.

    With ``one`` there is one group, of all hosts.
    """

    one: Image | None
    groups: tuple[tuple[Image, tuple[str, ...]], ...]
    refused: Mapping[str, str]


def best(
    subjects: Mapping[str, Subject],
    options: Options,
    *,
    flavour: str = "runtime",
    catalogue: Catalogue | None = None,
) -> Best:
    """The best images for hosts by name. ``flavour``: runtime or devel."""
    known = catalogue or next((subject.catalogue for subject in subjects.values()), None) or load()
    newest = _unlike(candidates(flavour, known), options)
    alike: dict[Subject, list[str]] = {}
    for name, subject in subjects.items():
        alike.setdefault(subject, []).append(name)
    runs = {subject: _running(subject, newest, options) for subject in alike}
    refused = {
        name: _refusal(subject, newest, options)
        for subject, names in alike.items()
        if not runs[subject]
        for name in names
    }
    groups = _groups({subject: runs[subject] for subject in alike if runs[subject]}, alike)
    found = tuple(
        (newest[place], tuple(name for name in subjects if name in names)) for place, names in groups
    )
    one = found[0][0] if len(found) == 1 and not refused else None
    return Best(one, found, refused)


def _running(subject: Subject, newest: list[Image], options: Options) -> frozenset[int]:
    """Places of the images that run on a host; those with code for its GPUs, if there are any.

    What only PTX makes run is compiled at its first start, and libraries may have none: no image to choose.
    """
    verdicts = {place: judge(subject, image, options) for place, image in enumerate(newest)}
    runs = {place: verdict for place, verdict in verdicts.items() if verdict.status in RUNS}
    native = frozenset(
        place for place, verdict in runs.items() if not any(one.id == PTX for one in verdict.findings)
    )
    return native or frozenset(runs)


def candidates(flavour: str, known: Catalogue) -> list[Image]:
    """Official images, the newest first; one that was not verified only after those of its release that were."""
    official = [
        image
        for image in known.images.all
        if image.origin == "catalogue" and image.flavour == flavour and image.torch and image.cuda
    ]
    return sorted(
        official,
        key=lambda image: (
            release(str(image.torch)).numbers,
            image.verified,
            release(str(image.cuda)).numbers,
        ),
        reverse=True,
    )


def _unlike(newest: list[Image], options: Options) -> list[Image]:
    """Of images that hosts cannot tell apart the newest. On a host itself the release of torch counts, too."""
    if options.where == "host":
        return newest
    plain = dict.fromkeys(("torch", "cuda_release", "nccl", "python", "os"))
    found: dict[Image, Image] = {}
    for image in newest:
        found.setdefault(replace(image, reference="", note="", **plain), image)  # type: ignore[arg-type]
    return list(found.values())


def _groups(
    runs: Mapping[Subject, frozenset[int]], alike: Mapping[Subject, list[str]]
) -> list[tuple[int, frozenset[str]]]:
    """Places of images and the hosts of each, newest image first: greedily the image that serves most hosts left."""
    left, chosen = set(runs), list[int]()
    while left:
        served: dict[int, int] = {}
        for subject in left:
            for place in runs[subject]:
                served[place] = served.get(place, 0) + len(alike[subject])
        place = min(served, key=lambda one: (-served[one], one))
        chosen.append(place)
        left = {subject for subject in left if place not in runs[subject]}
    members: dict[int, list[Subject]] = {}
    for subject, places in runs.items():
        members.setdefault(min(place for place in chosen if place in places), []).append(subject)
    newest = {place: _newest(group, runs) for place, group in members.items()}
    return sorted(
        (newest[place], frozenset(name for subject in group for name in alike[subject]))
        for place, group in members.items()
    )


def _newest(group: list[Subject], runs: Mapping[Subject, frozenset[int]]) -> int:
    """The newest image that runs on all of a group: hosts that went to another group may have held it back."""
    return min(frozenset.intersection(*(runs[subject] for subject in group)))


def _refusal(subject: Subject, newest: list[Image], options: Options) -> str:
    """In one sentence: why there is no image for a host."""
    verdicts = [judge(subject, image, options) for image in newest]
    findings = [one for verdict in verdicts for one in verdict.findings if one.severity is Severity.ERROR]
    for one in findings:
        if one.id == "audit.mixed.impossible":
            return one.what
    nearest = min(
        verdicts, key=lambda one: sum(f.severity in (Severity.ERROR, Severity.UNKNOWN) for f in one.findings)
    )
    worst = [one for one in nearest.findings if one.severity in (Severity.ERROR, Severity.UNKNOWN)]
    gpus = " and ".join(gpu.name for gpu in subject.products) or "this host"
    return f"no official image runs on {gpus}: {worst[0].what}" if worst else f"no official image for {gpus}"
