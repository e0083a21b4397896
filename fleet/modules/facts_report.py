"""Marks the end of a provisioning play: the host's report gets facts read after all of it was done.

The run engine also holds those facts against the health rules (:mod:`fleet.audit.health`); what they find goes into the
report and blocks nothing.
"""

from __future__ import annotations

from fleet.modules.base import Answers, Argument, Context, ControllerResult, Facts, Json

READS_FACTS = True
ARGUMENTS = {
    "gpu_count": Argument("integer", description="GPUs that the host should have"),
    "gpu_nvlinks": Argument("integer", description="active NVLinks that each GPU should have"),
}


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """One ``facts_report``: the run engine reads facts once more before it writes the report."""
    said = {name.removeprefix("gpu_"): args.get(name) for name in ARGUMENTS}
    expected = {name: value for name, value in said.items() if value is not None}
    words = "the report holds facts read at the end"
    return [context.result("facts_report", words, wanted={"gpus": expected})]
