"""How an image's CUDA gets on with a driver, and its code with a GPU: asked by several rules and by remedies."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from fleet.audit.compatibility.rule import Case
from fleet.audit.compatibility.subject import NOTHING, Subject
from fleet.catalogue.catalogue import Catalogue
from fleet.catalogue.cuda import Fit, ForwardCompatibility, Toolkit
from fleet.catalogue.gpus import Gpu
from fleet.catalogue.images import Image
from fleet.catalogue.versions import Version, release

#: ``code``: compiled for the GPU; ``ptx``: the driver has to compile it; ``none``: neither; ``unknown``.
Code = Literal["code", "ptx", "none", "unknown"]

#: From this version on the container toolkit activates an image's own cuda-compat package.
COMPAT_SINCE = release("1.17.5")
COMPAT_SOURCE = "NVIDIA/nvidia-container-toolkit CHANGELOG: the enable-cuda-compat hook, from 1.17.5 on"

_CAPABILITY = re.compile(r"(\d+)\.(\d+)([a-z]*)")


@cache
def minor_of(cuda: str, catalogue: Catalogue) -> Toolkit | None:
    """The first general release of a CUDA minor (12.8): driver API and PTX change with the minor alone.

    Where NVIDIA's table has none of that minor, the first that is known.
    """
    minor = release(".".join(cuda.split(".")[:2]))
    fitting = [one for one in catalogue.cuda.all if one.version.begins_with(minor)]
    table = [one for one in fitting if one.native_basis == "table"]
    return next(iter(table or fitting), None)


def toolkit_of(image: Image | None, catalogue: Catalogue) -> Toolkit | None:
    """What an image's CUDA needs; None where the image, or its CUDA, is not known."""
    return minor_of(image.cuda, catalogue) if image is not None and image.cuda is not None else None


def fit(case: Case) -> Fit | None:
    """How the image gets on with the loaded driver; None where either is not known."""
    needed, driver = toolkit_of(case.image, case.catalogue), case.subject.driver
    return needed.fit(driver) if needed is not None and isinstance(driver, Version) else None


def forward(case: Case) -> ForwardCompatibility | None:
    """The cuda-compat package by which an image runs on a driver that is too old, where it has it and may use it."""
    image, driver = case.image, case.subject.driver
    if image is None or image.cuda is None or not isinstance(driver, Version) or not brings_compat(image):
        return None
    package = case.catalogue.cuda.forward_package(image.cuda, driver.major)
    if package is None or not _eligible(case.subject) or not _activated(case):
        return None
    return package


def brings_compat(image: Image) -> bool:
    """Whether NVIDIA's cuda-compat package is in an image."""
    return bool(image.compat_package)


def _eligible(subject: Subject) -> bool:
    """Whether NVIDIA's forward compatibility covers every GPU: those of data centres alone."""
    gpus = subject.products
    return bool(gpus) and all(gpu.known is not None and gpu.known.segment == "datacenter" for gpu in gpus)


def _activated(case: Case) -> bool:
    """Whether the container toolkit, where it was asked for, makes use of the package."""
    toolkit = case.subject.toolkit
    if case.options.where == "host" or toolkit is NOTHING:
        return False
    return not isinstance(toolkit, Version) or toolkit >= COMPAT_SINCE


def code_for(image: Image, gpu: Gpu, architecture: object = None, *, wheel: bool = False) -> Code:
    """Whether an image carries code for a GPU. Of another processor than x86-64 its own list counts.

    Of official images the builds' lists are of the wheels (``wheel``: it is these that are asked for): for aarch64 the
    image itself has torch for the CPU alone, or there is none (:attr:`Image.aarch64`).
    """
    if architecture == "aarch64" and image.aarch64 is not None and not wheel:
        return "none"
    if image.arch_list is None:
        oldest = image.min_compute_capability
        return "none" if oldest is not None and gpu.capability < _capability(oldest) else "unknown"
    wanted = image.arch_list
    if architecture == "aarch64":
        if image.arch_list_aarch64 is None or (image.origin == "catalogue" and not wheel):
            return "unknown"
        wanted = image.arch_list_aarch64
    if any(_runs_on(one, gpu.capability) for one in wanted):
        return "code"
    if image.ptx is not None and _capability(image.ptx) <= gpu.capability:
        return "ptx"
    return "none"


def _runs_on(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether compiled code runs: same major, and no newer minor. Code for 9.0a runs on 9.0 alone."""
    match = _CAPABILITY.fullmatch(architecture)
    if match is None:
        return False
    major, minor = int(match[1]), int(match[2])
    if match[3]:
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]


def _capability(text: str) -> tuple[int, int]:
    match = _CAPABILITY.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else (99, 0)
