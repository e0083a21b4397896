"""An image that the catalogue does not have, as a host's container check found it: torch, CUDA, arch list.

The check runs the pinned image once per host and is kept by digest (:mod:`fleet.agent.container_check`), so what one
host found holds for every other that is to run the same digest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fleet.audit.facts import Facts, fact
from fleet.catalogue.images import Image, asked
from fleet.catalogue.references import Reference

SOURCE = "what torch said of itself in a container of this image, in the container check of a host"

_CODE = re.compile(r"(?P<kind>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<rest>[a-z]?)")


def inspected(facts: Facts) -> Image | None:
    """The image of a host's last container check, where torch said what it is; None where there is no such check."""
    check = fact(facts, "container_check")
    if not isinstance(check, Mapping) or not check.get("digest"):
        return None
    versions: Mapping[str, Any] = check.get("versions") or {}
    if not versions.get("torch") or not versions.get("cuda") or not versions.get("arch_list"):
        return None
    named = Reference.parse(str(check["reference"]).partition("@")[0])
    arch_list, ptx = code(versions["arch_list"])
    cuda = str(versions["cuda"])
    return asked(
        f"{named}@{check['digest']}",
        "inspected",
        SOURCE,
        torch=str(versions["torch"]).partition("+")[0],
        cuda=".".join(cuda.split(".")[:2]),
        arch_list=arch_list,
        ptx=ptx,
        cudnn=cudnn_version(versions.get("cudnn")),
        nccl=versions.get("nccl"),
        python=versions.get("python"),
    )


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
