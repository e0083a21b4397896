"""An image as it was looked into: its configuration, and what torch in it said in a host's container check.

The check runs the pinned image once per host and is kept by digest (:mod:`fleet.agent.container_check`), so what one
host found holds for every other that is to run the same digest. What a configuration tells is in
:mod:`.image_configuration`; torch's own word goes before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from fleet.audit.facts import Facts, fact
from fleet.catalogue.entries import Layer, Provenance
from fleet.catalogue.images import Image, asked
from fleet.catalogue.references import Reference
from fleet.catalogue.versions import release
from fleet.core.errors import InputError

CHECK, CONFIGURATION = "container_check", "configuration"
SOURCE = "what torch said of itself in a container of this image, in the container check of a host"
NO_TORCH = "no Python in it has a torch"
NO_CUDA = "its torch is built without CUDA"
SILENT = "its configuration says nothing of torch or CUDA"

#: What torch tells; where it does not, what the configuration says of the same is not torch's either.
TOLD_BY_TORCH = ("torch", "cuda", "variant", "arch_list", "ptx", "cudnn", "nccl")
_TUPLES = ("arch_list", "arch_list_aarch64", "unverified")

_CODE = re.compile(r"(?P<kind>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<rest>[a-z]?)")
_FLOOR = re.compile(r"cuda>=(\d+\.\d+)")


@dataclass(frozen=True)
class Learnt:
    """What one source told of a digest: fields of an Image. ``source`` is CHECK or CONFIGURATION, ``place`` where."""

    source: str
    place: str
    facts: Mapping[str, Any]


def inspected(facts: Facts) -> Image | None:
    """The image of a host's last container check, where torch said what it is; None where there is no such check.

    A torch without CUDA has no code for any GPU: its ``arch_list`` is empty. ``note`` says so, and where there is no
    torch at all.
    """
    check = fact(facts, "container_check")
    if not isinstance(check, Mapping) or not check.get("digest"):
        return None
    versions = check.get("versions")
    told = _told(versions) if isinstance(versions, Mapping) else None
    if told is None:
        return None
    named = Reference.parse(str(check["reference"]).partition("@")[0])
    return asked(f"{named}@{check['digest']}", "inspected", SOURCE, **told)


def _told(versions: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the probe in the container printed, as fields; None where it printed nothing that decides."""
    python = versions.get("python")
    if not versions.get("torch"):
        return {"python": python, "note": NO_TORCH} if python else None
    torch, _, local = str(versions["torch"]).partition("+")
    found: dict[str, Any] = {"torch": torch, "python": python}
    if not versions.get("cuda"):
        return {**found, "arch_list": (), "note": NO_CUDA}
    if not versions.get("arch_list"):
        return None
    arch_list, ptx = code(versions["arch_list"])
    return {
        **found,
        "cuda": ".".join(str(versions["cuda"]).split(".")[:2]),
        "variant": local if re.fullmatch(r"cu\d{3}", local) else None,
        "arch_list": arch_list,
        "ptx": ptx,
        "cudnn": cudnn_version(versions.get("cudnn")),
        "nccl": versions.get("nccl"),
    }


def image_of(named: Reference, digest: str, learnt: Sequence[Learnt]) -> Image:
    """The image that these sources tell of, torch's word before the configuration's. What none told is None."""
    values: dict[str, Any] = {"unverified": ()}
    sources: dict[str, str] = {"": "; ".join(_words(one) for one in learnt)}
    for one in sorted(learnt, key=lambda one: one.source == CHECK):
        told = {name: _plain(name, value) for name, value in one.facts.items() if name in _FIELDS}
        if one.source == CHECK:
            told = {**dict.fromkeys(TOLD_BY_TORCH), **told} if told.get("torch") else told
            told["unverified"] = tuple(name for name in values["unverified"] if name not in told)
            values.pop("note", None)
        values.update(told)
        sources.update(dict.fromkeys(told, _words(one)))
    if not values.get("torch") and not values.get("cuda") and not values.get("note"):
        values["note"] = SILENT
    layer = Layer("", frozenset(values), sources, True, frozenset(values["unverified"]))
    values["digest"] = named.digest or digest
    return Image(str(named), "inspected", provenance=Provenance((layer,)), **values)


_FIELDS = {one.name for one in fields(Image)} - {"reference", "origin", "digest", "differs", "provenance"}


