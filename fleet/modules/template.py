"""A file rendered on the controller from a template next to the playbook (``templates/``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.modules.base import Answers, Argument, ArgumentProblem, Context, Facts, Json
from fleet.modules.copy import DESTINATION, destination_problems, file_steps, needs

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

__all__ = ["ARGUMENTS", "check", "needs", "steps"]

ARGUMENTS = {
    "src": Argument("plain", required=True, description="a template in templates/ next to the playbook"),
    **DESTINATION,
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """``validate`` must name the file."""
    return destination_problems(args)


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``file`` step with the rendered text."""
    source = args["src"]
    shared = {**args, "src": source.removesuffix(".j2")}
    return file_steps(shared, {"content": context.render_template(source)}, answers, context)
