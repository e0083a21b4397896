"""Conditions that must hold, evaluated on the controller; a host where one does not is failed."""

from __future__ import annotations

from fleet.modules.base import Answers, Argument, Context, ControllerResult, Facts, Json

ARGUMENTS = {
    "that": Argument("expressions", required=True, description="conditions, all of which must hold"),
    "fail_msg": Argument("plain", aliases=("msg",), description="what to say where one does not"),
    "success_msg": Argument("plain", default="all conditions hold"),
    "quiet": Argument(refused="leave it out"),
}


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """``ok``, or ``failed`` with the conditions that do not hold. ``that`` is ``[(text, value), …]`` here."""
    false = [text for text, value in args["that"] if not value]
    if not false:
        return [context.result("ok", args["success_msg"])]
    reason = "; ".join(f"this does not hold: {text}" for text in false)
    return [context.result("failed", args["fail_msg"] or reason, stops=True)]