def _plain(name: str, value: Any) -> Any:
    """As a field of Image has it: JSON has no tuples."""
    return tuple(value) if name in _TUPLES and value is not None else value


def _words(one: Learnt) -> str:
    if one.source == CHECK:
        return f"{SOURCE}: {one.place}"
    return f"the image's own configuration, by {one.place}"


def against(held: Image, found: Image) -> Image:
    """An image that the catalogue has, with what was found in it: filled in where the catalogue says nothing, verified
    where both say the same.

    Where the two disagree the image itself is right: then nothing is left of what the catalogue concludes from torch's
    version, and ``differs`` tells.
    """
    differs = tuple(_differences(held, found))
    own = {name: getattr(found, name) for name in _FIELDS - {"unverified", "note"}}
    told = {name: value for name, value in own.items() if value is not None}
    if any(name in TOLD_BY_TORCH for name, _, _ in differs):
        kept = {name: told.get(name) for name in TOLD_BY_TORCH}
        return replace(
            held, **{**told, **kept}, arch_list_aarch64=None, min_compute_capability=None, origin="inspected",
            digest=found.digest,
            unverified=found.unverified, provenance=found.provenance, differs=differs,
        )  # fmt: skip
    other = {
        "require_cuda",
        *(name for name, _, _ in differs),
    }  # it is the image's own words that are enforced
    filled = {name: value for name, value in told.items() if name in other or getattr(held, name) is None}
    seen = {"tag", *told, *(("ptx",) if found.arch_list is not None else ())} - set(found.unverified)
    unverified = tuple(name for name in held.unverified if name not in seen)
    return replace(held, **filled, unverified=unverified, differs=differs)


def _differences(held: Image, found: Image) -> list[tuple[str, str, str]]:
    """(field, catalogue's, image's). What the configuration says of the system's cuDNN is not compared: torch has its
    own. Nor are names of versions that are the same: ``2.3.0a0+40ec155e58`` and ``2.3.0a0``."""
    pairs = [
        ("torch", _public(held.torch), _public(found.torch)),
        ("cuda", held.cuda, found.cuda),
        ("digest", held.digest, found.digest),
        ("require_cuda", _floor(held.require_cuda), _floor(found.require_cuda)),
    ]
    if found.arch_list is not None:
        pairs += [
            ("arch_list", _list(held.arch_list), _list(found.arch_list)),
            ("ptx", (held.ptx or "none") if held.arch_list is not None else None, found.ptx or "none"),
            ("cudnn", _three(held.cudnn), _three(found.cudnn)),
        ]
    return [(name, before, now) for name, before, now in pairs if before and now and before != now]


def _public(torch: str | None) -> str | None:
    return torch.partition("+")[0] if torch is not None else None


def _floor(requirement: str | None) -> str | None:
    """``cuda>=12.8`` of all that NVIDIA_REQUIRE_CUDA lists; the lists of brands and drivers grow by release."""
    if requirement is None:
        return None
    match = _FLOOR.search(requirement)
    return match.group() if match is not None else "none"


def _three(version: str | None) -> str | None:
    return ".".join(version.split(".")[:3]) if version is not None else None


def _list(capabilities: tuple[str, ...] | None) -> str | None:
    """Sorted, in one text. ``9.0a`` is 9.0 with more; an empty list is told as such."""
    if capabilities is None:
        return None
    try:
        plain = sorted({one.rstrip("abcdef") for one in capabilities}, key=release)
    except InputError:
        plain = sorted(capabilities)
    return " ".join(plain) or "none"


def code(flags: list[str]) -> tuple[tuple[str, ...], str | None]:
    """(compute capabilities with code, the one with PTX or None) of ``torch.cuda.get_arch_list()``."""
    matches = [match for flag in flags if (match := _CODE.fullmatch(flag))]
    compiled = [_capability(match) for match in matches if match["kind"] == "sm"]
    portable = [match for match in matches if match["kind"] == "compute"]
    newest = max(portable, key=lambda match: (int(match["major"]), int(match["minor"])), default=None)
    return tuple(compiled), _capability(newest) if newest else None


def _capability(match: re.Match[str]) -> str:
    return f"{match['major']}.{match['minor']}{match['rest']}"


def cudnn_version(number: Any) -> str | None:
    """``9.7.1`` of 90701; before 9 the major counted thousands: 8902 is 8.9.2. None where torch did not say."""
    if not isinstance(number, int) or number <= 0:
        return None
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"
