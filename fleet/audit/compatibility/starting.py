"""How ``docker run --gpus`` brings GPUs into a container on a host: by NVIDIA's hook, or by CDI.

Docker before 29.2 runs nvidia-container-runtime-hook, whatever the toolkit's version: the hook works in legacy mode
unless the toolkit's configuration says another. From 29.2 on CDI comes first where the engine has it and there is a
specification, and the hook is what it falls back on (moby pull request 50228; daemon/devices_nvidia_linux.go). Pull
request 52704 of May 2026 turns that order round; which release has it was not found, and none is taken to. Where
NVIDIA's runtime is the engine's default it takes the hook out and works in a mode of its own: CDI made on the fly from
toolkit 1.18 on. Only the hook, in legacy mode, evaluates NVIDIA_REQUIRE_* (NVIDIA/nvidia-container-toolkit
cmd/nvidia-container-runtime-hook; its issue 1470).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleet.audit.compatibility.subject import NOTHING, Program, Subject
from fleet.catalogue.container_toolkit import toolkit_feature_since
from fleet.catalogue.docker import feature_since
from fleet.catalogue.versions import Version

SOURCE = (
    "moby daemon/devices_nvidia_linux.go, pull request 50228 (52704 turns the order round, in a release that was not"
    " found); NVIDIA/nvidia-container-toolkit"
    " cmd/nvidia-container-runtime-hook and issue 1470: only the legacy mode evaluates NVIDIA_REQUIRE_*"
)
_RUNTIME = "nvidia"


@dataclass(frozen=True)
class Way:
    """``words``: what brings the GPUs, in a sentence."""

    kind: Literal["hook", "cdi"]
    words: str


def way(subject: Subject) -> Way | None:
    """How it is on this host; None where nobody asked, or there is no way."""
    engine, toolkit = subject.engine, subject.toolkit
    if not isinstance(engine, Program) or toolkit in (None, NOTHING):
        return None
    if subject.default_runtime == _RUNTIME:
        return _by_runtime(subject)
    if engine.version >= feature_since("gpus_by_cdi", subject.catalogue.files) and _cdi_works(subject):
        return Way("cdi", f"Docker {engine.version} by CDI")
    if subject.hook is False or not isinstance(toolkit, Version) or _other_mode(subject):
        return None
    return Way(
        "hook", f"nvidia-container-runtime-hook of toolkit {toolkit}, which Docker {engine.version} runs"
    )


def refused(subject: Subject) -> str:
    """The toolkit's mode, where it makes ``--gpus`` fail although all is installed; empty where it does not."""
    engine = subject.engine
    if (
        not isinstance(engine, Program)
        or not isinstance(subject.toolkit, Version)
        or not _other_mode(subject)
    ):
        return ""
    if subject.default_runtime == _RUNTIME:
        return ""
    by_cdi = engine.version >= feature_since("gpus_by_cdi", subject.catalogue.files) and _cdi_works(subject)
    return "" if by_cdi else str(subject.toolkit_mode)


def _by_runtime(subject: Subject) -> Way | None:
    """What NVIDIA's runtime does of itself, where it is the engine's default."""
    toolkit, mode = subject.toolkit, subject.toolkit_mode
    if not isinstance(toolkit, Version):
        return None
    if mode in ("cdi", "jit-cdi"):
        return Way("cdi", f"the toolkit's mode {mode}")
    if mode in (None, "auto") and toolkit >= toolkit_feature_since("jit_cdi", subject.catalogue.files):
        return Way("cdi", f"toolkit {toolkit} by CDI made on the fly")
    return Way("hook", f"toolkit {toolkit} in legacy mode") if mode in (None, "auto", "legacy") else None


def _cdi_works(subject: Subject) -> bool:
    """Whether CDI gives the GPUs, so that the hook is not fallen back on."""
    return subject.engine_cdi is not False and subject.cdi is not NOTHING


def _other_mode(subject: Subject) -> bool:
    """Whether the hook refuses to work: the configuration wants another mode."""
    return subject.toolkit_mode not in (None, "auto", "legacy")
