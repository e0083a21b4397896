"""Who uses a host so that nothing disruptive may be done to it without leave (``--disrupt``).

Disruptive is: restarting the engine, stopping containers, reloading kernel modules, rebooting. Unknown is not
free: an engine that is there but does not say what it runs counts as used. A process on a GPU counts whoever
started it, also in a container of fleet's own: what runs in there is somebody's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.audit.facts import Facts, fact

OWN_LABEL = "fleet.config_hash"
SHOWN = 5


def foreign_containers(facts: Facts) -> list[Mapping[str, Any]] | None:
    """Running containers that fleet did not make; None where the engine does not say."""
    if fact(facts, "engine.present") is False:
        return []
    containers = fact(facts, "engine.containers")
    if containers is None:
        return None
    return [
        container
        for container in containers
        if container.get("state") == "running" and OWN_LABEL not in (container.get("labels") or {})
    ]


def container_reason(facts: Facts) -> str | None:
    """``2 containers of others are running (jupyter-anna, train-17)``, or None."""
    containers = foreign_containers(facts)
    if containers is None:
        return "the Docker engine does not answer, so what it runs is not known"
    if not containers:
        return None
    names = sorted(str(container.get("name") or container.get("id")) for container in containers)
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    count = "a container of others is" if len(names) == 1 else f"{len(names)} containers of others are"
    return f"{count} running ({shown})"


def gpu_users(facts: Facts) -> list[Mapping[str, Any]] | None:
    """Processes that work on a GPU or show a desktop with it; None where a driver is loaded and nobody can say.

    Services that fleet may stop and start again (nvidia-persistenced, the fabric manager) are not among them.
    """
    if not fact(facts, "gpus"):
        return []
    holders = fact(facts, "driver.holders")
    if holders is None:
        return None
    return [holder for holder in holders if holder.get("kind") != "service"]


def gpu_user_words(facts: Facts, holder: Mapping[str, Any]) -> str:
    """``python (pid 40335, user anna, container train-17) uses GPU 0``."""
    user = f"user {holder['user']}" if holder.get("user") else f"uid {holder.get('uid')}"
    who = f"pid {holder.get('pid')}, {user}"
    if holder.get("container_id"):
        who += f", container {_container_name(facts, str(holder['container_id']))}"
    elif str(holder.get("unit") or "").endswith(".service"):  # a session says no more than its user
        who += f", {holder['unit']}"
    return f"{holder.get('command') or 'a process'} ({who}) uses {_gpus_held(holder)}"


def _container_name(facts: Facts, container_id: str) -> str:
    for container in fact(facts, "engine.containers") or []:
        if str(container.get("id") or "").startswith(container_id) and container.get("name"):
            return str(container["name"])
    return container_id[:12]


def _gpus_held(holder: Mapping[str, Any]) -> str:
    names = [str(name).removeprefix("/dev/nvidia") for name in holder.get("devices") or []]
    numbers = sorted({int(name) for name in names if name.isdigit()})
    if not numbers:
        return "the driver"
    return f"GPU {', '.join(map(str, numbers))}"


def _gpu_reasons(facts: Facts) -> list[str]:
    users = gpu_users(facts)
    if users is None:
        return ["who uses the GPUs is not known"]
    words = [gpu_user_words(facts, holder) for holder in users[:SHOWN]]
    return words + ([f"{len(users) - SHOWN} more processes use GPUs"] if len(users) > SHOWN else [])


def reasons_against(facts: Facts) -> list[str]:
    """Why nothing disruptive may be done here now, in words; empty where it may."""
    reasons = [container_reason(facts), *_gpu_reasons(facts)]
    if fact(facts, "kubelet.active"):
        reasons.append("kubelet runs here")
    if fact(facts, "slurmd.active"):
        reasons.append("slurmd runs here and may hold jobs")
    if fact(facts, "gpu_operator.active"):
        reasons.append("the GPU Operator manages this host")
    sessions = fact(facts, "desktop_sessions")
    if sessions:
        reasons.append(f"{len(sessions)} desktop session(s) are open")
    if fact(facts, "controller_here"):
        reasons.append("this is the machine fleet runs on")
    return [reason for reason in reasons if reason is not None]
