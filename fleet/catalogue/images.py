"""Images of containers: what the catalogue knows of a tag, and what it says of one that cannot exist.

Data in ``data/images.yaml``; what code an official image carries comes from its build of torch
(:mod:`fleet.catalogue.torch`). :meth:`Images.look_up` never guesses: a spelling that the release scripts cannot
have made is :class:`NoSuchTag`, one that they may have is :class:`NotInCatalogue`.
How tags are spelled is judged in :mod:`fleet.catalogue.image_tags`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from fleet.catalogue.entries import Entry, Files, Layer, Provenance
from fleet.catalogue.references import Reference
from fleet.catalogue.torch import TorchBuild, TorchBuilds, variant_of
from fleet.catalogue.versions import release
from fleet.core.errors import InputError

Flavour = Literal["runtime", "devel"]
#: ``catalogue``: an official tag; ``ngc``: one of NVIDIA's; ``inspected``: asked of the image itself; ``given``:
#: said by whoever asks, or by a site's own catalogue.
Origin = Literal["catalogue", "ngc", "inspected", "given"]

#: What stands between a verdict and the facts: a field of these that was not verified makes the image unverified.
DECISIVE = ("torch", "cuda", "arch_list", "ptx", "cudnn")
#: Those of them that an image has from its build of torch, where it does not say them itself.
FROM_BUILD = frozenset({"arch_list", "ptx", "cudnn"})

#: The provenance of an image of which nobody said where what is known of it comes from.
UNTOLD = Provenance((Layer("", frozenset(), {}, False, frozenset()),))


@dataclass(frozen=True)
class Image:
    """What is to run. Everything is None where it is not known.

    ``reference`` is the name with tag and digest, without Docker Hub's. ``cuda`` is the minor (12.8), which decides;
    ``cuda_release`` the update (12.8.1). ``arch_list`` and ``ptx`` are of x86-64, as compute capabilities;
    with an ``arch_list`` that is known, ``ptx`` None means that there is none. ``min_compute_capability`` is the oldest
    that there is code for, known of some images whose list is not. ``require_cuda`` is the image's
    NVIDIA_REQUIRE_CUDA: empty where it declares none; ``require`` its further NVIDIA_REQUIRE_*. ``aarch64``: what is
    there under this name for that processor, where it is no torch for GPUs. ``unverified`` names what was not verified.
    ``differs``: (field, what the catalogue has, what the image itself says), where the two are not the same.
    """

    reference: str
    origin: Origin
    torch: str | None = None
    cuda: str | None = None
    cuda_release: str | None = None
    variant: str | None = None
    arch_list: tuple[str, ...] | None = None
    arch_list_aarch64: tuple[str, ...] | None = None
    min_compute_capability: str | None = None
    ptx: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    flavour: Flavour | None = None
    python: str | None = None
    os: str | None = None
    glibc: str | None = None
    digest: str | None = None
    require_cuda: str | None = None
    require: tuple[str, ...] = ()
    compat_package: bool | None = None
    aarch64: Literal["cpu", "absent"] | None = None
    unverified: tuple[str, ...] = ()
    differs: tuple[tuple[str, str, str], ...] = ()
    note: str = ""
    provenance: Provenance = field(default=UNTOLD, compare=False, repr=False)

    @property
    def verified(self) -> bool:
        """Whether all that a verdict rests on was."""
        return not self.unverified

    @property
    def moves(self) -> bool:
        """Whether the name is another image tomorrow."""
        return Reference.parse(self.reference).moves


@dataclass(frozen=True)
class NoSuchTag:
    """A spelling that cannot exist. ``reason`` is a word for programs, ``why`` a sentence.

    ``proposal`` is the image meant, by a tag that the catalogue has; None where none is near.
    """

    reference: str
    reason: Literal["cudnn_suffix", "cuda_never_built", "spelling"]
    proposal: str | None
    why: str


@dataclass(frozen=True)
class NotInCatalogue:
    """An image that may well exist. ``nearest`` are tags that the catalogue has."""

    reference: str
    nearest: tuple[str, ...]
    why: str

    @property
    def moves(self) -> bool:
        """Whether the name is another image tomorrow: ``latest``."""
        return Reference.parse(self.reference).moves


def asked(reference: str, origin: Literal["inspected", "given"], source: str, **facts: object) -> Image:
    """An image of which somebody says what is in it: an inspection, or who asks. ``source`` in words.

    Raises InputError where the reference is none.
    """
    named = Reference.parse(reference)
    layer = Layer("", frozenset(facts), {"": source}, True, frozenset())
    values: dict[str, object] = {"digest": named.digest, **facts}
    return Image(str(named), origin, provenance=Provenance((layer,)), **values)  # type: ignore[arg-type]


class Images:
    """All images of a catalogue, official ones first."""

    def __init__(self, files: Files, builds: TorchBuilds) -> None:
        self.builds = builds
        self.mirrors: Mapping[str, str] = {
            entry.id: entry["of"] for entry in files.section("images", "mirrors")
        }
        self.never = files.section("images", "nonexistent")
        self.suffixes = files.section("images", "cudnn_suffixes")
        bases = files.section("images", "bases")
        asked = {one.id: _expression(one) for one in files.section("images", "requirements")}
        self.entries = files.section("images", "images")
        self.all = tuple(
            _image(entry, flavour, builds, bases, asked)
            for entry in self.entries
            for flavour in entry.get("flavours", (None,))
        )

    def look_up(self, reference: str) -> Image | NoSuchTag | NotInCatalogue:
        """What is known of an image. Raises InputError for what is no reference, or no version inside an official tag.

        A digest is kept and not compared: the catalogue has none, so it is the tag that is looked up.
        """
        from fleet.catalogue.image_tags import judged

        named = Reference.parse(reference)
        held = self.held(named)
        if held is None:
            return judged(self, named)
        return _renamed(held, named)

    def held(self, named: Reference) -> Image | None:
        """The image of this name and tag, whatever its digest, as the catalogue has it."""
        return self._by_reference.get(f"{self.plain(named.name)}:{named.tag}") if named.tag else None

    def find(self, reference: str) -> Image:
        """As :meth:`look_up`. Raises InputError where it is no image of the catalogue, with the right one if known."""
        found = self.look_up(reference)
        if isinstance(found, Image):
            return found
        near = (found.proposal,) if isinstance(found, NoSuchTag) else found.nearest
        hint = " or ".join(one for one in near if one)
        raise InputError(
            f"{found.reference}: {found.why}" + (f"; did you mean {hint}?" if hint else ""),
            remedy="fleet catalogue show image",
        )

    def plain(self, name: str) -> str:
        """A repository by the name that the catalogue has it under: mirrors hold the same images."""
        return self.mirrors.get(name, name)

    @cached_property
    def _by_reference(self) -> Mapping[str, Image]:
        return {one.reference: one for one in self.all}


def _renamed(held: Image, named: Reference) -> Image:
    """The image under the name that was asked for."""
    from dataclasses import replace

    if str(named) == held.reference:
        return held
    return replace(held, reference=str(named), digest=named.digest or held.digest)


def _expression(entry: Entry) -> str:
    """NVIDIA_REQUIRE_CUDA as the images of nvidia/cuda have it: this CUDA, or an older branch on some brands."""
    older = (
        f"brand={brand},driver>={branch},driver<{branch + 1}"
        for branch in entry["branches"]
        for brand in entry["brands"]
    )
    return " ".join((f"cuda>={entry.id}", *older))


def _require_cuda(entry: Entry, base: Entry | None, asked: Mapping[str, str]) -> str | None:
    """The entry's own, else its base's; of one on nvidia/cuda what that has for this CUDA."""
    if "require_cuda" in entry.fields:
        return str(entry["require_cuda"])
    if base is None:
        return None
    if "require_cuda" in base.fields:
        return str(base["require_cuda"])
    return asked.get(entry.get("cuda", "")) if base.get("compat_package") else None


def _image(
    entry: Entry,
    flavour: Flavour | None,
    builds: TorchBuilds,
    bases: tuple[Entry, ...],
    asked: Mapping[str, str],
) -> Image:
    torch, cuda = entry.get("torch"), entry.get("cuda")
    variant = entry.get("variant") or (variant_of(cuda) if cuda and "flavours" in entry.fields else None)
    build = builds.find(torch, variant) if torch and variant else None
    base = _base(bases, entry, flavour)
    arch_list = entry.get("arch_list")
    return Image(
        reference=f"{entry.id}-{flavour}" if flavour else entry.id,
        origin=entry.get("origin", "given"),
        torch=torch,
        cuda=cuda,
        cuda_release=entry.get("cuda_release") or (build.cuda_release if build else None),
        variant=variant,
        arch_list=tuple(arch_list) if arch_list else build.arch_list if build else None,
        arch_list_aarch64=_aarch64(entry, build),
        min_compute_capability=entry.get("min_compute_capability"),
        ptx=entry["ptx"] if "ptx" in entry.fields else build.ptx if build else None,
        cudnn=entry.get("cudnn") or (build.cudnn if build else None),
        nccl=entry.get("nccl") or (build.nccl if build else None),
        flavour=flavour or entry.get("flavour"),
        python=entry.get("python"),
        os=entry.get("os") or (base.get("os") if base else None),
        glibc=entry.get("glibc") or (base.get("glibc") if base else None),
        digest=entry.get("digest"),
        require_cuda=_require_cuda(entry, base, asked),
        require=tuple(entry.get("require", ())),
        compat_package=entry.get("compat_package", base.get("compat_package") if base else None),
        aarch64=entry.get("aarch64", base.get("aarch64") if base else None),
        unverified=tuple(_unverified(entry, build)),
        note=entry.get("note", ""),
        provenance=entry.provenance,
    )


def _base(bases: tuple[Entry, ...], entry: Entry, flavour: Flavour | None) -> Entry | None:
    """What official images of a flavour are built on. Newer releases have their own entry, the last that fits."""
    if flavour is None:
        return None
    torch = release(entry["torch"])
    fitting = [
        base
        for base in bases
        if base["flavour"] == flavour
        and torch >= release(base.get("torch_from", "0"))
        and ("torch_to" not in base.fields or torch <= release(base["torch_to"]))
    ]
    return fitting[-1] if fitting else None


def _aarch64(entry: Entry, build: TorchBuild | None) -> tuple[str, ...] | None:
    own = entry.get("arch_list_aarch64")
    if own:
        return tuple(own)
    return build.arch_list_aarch64 or None if build else None


def _unverified(entry: Entry, build: TorchBuild | None) -> Iterator[str]:
    """What was not verified, of the entry's own fields and of those that it has from its build.

    Of an official tag that was not seen anywhere it is the tag itself: what would be in it is known.
    """
    official = "flavours" in entry.fields
    if official and not entry.provenance.verified:
        yield "tag"
    for name in DECISIVE:
        if name in entry.fields:
            doubtful = entry.provenance.unverified_fields
            if name in doubtful or not (official or entry.provenance.vouches(name)):
                yield name
        elif build is not None and name in FROM_BUILD and not build.provenance.vouches(name):
            yield name
