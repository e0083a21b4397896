"""What the host's GPUs do: matrix products, memory, links, networks in training, collectives of several GPUs.

Not repeated while boot, driver, image, toolkit and the engine's configuration are the same, unless asked for. GPUs on
which somebody works are left out, unless ``occupied`` says to measure them all the same; nobody's process is ended.
What was measured is in the report (``benchmark``); no figure fails the task. The work is the resource of this name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleet.agent.bench.torch_side import plan
from fleet.modules.base import Answers, Argument, ArgumentProblem, Context, ControllerResult, Facts, Json
from fleet.modules.container_toolkit import HOOK, SPECIFICATION
from fleet.modules.image import check as image_check
from fleet.modules.shared.engine_settings import DAEMON_JSON
from fleet.modules.shared.gpu_hosts import gpu_request, not_a_gpu_host, nvidia_gpus

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

DECIDES = True
READS_FACTS = True
SUITES = ("quick", "full", "burn")
#: What the measuring processes find their code and their GPUs by.
OWN_VARIABLES = ("PYTHONPATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
# A step's whole time: that of all its groups of tests, and more than once.
DEADLINES_S = {"quick": 1800.0, "full": 4 * 3600.0, "burn": 3600.0}
ARGUMENTS = {
    "suite": Argument(
        default="quick",
        choices=SUITES,
        description="quick: a minute or two; full: every number format, compiled networks, several GPUs in training;"
        " burn: five minutes of products that are checked",
    ),
    "image": Argument(
        "plain", aliases=("reference",), description="registry/name:tag with PyTorch; needed where: container"
    ),
    "digest": Argument("plain", description="sha256:… that is run, whatever the tag means by now"),
    "where": Argument(
        default="container",
        choices=("container", "host"),
        description="in the image, or with a Python of the host that has torch",
    ),
    "gpus": Argument(
        "any",
        default="all",
        description='all, a number, "device=0,1", or a list of indexes and UUIDs (GPU-…, MIG-…)',
    ),
    "gpu_request": Argument(default="auto", choices=("auto", "gpus", "cdi"), description="as of container:"),
    "occupied": Argument("boolean", default=False, description="measure GPUs that others use, too"),
    "repeat": Argument("boolean", default=False, description="measure again although nothing has changed"),
    "python": Argument("path", description="the host's Python that has torch, where: host"),
    "groups": Argument(
        "list", description="only these groups of the suite's tests: " + ", ".join(plan.GROUPS)
    ),
    "environment": Argument(
        "mapping", default={}, description="variables of the measuring processes: NCCL_SOCKET_IFNAME, …"
    ),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """The forms of image, digest and gpus. That an image is named where one is needed is said host by host."""
    problems = []
    if args.get("image") is not None:
        problems += image_check({"reference": args["image"], "digest": args.get("digest")}, in_handler)
    gpus = args.get("gpus")
    if "{{" not in str(gpus):
        try:
            gpu_request(gpus)
        except ArgumentProblem as problem:
            problems.append(problem)
    return problems + _group_problems(args) + _environment_problems(args)


def _group_problems(args: Json) -> list[ArgumentProblem]:
    """Groups that no suite has."""
    named = args.get("groups")
    if not isinstance(named, list):
        return []
    unknown = [str(name) for name in named if name not in plan.GROUPS and "{{" not in str(name)]
    there = ", ".join(plan.GROUPS)
    return [
        ArgumentProblem(f"{name!r} is no group of tests; there are {there}", "groups") for name in unknown
    ]


def _environment_problems(args: Json) -> list[ArgumentProblem]:
    """Variables that the benchmark sets itself, and values that are not text."""
    given = args.get("environment")
    if not isinstance(given, Mapping):
        return []
    own = [str(name) for name in given if str(name).startswith("FLEET_") or name in OWN_VARIABLES]
    problems = [ArgumentProblem(f"{name} is set by the benchmark itself", "environment") for name in own]
    odd = [str(name) for name, value in given.items() if isinstance(value, (Mapping, list)) or value is None]
    return problems + [ArgumentProblem(f"{name} needs a text or a number", "environment") for name in odd]


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """``pending`` while anything before it waits for leave: it would measure what was left undone."""
    elsewhere = not_a_gpu_host(facts, context)
    if elsewhere is not None:
        return [elsewhere]
    if args["where"] == "container" and not args["image"]:
        text = "no image is named to run the benchmarks in"
        remedy = "set image and image_digest in the inventory, or where: host"
        return [context.result("failed", text, remedy=remedy, stops=True)]
    if context.held_back:
        text = f"the benchmarks wait for what needs leave: {', '.join(context.held_back)}"
        return [context.result("pending", text, remedy=context.disrupt_command)]
    return []


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``benchmark`` step."""
    if not nvidia_gpus(facts) or context.held_back:
        return []
    in_container = args["where"] == "container"
    deadline_s = DEADLINES_S[args["suite"]]
    wanted: Json = {
        "suite": args["suite"],
        "where": args["where"],
        "reference": args["image"] if in_container else None,
        "digest": args["digest"] if in_container else None,
        "request": args["gpu_request"],
        "gpus": gpu_request(args["gpus"]),
        "evenly_occupied": args["occupied"],
        "repeat": args["repeat"],
        "python": None if in_container else args["python"],
        "groups": args["groups"],
        "environment": {str(name): str(value) for name, value in sorted((args["environment"] or {}).items())},
        "deadline_s": deadline_s,
        # What earlier steps may change, so that a check pass does not call the outcome of today tomorrow's.
        "reflects": [DAEMON_JSON, HOOK, SPECIFICATION, "/usr/bin/nvidia-smi", "/proc/driver/nvidia/version"],
    }
    return [context.step("measure", "benchmark", wanted, deadline_s=deadline_s)]
