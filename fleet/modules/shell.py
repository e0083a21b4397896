"""A command line, run by ``/bin/sh -c``: as :mod:`fleet.modules.command`, with pipes and redirections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.modules.base import Answers, Argument, Context, Facts, Json
from fleet.modules.command import SHARED, command_step, no_secrets

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

FREE_FORM = "cmd"
ARGUMENTS = {"cmd": Argument(required=True, description="the command line"), **SHARED}


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``command`` step with a shell line."""
    no_secrets(args, "cmd")
    return [command_step({"shell": str(args["cmd"])}, args, context)]
