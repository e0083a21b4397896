"""The rules for builds of torch, cuDNN and images, as :mod:`fleet.catalogue.lint_rules` has the other ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from fleet.catalogue.data_files import within
from fleet.catalogue.entries import Entry, Files
from fleet.catalogue.image_tags import Tag
from fleet.catalogue.images import DECISIVE
from fleet.catalogue.lint_rules import Fault, Rule
from fleet.catalogue.references import Reference
from fleet.catalogue.torch import variant_of
from fleet.catalogue.versions import release
from fleet.core.errors import InputError

#: Files whose entries must say why they were not verified, and the fields for which that holds one by one.
NOTED = ("torch", "cudnn", "images", "advisories", "runtimes")
NOTED_FIELDS = frozenset({*DECISIVE, "min_compute_capability", "fixed_in", "end_of_life"})


@dataclass(frozen=True)
class Known:
    """What builds and images may name: toolkits (12.8.1), their minors, compute capabilities, and for which of
    these a minor makes code (from, up to).
    """

    toolkits: frozenset[str]
    capabilities: frozenset[str]
    compiled: Mapping[str, tuple[str | None, str | None]]

    def has_minor(self, cuda: str) -> bool:
        """Whether a minor (12.8) has a toolkit."""
        return any(f"{one}.".startswith(f"{cuda}.") for one in self.toolkits)


def builds(files: Files) -> Iterator[Fault]:
    """The CUDA of a build exists and makes code for its architectures; PTX is of one of them; names agree."""
    known = _known(files)
    for entry in files.section("torch", "builds"):
        for message in (*_build(entry, known), *_arch_lists(entry, known)):
            yield Fault("torch", "builds", entry.id, message)


def _build(entry: Entry, known: Known) -> Iterator[str]:
    if entry["variant"] != variant_of(entry["cuda"]):
        yield f"builds for CUDA {entry['cuda']} are called {variant_of(entry['cuda'])}, not {entry['variant']}"
    yield from _cuda(entry, known)
    for torch in entry.get("triton", {}):
        if torch not in entry["versions"]:
            yield f"triton: {torch} is not one of its versions"


def _cuda(entry: Entry, known: Known) -> Iterator[str]:
    """What is wrong with ``cuda`` and ``cuda_release``, of a build or of an image."""
    minor, update = entry.get("cuda"), entry.get("cuda_release")
    if minor is not None and not known.has_minor(minor):
        yield f"there is no CUDA {minor} in cuda.yaml"
    if update is None:
        return
    if minor is None or not release(update).begins_with(release(minor)):
        yield f"cuda_release {update} is not of CUDA {minor}"
    elif update not in known.toolkits:
        yield f"cuda_release {update}: there is no such toolkit in cuda.yaml"


def _arch_lists(entry: Entry, known: Known) -> Iterator[str]:
    """What is wrong with the architectures, of a build or of an image."""
    for name, ptx in (("arch_list", "ptx"), ("arch_list_aarch64", "ptx_aarch64")):
        found = entry.get(name, [])
        for one in found:
            if one not in known.capabilities:
                yield f"{name}: no GPU in the catalogue has compute capability {one}"
            elif entry.get("cuda") and not within(entry["cuda"], *known.compiled.get(one, (None, None))):
                yield f"{name}: CUDA {entry['cuda']} makes no code for {one}"
        if any(release(second) <= release(first) for first, second in pairwise(found)):
            yield f"{name}: must go from the oldest to the newest"
        if found and entry.get(ptx) is not None and entry[ptx] not in found:
            yield f"{ptx} {entry[ptx]} is not of {name}"


def one_build_each(files: Files) -> Iterator[Fault]:
    """A release and variant belong to one entry, and pip brings one variant of a release."""
    owners: dict[tuple[str, str], str] = {}
    defaults: dict[str, str] = {}
    for entry in files.section("torch", "builds"):
        for torch in entry["versions"]:
            other = owners.setdefault((torch, entry["variant"]), entry.id)
            if other != entry.id:
                yield Fault("torch", "builds", entry.id, f"{other} is {torch} {entry['variant']} too")
            if entry.get("pypi_default") and defaults.setdefault(torch, entry.id) != entry.id:
                yield Fault("torch", "builds", entry.id, f"pip brings {defaults[torch]} of {torch}")


def cudnn_spans(files: Files) -> Iterator[Fault]:
    """Spans of cuDNN do not overlap, and end after they begin."""
    entries = sorted(files.section("cudnn", "releases"), key=lambda one: release(one["first"]))
    for entry in entries:
        if "last" in entry.fields and release(entry["last"]) < release(entry["first"]):
            yield Fault("cudnn", "releases", entry.id, f"ends ({entry['last']}) before it begins")
    for before, after in pairwise(entries):
        if "last" not in before.fields or release(before["last"]) >= release(after["first"]):
            yield Fault("cudnn", "releases", after.id, f"{before.id} covers {after['first']} too")


def images(files: Files) -> Iterator[Fault]:
    """An image is a reference, an official one spelled as its fields say; its build and its CUDA exist."""
    known = _known(files)
    variants = {
        (torch, entry["variant"]) for entry in files.section("torch", "builds") for torch in entry["versions"]
    }
    for entry in files.section("images", "images"):
        for message in (*_image(entry, known, variants), *_arch_lists(entry, known)):
            yield Fault("images", "images", entry.id, message)


def _image(entry: Entry, known: Known, variants: set[tuple[str, str]]) -> Iterator[str]:
    if "flavours" in entry.fields:
        yield from _official(entry, variants)
    else:
        yield from _reference(entry.id)
    if entry.get("variant") and (entry.get("torch"), entry["variant"]) not in variants:
        yield f"there is no build of torch {entry.get('torch')} {entry['variant']} in torch.yaml"
    yield from _cuda(entry, known)


def _official(entry: Entry, variants: set[tuple[str, str]]) -> Iterator[str]:
    if entry["origin"] != "catalogue":
        yield f"origin {entry['origin']}: only official tags have flavours"
    torch, minor = entry.get("torch"), entry.get("cuda")
    try:
        tag = Tag.parse(f"{entry.id.rpartition(':')[2]}-runtime")
    except InputError as error:
        yield error.what
        return
    if tag is None or (str(tag.torch), str(tag.cuda)) != (torch, minor):
        yield f"the tag does not say torch {torch} and CUDA {minor}"
    elif (torch, variant_of(str(minor))) not in variants:
        yield f"there is no build of torch {torch} for CUDA {minor} in torch.yaml"


def _reference(text: str) -> Iterator[str]:
    try:
        named = Reference.parse(text)
    except InputError as error:
        yield error.what
        return
    if str(named) != text:
        yield f"the name must be spelled {named}"


def image_spelling(files: Files) -> Iterator[Fault]:
    """Official tags have the cuDNN of their torch; what does not exist is not held, what it means is."""
    held = {entry.id for entry in files.section("images", "images")}
    spans = files.section("images", "cudnn_suffixes")
    for entry in files.section("images", "images"):
        tag = _tag(entry) if "flavours" in entry.fields else None
        if tag is not None and not any(_fits(tag, span) for span in spans):
            yield Fault("images", "images", entry.id, "the tag does not have the cuDNN of its torch")
    for entry in files.section("images", "nonexistent"):
        if entry.id in held:
            yield Fault("images", "nonexistent", entry.id, "is among the images")
        if entry["correct"] not in held:
            yield Fault("images", "nonexistent", entry.id, f"{entry['correct']} is not among the images")
    names = {one.rpartition(":")[0] for one in held}
    for entry in files.section("images", "mirrors"):
        if entry["of"] not in names:
            yield Fault("images", "mirrors", entry.id, f"there are no images of {entry['of']}")


def _tag(entry: Entry) -> Tag | None:
    """The parts of an official entry's tag; None where they cannot be read, which :func:`images` finds."""
    try:
        return Tag.parse(f"{entry.id.rpartition(':')[2]}-runtime")
    except InputError:
        return None


