"""Variables for the tasks that follow, on this host. The compiler keeps them; nothing happens on the host."""

from __future__ import annotations

from fleet.modules.base import Answers, Argument, Context, ControllerResult, Facts, Json

ANY_ARGUMENTS = True
ARGUMENTS: dict[str, Argument] = {"cacheable": Argument(refused="variables live as long as the run")}


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """One ``ok`` that names what was set."""
    return [context.result("ok", f"set {', '.join(sorted(args))}")]
