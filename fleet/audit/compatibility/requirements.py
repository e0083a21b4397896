"""NVIDIA_REQUIRE_CUDA and its like: what an image asks of driver and GPU, and whether a host has that.

An expression such as ``cuda>=12.8 brand=tesla,driver>=550,driver<551``: terms between spaces are alternatives, and of a
term every part between commas must hold. Several variables must all hold, for every GPU. Who evaluates it is
nvidia-container-cli (NVIDIA/libnvidia-container src/cli/dsl.c), from the left and no further than it has to: what it
cannot read is an error where it gets there. Who calls that program is :mod:`.starting`.

The brand is what NVML calls a product's line. The catalogue has its segment, of which several brands are possible: an
answer that depends on which it is, is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from fleet.audit.compatibility.subject import Subject
from fleet.catalogue.gpus import Gpu
from fleet.catalogue.versions import Version

SOURCE = (
    "NVIDIA/cloud-native-docs container-toolkit/docker-specialized.md (NVIDIA_REQUIRE_*, NVIDIA_DISABLE_REQUIRE);"
    " NVIDIA/libnvidia-container src/cli/dsl.c and configure.c"
)

_PART = re.compile(r"(?P<name>[^<>=!]+)(?P<operator>[<>=!]+)(?P<value>[^<>=!]+)")
_VERSION = re.compile(r"[0-9.]*[0-9][0-9.]*")
_COMPARE: Mapping[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "!=": lambda sign: sign != 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}
#: Brands that NVML may give a product of a segment, without what licensed virtual GPUs are called.
_BRANDS = {
    "consumer": ("geforce", "geforcertx", "titan", "titanrtx"),
    "datacenter": ("tesla", "nvidia"),
    "workstation": ("quadro", "quadrortx", "nvidiartx", "nvidia"),
}


class Unreadable(Exception):
    """A part that nvidia-container-cli cannot evaluate: the container is not started, either."""


@dataclass(frozen=True)
class Properties:
    """What expressions ask for, of one GPU. None: not known."""

    cuda: str | None
    driver: str | None
    arch: str | None
    brand: str | None


@dataclass(frozen=True)
class Unmet:
    """An expression that does not hold. ``gpu`` is the product; ``sure`` is False where it may hold after all."""

    expression: str
    gpu: str
    sure: bool
    unreadable: str = ""

    @property
    def first(self) -> str:
        """Its first term, which is what nvidia-container-cli complains of."""
        return next(iter(self.expression.split()), "")


def holds(expression: str, properties: Properties) -> bool | None:
    """Whether an expression holds; None where that depends on what is not known. Raises :class:`Unreadable`."""
    terms = [[part for part in term.split(",") if part] for term in expression.split(" ")]
    seen: list[bool | None] = []
    for term in filter(None, terms):
        seen.append(_all(term, properties))
        if seen[-1]:
            return True
    if not seen:
        return True
    return None if None in seen else False


def _all(parts: Sequence[str], properties: Properties) -> bool | None:
    found: bool | None = True
    for part in parts:
        one = _part(part, properties)
        if one is False:
            return False
        found = found and one
    return found


def _part(text: str, properties: Properties) -> bool | None:
    match = _PART.fullmatch(text)
    compare = _COMPARE.get(match["operator"]) if match else None
    if match is None or compare is None:
        raise Unreadable(text)
    name, value = match["name"].lower(), match["value"]
    if name not in ("cuda", "driver", "arch", "brand"):
        raise Unreadable(text)
    there: str | None = getattr(properties, name)
    if name == "brand":
        if match["operator"] not in ("=", "!="):
            raise Unreadable(text)
        return None if there is None else compare(0 if there.lower() == value.lower() else 1)
    if _VERSION.fullmatch(value) is None:
        raise Unreadable(text)
    return None if there is None else compare(_sign(there, value))


def _sign(left: str, right: str) -> int:
    """Below 0, 0 or above: versions number by number, what is missing counts as 0."""
    numbers = [[int(one) for one in text.split(".") if one] for text in (left, right)]
    for one, other in zip_longest(*numbers, fillvalue=0):
        if one != other:
            return -1 if one < other else 1
    return 0


def unmet(requirements: Sequence[str], subject: Subject) -> Iterator[Unmet]:
    """The first expression of each GPU that its host does not meet, or may not. A driver must be known."""
    driver = subject.driver
    if not isinstance(driver, Version):
        return
    branch = subject.catalogue.drivers.branch_of(driver)
    cuda = branch.max_cuda if branch is not None else None
    for _, gpu in subject.known_gpus():
        worlds = [Properties(cuda, driver.text, gpu.compute_capability, brand) for brand in brands(gpu)]
        for expression in requirements:
            found = _unmet(expression, gpu, worlds)
            if found is not None:
                yield found
                break


def brands(gpu: Gpu) -> tuple[str | None, ...]:
    """What NVML may call a product's brand; (None,) where nobody knows."""
    return _BRANDS.get(gpu.segment, (None,))


def _unmet(expression: str, gpu: Gpu, worlds: Sequence[Properties]) -> Unmet | None:
    try:
        answers = {holds(expression, world) for world in worlds}
    except Unreadable as error:
        return Unmet(expression, gpu.name, True, unreadable=str(error))
    return None if answers == {True} else Unmet(expression, gpu.name, answers == {False})
