"""Marks the end of a provisioning play: the host's report gets facts read after all of it was done."""

from __future__ import annotations

from fleet.modules.base import Answers, Argument, Context, ControllerResult, Facts, Json

READS_FACTS = True
ARGUMENTS: dict[str, Argument] = {}


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """One ``facts_report``: the run engine reads facts once more before it writes the report."""
    return [context.result("facts_report", "the report holds facts read at the end")]
