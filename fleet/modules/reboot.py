"""The host is rebooted and waited for. Disruptive: needs leave where others use the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.audit.leave import reasons_against
from fleet.audit.pending import reboot_words
from fleet.modules.base import Answers, Argument, Context, ControllerResult, Facts, Json

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ENDS_SEGMENT = True
READS_FACTS = True
ARGUMENTS = {
    "reboot_timeout": Argument("number", default=600.0, description="seconds until it must be back"),
    "only_if_required": Argument(
        "boolean", default=False, description="only if the distribution asks for it"
    ),
    "test_command": Argument(refused="back means: another boot id, and the agent answers"),
    "pre_reboot_delay": Argument(refused="the host is watched; no delay is needed"),
    "post_reboot_delay": Argument(refused="the host is watched; no delay is needed"),
    "msg": Argument(refused="leave it out"),
    "connect_timeout": Argument(refused="connection deadlines stand in the inventory"),
}


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """``pending`` where others use the host and no leave was given; the play stops there. And what else it does."""
    reasons = _held_back(args, facts, context)
    if not reasons:
        also = None if _not_asked_for(args, facts) else reboot_words(facts)
        return [context.result("finding", also)] if also is not None else []
    text = f"needs leave to reboot: {'; '.join(reasons)}"
    return [context.result("pending", text, remedy=context.disrupt_command, stops=True)]


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``reboot`` step, or none where leave is missing."""
    if _held_back(args, facts, context):
        return []
    wanted = {"deadline_s": args["reboot_timeout"], "only_if_required": args["only_if_required"]}
    # The step itself ends when the host goes down; the rest of the deadline is the controller's.
    return [context.step("reboot", "reboot", wanted, deadline_s=args["reboot_timeout"], disruptive=True)]


def _held_back(args: Json, facts: Facts, context: Context) -> list[str]:
    if context.disrupt or _not_asked_for(args, facts):
        return []
    return reasons_against(facts)


def _not_asked_for(args: Json, facts: Facts) -> bool:
    """Whether the distribution asks for no reboot, and the task wants one only then."""
    return bool(args["only_if_required"]) and (facts.get("reboot_required") or {}).get("required") is False
