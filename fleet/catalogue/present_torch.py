"""Builds of torch, images and cuDNN for people and programs, as :mod:`fleet.catalogue.present` has the other kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.images import Image
from fleet.catalogue.present import DOUBT, Kind, Line, Row, about, doubt, mark
from fleet.catalogue.references import Reference
from fleet.catalogue.torch import TorchBuild

_ORIGINS = {
    "catalogue": "an official tag",
    "ngc": "one of NVIDIA's",
    "given": "of this site",
    "inspected": "asked of the image itself",
}
_FORWARD = {
    True: "brings cuda-compat",
    False: "brings no cuda-compat",
    None: "whether it brings it is not known",
}


def _architectures(arch_list: Sequence[str] | None, ptx: str | None) -> str:
    """``7.5 8.0 9.0 and PTX of 9.0``."""
    if not arch_list:
        return "not known"
    return " ".join(arch_list) + (f" and PTX of {ptx}" if ptx else "")


def _torch_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            build.entry,
            " ".join(one.torch for one in builds),
            build.cuda,
            _architectures(build.arch_list, build.ptx),
            build.cudnn or "-",
            build.nccl or "-",
            f"{build.python[0]} to {build.python[-1]}",
            build.status + (", pip's" if build.pypi_default else ""),
            mark(build.provenance),
        )
        for builds in _by_entry(catalogue)
        for build in builds[:1]
    ]


def _by_entry(catalogue: Catalogue) -> Iterator[list[TorchBuild]]:
    """The builds of each entry, newest entry first."""
    found: dict[str, list[TorchBuild]] = {}
    for build in catalogue.torch.all:
        found.setdefault(build.entry, []).append(build)
    yield from reversed(found.values())


def _torch_key(catalogue: Catalogue, name: str) -> str:
    return catalogue.torch.named(name).entry


def _torch_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    build = catalogue.torch.named(name)
    known = build.provenance
    update = f" ({build.cuda_release}{doubt(known, 'cuda_release')})" if build.cuda_release else ""
    lines: list[Line] = [
        ("build", f"torch {build.torch} {build.variant}, {build.status}"),
        ("CUDA", f"{build.cuda}{update}"),
        *_needed_driver(catalogue, build.cuda),
        ("architectures", _architectures(build.arch_list, build.ptx) + doubt(known, "arch_list", "ptx")),
    ]
    if build.arch_list_aarch64:
        words = _architectures(build.arch_list_aarch64, build.ptx_aarch64)
        lines.append(("on ARM", words + doubt(known, "arch_list_aarch64")))
    for label, value, path in (
        ("cuDNN", build.cudnn, "cudnn"),
        ("NCCL", build.nccl, "nccl"),
        ("Triton", build.triton, "triton"),
    ):
        lines.append((label, value + doubt(known, path) if value else "not known"))
    lines += [
        ("Python", " ".join(build.python) + doubt(known, "python")),
        ("wheels", f"glibc {build.wheel_glibc} or newer on the host{doubt(known, 'wheel_glibc')}"),
    ]
    if build.pypi_default:
        lines.append(("pip", "what a plain pip install brings"))
    return [*lines, *about(known, build.note)]


def _needed_driver(catalogue: Catalogue, cuda: str | None) -> Iterator[Line]:
    """The drivers that a minor of CUDA needs, natively and at the least."""
    first = catalogue.cuda.first_of(cuda) if cuda else None
    if first is None:
        return
    native = f"{first.native_driver} on" if first.native_driver else f"of branch {first.branch} on"
    yield "driver", f"{native}{doubt(first.provenance, 'native_driver')}"
    floor = first.minor_version_floor
    if floor and (first.native_driver is None or floor < first.native_driver):
        yield "at the least", f"{floor}: precompiled code only, no PTX"


def _torch_derived(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    first = catalogue.cuda.first_of(catalogue.torch.named(name).cuda)
    return {
        "native_driver": str(first.native_driver) if first and first.native_driver else None,
        "minor_version_floor": str(first.minor_version_floor)
        if first and first.minor_version_floor
        else None,
    }


def _image_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (
            entry.id,
            "|".join(entry.get("flavours", ())) or "-",
            image.torch or "-",
            image.cuda or "-",
            _architectures(image.arch_list, image.ptx),
            image.cudnn or "-",
            "no: " + ", ".join(image.unverified) if image.unverified else "yes",
        )
        for entry in catalogue.images.entries
        for image in [_of_entry(catalogue, entry.id)]
    ]


def _of_entry(catalogue: Catalogue, entry: str) -> Image:
    """The image of an entry; of an official one its first flavour."""
    return next(one for one in catalogue.images.all if _entry_of(one) == entry)


def _entry_of(image: Image) -> str:
    """The id of the entry that a held image comes from."""
    return (
        image.reference.removesuffix(f"-{image.flavour}") if image.origin == "catalogue" else image.reference
    )


def _image_of(catalogue: Catalogue, name: str) -> Image:
    """By its name with tag, or by the id of its entry. Raises InputError, with the right name where one is near."""
    if any(entry.id == name for entry in catalogue.images.entries):
        return _of_entry(catalogue, name)
    return catalogue.images.find(name)


def _image_key(catalogue: Catalogue, name: str) -> str:
    found = _image_of(catalogue, name)
    return _entry_of(catalogue.images.held(Reference.parse(found.reference)) or found)


def _image_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    image = _image_of(catalogue, name)
    update = f" ({image.cuda_release})" if image.cuda_release else ""
    lines: list[Line] = [
        ("image", f"{image.reference}, {_ORIGINS[image.origin]}{_loose(image, 'tag')}"),
        ("torch", f"{image.torch or 'not known'}{_loose(image, 'torch')}"),
        ("CUDA", f"{image.cuda or 'not known'}{update}{_loose(image, 'cuda')}"),
        *_needed_driver(catalogue, image.cuda),
        ("architectures", _held_by(image) + _loose(image, "arch_list", "ptx")),
        ("cuDNN", f"{image.cudnn or 'not known'}{_loose(image, 'cudnn')}"),
        ("NCCL", image.nccl or "not known"),
        ("system", f"{image.os or 'not known'}{f', glibc {image.glibc}' if image.glibc else ''}"),
        ("forward", _FORWARD[image.compat_package]),
        ("requires", _requires(image)),
    ]
    return [*lines, *about(image.provenance, image.note)]


def _held_by(image: Image) -> str:
    if image.arch_list is None and image.min_compute_capability is not None:
        return f"not known, except that they begin with {image.min_compute_capability}"
    return _architectures(image.arch_list, image.ptx)


def _loose(image: Image, *names: str) -> str:
    return DOUBT if set(names) & set(image.unverified) else ""


def _requires(image: Image) -> str:
    if image.require_cuda is None:
        return "NVIDIA_REQUIRE_CUDA is not known"
    return image.require_cuda or "declares no NVIDIA_REQUIRE_CUDA"


def _image_derived(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    image = _image_of(catalogue, name)
    entry = _entry_of(image)
    return {
        "references": [one.reference for one in catalogue.images.all if _entry_of(one) == entry],
        "variant": image.variant,
        "arch_list": list(image.arch_list) if image.arch_list else None,
        "ptx": image.ptx,
        "cudnn": image.cudnn,
        "nccl": image.nccl,
        "unverified": list(image.unverified),
    }


def _cudnn_rows(catalogue: Catalogue, today: date) -> list[Row]:
    return [
        (one.id, one.first, one.last or "-", one.min_compute_capability, mark(one.provenance))
        for one in catalogue.cudnn.all
    ]


def _cudnn_key(catalogue: Catalogue, name: str) -> str:
    return catalogue.cudnn.find(name).id


def _cudnn_lines(catalogue: Catalogue, name: str, today: date) -> list[Line]:
    span = catalogue.cudnn.find(name)
    oldest = f"compute capability {span.min_compute_capability} on"
    return [
        ("cuDNN", f"{span.first} to {span.last or 'the newest'}"),
        ("GPUs", oldest + doubt(span.provenance, "min_compute_capability")),
        *about(span.provenance, span.note),
    ]


def _nothing(catalogue: Catalogue, name: str, today: date) -> dict[str, Any]:
    return {}


KINDS = {
    kind.word: kind
    for kind in (
        Kind(
            "torch",
            ("build", "releases", "CUDA", "architectures", "cuDNN", "NCCL", "Python", "status", "verified"),
            _torch_rows,
            _torch_key,
            _torch_lines,
            _torch_derived,
            ("torch", "builds"),
        ),
        Kind(
            "image",
            ("image", "flavours", "torch", "CUDA", "architectures", "cuDNN", "verified"),
            _image_rows,
            _image_key,
            _image_lines,
            _image_derived,
            ("images", "images"),
        ),
        Kind(
            "cudnn",
            ("cuDNN", "from", "to", "oldest CC", "verified"),
            _cudnn_rows,
            _cudnn_key,
            _cudnn_lines,
            _nothing,
            ("cudnn", "releases"),
        ),
    )
}
