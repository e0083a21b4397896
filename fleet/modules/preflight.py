"""Refuses a host that must not be touched, before anything on it is: :mod:`fleet.audit.rules`."""

from __future__ import annotations

from fleet.audit.findings import Finding
from fleet.audit.rules import evaluate
from fleet.modules.base import Answers, Argument, Context, ControllerResult, Facts, Json

READS_FACTS = True
ARGUMENTS = {
    "free_bytes": Argument(
        "bytes", default=10_000_000_000, description="room the image needs, such as 10 GB"
    ),
    "image_digest": Argument(
        "plain", description="the image that will be pulled; one that is there needs no room"
    ),
    "source": Argument(
        default="distribution",
        choices=("distribution", "docker", "preinstalled"),
        description="the engine's origin",
    ),
    "settings": Argument("mapping", default={}, description="daemon.json keys that will be set"),
    "driver": Argument(
        "mapping",
        default={},
        description="source, version, branch and modules as nvidia_driver will get them",
    ),
    "container_toolkit": Argument(
        "mapping", default={}, description="source, version and mode as container_toolkit will get them"
    ),
    "skip": Argument("list", default=[], description="ids of rules to leave out, such as preflight.disk"),
}


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """One result per finding, or one ``ok``. Errors are ``blocked``, or ``pending`` where leave is enough."""
    wanted = {**args, "now_unix": context.now_unix, "ssh_client": context.ssh_client}
    found = [finding for finding in evaluate("preflight", facts, wanted) if finding.id not in args["skip"]]
    if not found:
        return [context.result("ok", "this host may be provisioned")]
    return [_result(finding, context) for finding in found]


def _result(finding: Finding, context: Context) -> ControllerResult:
    if not finding.blocks or (finding.needs_leave and context.disrupt):
        return context.result("finding", finding.what, remedy=finding.remedy, finding=finding)
    if finding.needs_leave:
        remedy = f"{finding.remedy}: {context.disrupt_command}"
        return context.result("pending", finding.what, remedy=remedy, finding=finding, stops=True)
    return context.result("blocked", finding.what, remedy=finding.remedy, finding=finding, stops=True)
