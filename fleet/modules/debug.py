"""Says something, on the controller."""

from __future__ import annotations

from fleet.agent.protocol import canonical
from fleet.core.secret import MASK, Secret
from fleet.modules.base import Answers, Argument, ArgumentProblem, Context, ControllerResult, Facts, Json

ARGUMENTS = {
    "msg": Argument("any", description="what to say"),
    "var": Argument("expression", description="the expression whose value to show"),
    "verbosity": Argument(refused="leave it out"),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """Exactly one of ``msg`` and ``var``."""
    if (args.get("msg") is None) == (args.get("var") is None):
        return [ArgumentProblem("debug needs msg or var, and only one of them")]
    return []


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """One ``message``; secrets are masked."""
    value = args["msg"] if args["msg"] is not None else args["var"]
    shown = masked(value)
    return [context.result("message", shown if isinstance(shown, str) else canonical(shown))]


def masked(value: object) -> object:
    """``value`` with every secret in it shown as asterisks."""
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, dict):
        return {str(key): masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, list) else value
