"""A container runs with this configuration, is stopped, or is not there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fleet.modules.base import (
    SERVICE_DEADLINE_S,
    Answers,
    Argument,
    ArgumentProblem,
    Context,
    Facts,
    Json,
    given,
)
from fleet.modules.shared.gpu_hosts import gpu_request

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ARGUMENTS = {
    "name": Argument("plain", required=True, description="the container"),
    "image": Argument("plain", description="reference of an image that is there"),
    "command": Argument("command", description="what it runs, if not what the image says"),
    "state": Argument(default="running", choices=("running", "started", "stopped", "absent")),
    "env": Argument("mapping", default={}),
    "ports": Argument(
        "list",
        default=[],
        aliases=("published_ports",),
        description="[address:]host:container[/udp]; on 127.0.0.1 where no address is written",
    ),
    "volumes": Argument("list", default=[], description="folder or volume:container[:ro]"),
    "restart": Argument(
        default="unless-stopped", choices=("unless-stopped", "always", "no"), aliases=("restart_policy",)
    ),
    "labels": Argument("mapping", default={}),
    "user": Argument("plain", description="name or uid[:gid] that its processes run as"),
    "memory": Argument("plain", description="limit, such as 64g (binary units)"),
    "cpus": Argument("number", description="limit, such as 1.5"),
    "shm_size": Argument("plain", description="of /dev/shm, such as 16g; 64m where it is not given"),
    "ipc": Argument("plain", description="private, shareable, host or container:NAME"),
    "gpus": Argument(
        "any", description='all, a number, "device=0,1", or a list of indexes and UUIDs (GPU-…, MIG-…)'
    ),
    "gpu_request": Argument(
        default="auto",
        choices=("auto", "gpus", "cdi"),
        description="gpus: as docker run --gpus; cdi: as --device nvidia.com/gpu=…; auto: what the host has",
    ),
    "network": Argument("plain", aliases=("network_mode",)),
    "detach": Argument(refused="containers always run in the background"),
    "privileged": Argument(refused="name the devices and capabilities instead"),
}


_PORT = re.compile(r"(?:(?:\[[0-9a-fA-F:]+\]|[0-9.]+):)?\d+:\d+(?:/(?:tcp|udp|sctp))?")
_SIZE = re.compile(r"\d+(?:\.\d+)?\s*[bkmgt]?(?:i?b)?", re.IGNORECASE)
_IPC = re.compile(r"none|private|shareable|host|container:[A-Za-z0-9][A-Za-z0-9_.-]*")


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """A container that is to run needs an image; forms of ports, sizes and GPUs."""
    problems = []
    if args.get("state", "running") in ("running", "started", "stopped") and args.get("image") is None:
        problems.append(ArgumentProblem("container needs image (reference of an image that is there)"))
    ports = args.get("ports")
    for port in ports if isinstance(ports, list) else []:
        if not _fits(_PORT, port):
            message = f"ports: {port!r} is not [ADDRESS:]HOST_PORT:CONTAINER_PORT[/udp]"
            problems.append(ArgumentProblem(message, "ports"))
    for name in ("memory", "shm_size"):
        if not _fits(_SIZE, args.get(name)):
            problems.append(ArgumentProblem(f"{name} must be a size such as 8g or 512m", name))
    if not _fits(_IPC, args.get("ipc")):
        problems.append(ArgumentProblem("ipc must be private, shareable, host or container:NAME", "ipc"))
    if "{{" not in str(args.get("gpus")):
        try:
            gpu_request(args.get("gpus"))
        except ArgumentProblem as problem:
            problems.append(problem)
    return problems


def _fits(form: re.Pattern[str], value: Any) -> bool:
    """Whether a value has this form; what is not there or not rendered yet does."""
    return value is None or "{{" in str(value) or form.fullmatch(str(value).strip()) is not None


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``container`` step."""
    if args["state"] == "absent":
        wanted: Json = {"name": args["name"], "state": "absent"}
    else:
        wanted = given(args, tuple(name for name in ARGUMENTS if not ARGUMENTS[name].refused))
        wanted.pop("gpu_request")
        if args["gpus"] is not None:
            wanted["gpus"] = gpu_request(args["gpus"])
            wanted["gpu_request"] = args["gpu_request"]
        wanted["state"] = "running" if args["state"] == "started" else args["state"]
        wanted["env"] = {
            name: value if value.__class__.__name__ == "Secret" else str(value)
            for name, value in args["env"].items()
        }
    return [context.step("container", "container", wanted, deadline_s=SERVICE_DEADLINE_S)]