def _fits(tag: Tag, span: Entry) -> bool:
    """Whether a tag has the cuDNN that a span of releases of torch has."""
    first, last = release(span["torch_from"]), release(span.get("torch_to", "9999"))
    return first <= tag.torch <= last and tag.cudnn == release(span["cudnn"])


def unverified_with_reason(files: Files) -> Iterator[Fault]:
    """What was not verified, and decides, says in a note why or what is known of it."""
    for file, section in files.sections():
        for entry in files.section(file, section) if file in NOTED else ():
            loose = NOTED_FIELDS & set(entry.provenance.unverified_fields)
            if (loose or not entry.provenance.verified) and not entry.get("note"):
                what = f"{', '.join(sorted(loose))}: not verified" if loose else "not verified"
                yield Fault(file, section, entry.id, f"{what}, and no note says why")


def _known(files: Files) -> Known:
    compiled = files.section("cuda", "compute_capabilities")
    architectures = files.section("gpus", "architectures")
    return Known(
        frozenset(entry.id for entry in files.section("cuda", "toolkits")),
        frozenset(
            (
                *(entry.id for entry in compiled),
                *(one for entry in architectures for one in entry["compute_capabilities"]),
            )
        ),
        {entry.id: (entry.get("first_cuda"), entry.get("last_cuda")) for entry in compiled},
    )


TORCH_RULES: tuple[Rule, ...] = (
    builds,
    one_build_each,
    cudnn_spans,
    images,
    image_spelling,
    unverified_with_reason,
)
