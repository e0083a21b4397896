"""A container of the pinned image sees the same GPUs as the host, by UUID; what is in the image is recorded.

Not repeated while boot, driver, image, toolkit and the engine's configuration are the same. It changes nothing
that anybody else uses. What it found is in the report (``container_check``); the work is the resource of this
name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.audit.leave import reasons_against
from fleet.modules.base import Answers, Argument, ArgumentProblem, Context, ControllerResult, Facts, Json
from fleet.modules.container_toolkit import HOOK, SPECIFICATION
from fleet.modules.image import check as image_check
from fleet.modules.shared.engine_settings import DAEMON_JSON
from fleet.modules.shared.gpu_hosts import gpu_request, not_a_gpu_host, nvidia_gpus

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

DECIDES = True
READS_FACTS = True
CONTAINER_DEADLINE_S = 300.0
STEP_DEADLINE_S = 900.0
ARGUMENTS = {
    "image": Argument("plain", required=True, aliases=("reference",), description="registry/name:tag"),
    "digest": Argument("plain", description="sha256:… that is run, whatever the tag means by now"),
    "gpus": Argument(
        "any", default="all", description='all, or "device=0,1", or a list of indexes and UUIDs'
    ),
    "gpu_request": Argument(default="auto", choices=("auto", "gpus", "cdi"), description="as of container:"),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """The digest's form, and that of gpus."""
    problems = image_check({"reference": args.get("image"), "digest": args.get("digest")}, in_handler)
    gpus = args.get("gpus")
    if "{{" not in str(gpus):
        try:
            gpu_request(gpus)
        except ArgumentProblem as problem:
            problems.append(problem)
    return problems


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """``pending`` while anything before it waits for leave: the check would find what was left undone."""
    elsewhere = not_a_gpu_host(facts, context)
    if elsewhere is not None:
        return [elsewhere]
    if context.held_back:
        text = f"the container check waits for what needs leave: {', '.join(context.held_back)}"
        return [context.result("pending", text, remedy=context.disrupt_command)]
    return []


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``container_check`` step."""
    gpus = nvidia_gpus(facts)
    if not gpus or context.held_back:
        return []
    needs_leave = reasons_against(facts) and not context.disrupt
    wanted: Json = {
        "reference": args["image"],
        "digest": args["digest"],
        "request": args["gpu_request"],
        "gpus": gpu_request(args["gpus"]),
        "addresses": sorted(str(gpu["address"]) for gpu in gpus),
        "go_on": context.disrupt_command if needs_leave else None,
        "deadline_s": CONTAINER_DEADLINE_S,
        # What earlier steps may change, so that a check pass does not call the outcome of today tomorrow's.
        "reflects": [DAEMON_JSON, HOOK, SPECIFICATION, "/usr/bin/nvidia-smi", "/proc/driver/nvidia/version"],
    }
    return [context.step("check", "container_check", wanted, deadline_s=STEP_DEADLINE_S)]
