"""Who uses a host so that nothing disruptive may be done to it without leave (``--disrupt``).

Disruptive is: restarting the engine, stopping containers, reloading kernel modules, rebooting. Unknown is not
free: an engine that is there but does not say what it runs counts as used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.audit.facts import Facts, fact

OWN_LABEL = "fleet.config_hash"


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
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    count = "a container of others is" if len(names) == 1 else f"{len(names)} containers of others are"
    return f"{count} running ({shown})"


def reasons_against(facts: Facts) -> list[str]:
    """Why nothing disruptive may be done here now, in words; empty where it may."""
    reasons = [container_reason(facts)]
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
