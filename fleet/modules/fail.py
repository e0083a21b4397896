"""Ends this host as failed, for the reason given."""

from __future__ import annotations

from fleet.modules.base import Answers, Argument, Context, ControllerResult, Facts, Json

ARGUMENTS = {"msg": Argument("plain", default="the playbook says so", description="the reason")}


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """One ``failed``."""
    return [context.result("failed", args["msg"], stops=True)]
