"""Whose the processes on the GPUs are: program, user, container and unit, by /proc and the engine's socket.

NVML gives numbers of the host's own process table; a process that has ended meanwhile, or that this user may
not look at, keeps its number and nulls.
"""

from __future__ import annotations

import os

from fleet.agent.facts import process_owner
from fleet.agent.gpu_probe.device import PROCESS_KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, List, Optional, Sequence

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

ENGINE_SOCKET = "/var/run/docker.sock"
ENGINE_TIMEOUT_S = 1.0  # a name is not worth waiting for


def join(host: Host, devices: Sequence[Json]) -> None:
    """Give every process of these Devices all its keys (:data:`.device.PROCESS_KEYS`)."""
    listed = [process for device in devices for process in device["processes"] or ()]
    if not listed:
        return
    base = process_owner.base_of(host)
    known: Dict[int, Json] = {}
    for process in listed:
        pid = process["pid"]
        if pid not in known:
            known[pid] = describe(host, pid, base)
    _name_containers(host, list(known.values()))
    for process in listed:
        about = dict(known[process["pid"]])
        about["command"] = about["command"] or process.get("command")  # nvidia-smi tells a name too
        process.update(about)
        for key in PROCESS_KEYS:
            process.setdefault(key, None)


def describe(host: Host, pid: int, base: str) -> Json:
    """{"command", "uid", "user", "container_id", "container_name", "unit"} of a process; null: not known."""
    about: Json = dict.fromkeys((*process_owner.KEYS, "container_name"))
    try:
        about.update(process_owner.owner_of(host, pid, base))
    except OSError:
        pass  # ended meanwhile, or hidden from this user
    return about


def _name_containers(host: Host, found: List[Json]) -> None:
    """Their names, where the engine's socket may be used and answers at once."""
    ids = {about["container_id"] for about in found} - {None}
    socket = host.path(ENGINE_SOCKET)
    if not ids or not os.access(socket, os.R_OK | os.W_OK):
        return
    from fleet.agent.engine import Engine, EngineError

    engine = Engine(socket, ENGINE_TIMEOUT_S)
    names: Dict[str, Optional[str]] = {}
    try:
        for container in sorted(ids):
            answer = engine.container(container) or {}
            names[container] = str(answer.get("Name") or "").lstrip("/") or None
    except EngineError:
        pass  # another engine's containers, or an engine that hangs: the ids still tell them apart
    finally:
        engine.close()
    for about in found:
        about["container_name"] = names.get(about["container_id"])
