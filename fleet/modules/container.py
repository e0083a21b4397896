"""A container runs with this configuration, is stopped, or is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ARGUMENTS = {
    "name": Argument("plain", required=True, description="the container"),
    "image": Argument("plain", description="reference of an image that is there"),
    "command": Argument("command", description="what it runs, if not what the image says"),
    "state": Argument(default="running", choices=("running", "started", "stopped", "absent")),
    "env": Argument("mapping", default={}),
    "ports": Argument("list", default=[], aliases=("published_ports",), description="host:container"),
    "volumes": Argument("list", default=[], description="host:container[:ro]"),
    "restart": Argument(
        default="unless-stopped", choices=("unless-stopped", "always", "no"), aliases=("restart_policy",)
    ),
    "labels": Argument("mapping", default={}),
    "user": Argument("plain"),
    "memory": Argument("plain"),
    "cpus": Argument("number"),
    "shm_size": Argument("plain"),
    "gpus": Argument("plain", description="all, or a number of GPUs"),
    "network": Argument("plain", aliases=("network_mode",)),
    "detach": Argument(refused="containers always run in the background"),
    "privileged": Argument(refused="name the devices and capabilities instead"),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """A container that is to run needs an image."""
    if args.get("state", "running") in ("running", "started", "stopped") and args.get("image") is None:
        return [ArgumentProblem("container needs image (reference of an image that is there)")]
    return []


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``container`` step."""
    if args["state"] == "absent":
        wanted: Json = {"name": args["name"], "state": "absent"}
    else:
        wanted = given(args, tuple(name for name in ARGUMENTS if not ARGUMENTS[name].refused))
        wanted["state"] = "running" if args["state"] == "started" else args["state"]
        wanted["env"] = {
            name: value if value.__class__.__name__ == "Secret" else str(value)
            for name, value in args["env"].items()
        }
    return [context.step("container", "container", wanted, deadline_s=SERVICE_DEADLINE_S)]
