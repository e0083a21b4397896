"""What modules for GPU hosts share: is this one, and what to say where it is not; which GPUs are asked for.

Used by :mod:`fleet.modules.container_toolkit`, :mod:`fleet.modules.container_check` and
:mod:`fleet.modules.container`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fleet.audit.facts import fact, why_absent
from fleet.modules.base import ArgumentProblem, Context, ControllerResult, Facts

NVIDIA_DRIVERS = ("nvidia", "nouveau", "nova_core", None)
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+\Z")
_FORMS = 'all, a number of GPUs, "device=0,1", or a list of indexes and UUIDs'


def nvidia_gpus(facts: Facts) -> list[Mapping[str, Any]]:
    """The host's NVIDIA GPUs that containers can be given: those handed through to virtual machines are not.

    Empty too where the facts do not say; see :func:`not_a_gpu_host`.
    """
    return [gpu for gpu in fact(facts, "gpus") or () if gpu.get("driver") in NVIDIA_DRIVERS]


def not_a_gpu_host(facts: Facts, context: Context) -> ControllerResult | None:
    """What a task for GPU hosts says on any other (``ok``, or ``failed`` where it cannot be told); else None."""
    if nvidia_gpus(facts):
        return None
    if fact(facts, "gpus") is None:
        text = f"which GPUs this host has is not known: {why_absent(facts, 'gpus')}"
        return context.result("failed", text, remedy="look at: fleet agent probe  # on the host", stops=True)
    return context.result("ok", "no NVIDIA GPU here")


def gpu_request(value: Any) -> str | int | list[str] | None:
    """``gpus:`` of a playbook as the agent takes it: "all", a count, or a list of indexes and UUIDs (GPU-…, MIG-…).

    Raises ArgumentProblem for anything else.
    """
    if value is None or value == "all":
        return value  # type: ignore[no-any-return]
    if isinstance(value, int) and not isinstance(value, bool):
        return _count(value)
    if isinstance(value, str) and value.isdigit():
        return _count(int(value))
    if isinstance(value, str) and value.startswith("device="):
        value = value.removeprefix("device=").split(",")
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not value:
        raise ArgumentProblem(f"gpus must be {_FORMS}, not {value!r}", "gpus")
    return [_device(each) for each in value]


def _count(number: int) -> int:
    if number < 1:
        raise ArgumentProblem("gpus must be at least 1; leave it out for a container without GPUs", "gpus")
    return number


def _device(value: Any) -> str:
    text = "" if isinstance(value, bool) else str(value).strip().strip('"')
    if not (text.isdigit() or _UUID.match(text)):
        raise ArgumentProblem(
            f"gpus: {value!r} is neither the index nor the UUID of a GPU; it may be {_FORMS}", "gpus"
        )
    return text
