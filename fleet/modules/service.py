"""A service runs or not, now and at boot, and reflects the files it reads.

``reflects`` names configuration files: a service that started before they changed is restarted (``reload:
true``: reloaded). Because the host's state decides, a restart cannot be lost with an interrupted run.
"""

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
    "name": Argument("plain", required=True, aliases=("service", "unit"), description="the unit"),
    "state": Argument(choices=("started", "stopped", "restarted", "reloaded"), description="now"),
    "enabled": Argument("boolean", description="at boot"),
    "reflects": Argument("list", description="files it reads: it is restarted when they are newer"),
    "reload": Argument("boolean", default=False, description="changes in reflects: need a reload only"),
    "disruptive": Argument(
        "boolean", default=False, description="a restart disturbs users: only with --disrupt"
    ),
    "daemon_reload": Argument("boolean", description="accepted; done whenever systemd says it is needed"),
    "masked": Argument(refused="write file: state: link to /dev/null"),
    "pattern": Argument(refused="services are asked of systemd"),
    "sleep": Argument(refused="services are asked of systemd"),
    "scope": Argument(refused="system services only"),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """A restart in a task can never converge; in a handler it has a reason."""
    state = args.get("state")
    if state in ("restarted", "reloaded") and not in_handler:
        message = (
            f"state: {state} in a task would act on every run; name the files it depends on in reflects:,"
            " or put it in a handler and notify that"
        )
        return [ArgumentProblem(message, "state")]
    if all(args.get(name) is None for name in ("state", "enabled", "reflects")):
        return [ArgumentProblem("service needs state, enabled or reflects")]
    return []


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``service`` step."""
    wanted = given(args, ("name", "enabled"))
    if args["state"] in ("restarted", "reloaded"):
        wanted["restart"] = True
        wanted["reload"] = args["state"] == "reloaded"
    else:
        wanted["state"] = args["state"]
        if args["reflects"]:
            wanted["reflects"] = args["reflects"]
            wanted["reload"] = args["reload"]
    wanted["disruptive"] = args["disruptive"]
    return [
        context.step(
            "service", "service", wanted, deadline_s=SERVICE_DEADLINE_S, disruptive=args["disruptive"]
        )
    ]
