"""What an image's configuration says of itself: variables that NVIDIA's and PyTorch's build files leave in it.

A configuration is what whoever built the image wrote down, not what runs in it: a CUDA toolkit may stand beside a
torch of another CUDA. What torch itself says is in :mod:`.inspected`. A field that the configuration does not tell is
absent here; none is guessed from another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

#: Of what is kept by digest: another number makes images be looked into again.
READER = 1

_TORCH = re.compile(
    r"(?P<public>\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?(?:\.(?:dev|post)\d+)?)(?:\+(?P<local>[a-z0-9.]+))?"
)
_VARIANT = re.compile(r"cu(?P<major>\d{2})(?P<minor>\d)")
_NUMBERS = re.compile(r"\d+(?:\.\d+)+")
_UBUNTU = re.compile(r"\d\d\.\d\d")
_TRUE = ("1", "true", "t")


def configured(environment: Iterable[str], labels: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fields of :class:`~fleet.catalogue.images.Image` that are told; ``unverified`` names what may be otherwise.

    ``environment`` is ``NAME=value`` texts. CUDA_VERSION and the version of cuDNN are those of what is installed in
    the system; torch may bring its own, so they are not verified.
    """
    said = dict(text.split("=", 1) for text in environment if "=" in text)
    found: dict[str, Any] = {"require_cuda": _required(said)}
    unverified: list[str] = []
    torch = _TORCH.fullmatch(said.get("PYTORCH_VERSION", ""))
    if torch is not None:
        found["torch"] = torch["public"]
        found.update(_by_variant(torch["local"] or ""))
    release = _numbers(said.get("CUDA_VERSION"))
    if release is not None and "cuda" not in found:
        found["cuda"] = ".".join(release.split(".")[:2])
        unverified.append("cuda")
        if release.count(".") >= 2:
            found["cuda_release"] = ".".join(release.split(".")[:3])
    cudnn = _numbers(said.get("NV_CUDNN_VERSION") or said.get("CUDNN_VERSION"))
    if cudnn is not None:
        found["cudnn"] = cudnn
        unverified.append("cudnn")
    found.update(_further(said, labels or {}))
    return {**found, "unverified": unverified}


def _by_variant(local: str) -> dict[str, str]:
    """What ``+cu128`` says: the CUDA that this torch was built for."""
    variant = _VARIANT.fullmatch(local)
    if variant is None:
        return {}
    return {"variant": local, "cuda": f"{variant['major']}.{variant['minor']}"}


def _required(said: Mapping[str, str]) -> str:
    """NVIDIA_REQUIRE_CUDA; empty where there is none, or where the image switches it off."""
    if said.get("NVIDIA_DISABLE_REQUIRE", "").lower() in _TRUE:
        return ""
    return said.get("NVIDIA_REQUIRE_CUDA", "")


def _further(said: Mapping[str, str], labels: Mapping[str, Any]) -> dict[str, Any]:
    """What only a positive sign tells: nothing follows from its absence."""
    found: dict[str, Any] = {}
    if said.get("NV_CUDA_COMPAT_PACKAGE") or said.get("_CUDA_COMPAT_PATH"):
        found["compat_package"] = True
    if said.get("NV_CUDA_CUDART_DEV_VERSION"):
        found["flavour"] = "devel"
    version = str(labels.get("org.opencontainers.image.version"))
    if labels.get("org.opencontainers.image.ref.name") == "ubuntu" and _UBUNTU.fullmatch(version):
        found["os"] = f"Ubuntu {version}"
    return found


def _numbers(text: str | None) -> str | None:
    """``9.7.1.26`` of ``9.7.1.26-1``; None where there is no version at the start."""
    match = _NUMBERS.match(text or "")
    return match.group() if match is not None else None
