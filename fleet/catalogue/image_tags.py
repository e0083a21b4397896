"""How official tags are spelled, and what that says of one that the catalogue does not have.

The release scripts make ``TORCH-cudaMAJOR.MINOR-cudnnMAJOR-(runtime|devel)`` for every CUDA that a release of torch
is built for, with one cuDNN for all. So a cuDNN that the release does not have, or a CUDA that it was never built
for, cannot be in a tag (:class:`~fleet.catalogue.images.NoSuchTag`); a pair that was built may have a tag that the
catalogue does not hold (:class:`~fleet.catalogue.images.NotInCatalogue`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from fleet.catalogue.images import Flavour, Image, Images, NoSuchTag, NotInCatalogue
from fleet.catalogue.references import Reference
from fleet.catalogue.torch import variant_of
from fleet.catalogue.versions import Version, release
from fleet.core.errors import InputError

#: The repository that the release scripts push to.
OFFICIAL = "pytorch/pytorch"

_SHAPE = re.compile(r"(?P<torch>[^-]*)-cuda(?P<cuda>[^-]*)-cudnn(?P<cudnn>[^-]*)-(?P<flavour>[^-]*)")
_FLAVOURS: tuple[Flavour, ...] = ("runtime", "devel")


@dataclass(frozen=True)
class Tag:
    """The parts of an official tag, as written."""

    torch: Version
    cuda: Version
    cudnn: Version
    flavour: str

    def __str__(self) -> str:
        return f"{self.torch}-cuda{self.cuda}-cudnn{self.cudnn}-{self.flavour}"

    @classmethod
    def parse(cls, tag: str) -> Tag | None:
        """None for what is not in the shape of an official tag. Raises InputError for a version that is none."""
        match = _SHAPE.fullmatch(tag)
        if match is None:
            return None
        try:
            return cls(
                release(match["torch"]), release(match["cuda"]), release(match["cudnn"]), match["flavour"]
            )
        except InputError as error:
            raise InputError(f"tag {tag!r}: {error.what}", remedy=error.remedy) from None


def judged(images: Images, named: Reference) -> NoSuchTag | NotInCatalogue:
    """What there is to say of an image that the catalogue does not hold."""
    tag = Tag.parse(named.tag) if named.tag and images.plain(named.name) == OFFICIAL else None
    if tag is None:
        return _unknown(images, named)
    explicit = _never(images, named, tag)
    if explicit is not None:
        return explicit
    wrong = _misspelt(tag) or _wrong_cudnn(images, tag) or _never_built(images, tag)
    if wrong is None:
        return _not_held(images, named, tag)
    reason, why = wrong
    near = _nearest(images, tag)
    proposal = f"{named.name}:{near.reference.rpartition(':')[2]}" if near else None
    if (
        near is not None
        and reason != "cuda_never_built"
        and near.cuda != ".".join(map(str, tag.cuda.numbers[:2]))
    ):
        why += f"; of those that the catalogue has, the nearest is for CUDA {near.cuda}"
    return NoSuchTag(str(named), reason, proposal, why)


Wrong = tuple[Literal["cudnn_suffix", "cuda_never_built", "spelling"], str]


def _never(images: Images, named: Reference, tag: Tag) -> NoSuchTag | None:
    """A tag that the catalogue says does not exist, with the one that is right instead."""
    for entry in images.never:
        if f"{OFFICIAL}:{tag}" in {f"{entry.id}-{flavour}" for flavour in _FLAVOURS}:
            right = f"{named.name}:{entry['correct'].rpartition(':')[2]}-{tag.flavour}"
            return NoSuchTag(str(named), entry["reason"], right, entry["why"])
    return None


def _misspelt(tag: Tag) -> Wrong | None:
    if tag.flavour not in _FLAVOURS:
        return "spelling", f"official tags end in runtime or devel, not in {tag.flavour or 'nothing'}"
    if len(tag.cuda.numbers) != 2:
        return "spelling", f"official tags name the minor of CUDA alone, not {tag.cuda}"
    if len(tag.cudnn.numbers) != 1:
        return "spelling", f"official tags name the major of cuDNN alone, not {tag.cudnn}"
    if len(tag.torch.numbers) != 3 and tag.torch >= release("1.13"):
        return "spelling", f"official tags name a release of torch in full, not {tag.torch}"
    return None


def _wrong_cudnn(images: Images, tag: Tag) -> Wrong | None:
    """Whether the cuDNN is another than that of the release. Of a newer torch than is known it may be a newer one."""
    right = _suffix(images, tag.torch)
    newest = release(images.builds.releases()[-1])
    if right is None or tag.cudnn == right or (tag.torch > newest and tag.cudnn > right):
        return None
    return (
        "cudnn_suffix",
        f"images of torch {tag.torch} have cuDNN {right}, whichever the CUDA, so their tags say cudnn{right}",
    )


def _suffix(images: Images, torch: Version) -> Version | None:
    """The cuDNN in the tags of a release; None for a release from before the catalogue begins."""
    for entry in images.suffixes:
        if torch >= release(entry["torch_from"]) and torch <= release(entry.get("torch_to", "9999")):
            return release(entry["cudnn"])
    return None


def _never_built(images: Images, tag: Tag) -> Wrong | None:
    """Whether the release was not built for this CUDA. A release that is not known may have been."""
    built = images.builds.of(str(tag.torch))
    if not built or any(one.variant == variant_of(str(tag.cuda)) for one in built):
        return None
    cudas = " and ".join(filter(None, (", ".join(one.cuda for one in built[:-1]), built[-1].cuda)))
    return "cuda_never_built", f"torch {tag.torch} was never built for CUDA {tag.cuda}, but for {cudas}"


def _nearest(images: Images, tag: Tag) -> Image | None:
    """The held image nearest to what was meant: the same torch and flavour, the CUDA the same or near."""
    return min(
        _held(images, tag), key=lambda one: _distance(tag.cuda, release(one.cuda or "0")), default=None
    )


def _held(images: Images, tag: Tag) -> list[Image]:
    """The held official images of the same torch and flavour; of a torch without its last number, its newest."""
    flavour = tag.flavour if tag.flavour in _FLAVOURS else "runtime"
    fitting = [
        one
        for one in images.all
        if one.origin == "catalogue"
        and one.flavour == flavour
        and release(one.torch or "0").begins_with(tag.torch)
    ]
    newest = max((release(one.torch or "0") for one in fitting), default=None)
    return [one for one in fitting if release(one.torch or "0") == newest]


def _distance(wanted: Version, cuda: Version) -> tuple[bool, bool, tuple[int, ...]]:
    """The same first, then the next above within the major, then the next below; other majors last."""
    below = cuda < wanted
    return cuda.major != wanted.major, below, tuple(-one if below else one for one in cuda.numbers)


def _not_held(images: Images, named: Reference, tag: Tag) -> NotInCatalogue:
    held = [one for one in images.all if one.origin == "catalogue" and one.flavour == tag.flavour]
    held.sort(key=lambda one: (_far(tag.torch, one), _distance(tag.cuda, release(one.cuda or "0"))))
    nearest = tuple(f"{named.name}:{one.reference.rpartition(':')[2]}" for one in held[:3])
    return NotInCatalogue(str(named), nearest, "the tag is well spelled, but the catalogue does not have it")


def _far(torch: Version, image: Image) -> tuple[int, int, int]:
    """How far an image's torch is from another, number by number."""
    ours, theirs = (*torch.numbers, 0, 0), release(image.torch or "0").numbers
    first, second, third = (abs(a - b) for a, b in zip(ours, theirs, strict=False))
    return first, second, third


def _unknown(images: Images, named: Reference) -> NotInCatalogue:
    """Another repository, or a tag that is in no official shape."""
    plain = images.plain(named.name)
    same = [one for one in images.all if one.reference.rpartition(":")[0] == plain]
    same = [one for one in same if one.verified] or same
    if not same:
        return NotInCatalogue(str(named), (), f"the catalogue has no image of {named.name}")
    newest = [f"{named.name}:{one.reference.rpartition(':')[2]}" for one in same if one.flavour != "devel"][
        -3:
    ]
    if named.tag is None or (named.tag == "latest" and named.digest):
        why = "a digest alone does not say what is in the image, and the catalogue has no digests"
    elif named.tag == "latest":
        why = "latest is another image from time to time, so the catalogue does not say what is in it"
    else:
        why = f"the catalogue does not have the tag {named.tag}"
    return NotInCatalogue(str(named), tuple(reversed(newest)), why)
