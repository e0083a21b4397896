"""One line of a text file is there, or is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.modules.base import OWNERSHIP, Answers, Argument, ArgumentProblem, Context, Facts, Json, given

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ARGUMENTS = {
    "path": Argument("path", required=True, aliases=("dest", "destfile", "name"), description="the file"),
    "line": Argument(aliases=("value",), description="the whole line"),
    "regexp": Argument(
        "plain", aliases=("regex",), description="the line this replaces: the last that matches"
    ),
    "state": Argument(default="present", choices=("present", "absent")),
    "insertafter": Argument("plain", description="EOF, or the expression after whose last match it goes"),
    "create": Argument("boolean", default=False, description="make the file where there is none"),
    "backup": Argument("boolean", default=False),
    **OWNERSHIP,
    "backrefs": Argument(refused="write the wanted line itself"),
    "insertbefore": Argument(refused="write insertafter:, or the whole file with copy: or template:"),
    "search_string": Argument(refused="write regexp:"),
    "validate": Argument(refused="write the whole file with template: and validate:"),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """``line`` or ``regexp`` must be there, and an expression must be one."""
    problems = []
    if args.get("state", "present") == "present" and args.get("line") is None:
        problems.append(ArgumentProblem("lineinfile needs line (the whole line)"))
    elif args.get("line") is None and args.get("regexp") is None:
        problems.append(ArgumentProblem("lineinfile with state: absent needs line or regexp"))
    for name in ("regexp", "insertafter"):
        expression = args.get(name)
        if isinstance(expression, str) and "{{" not in expression:
            try:
                re.compile(expression)
            except re.error as error:
                problems.append(ArgumentProblem(f"{name} is not a regular expression: {error}", name))
    return problems


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``line`` step."""
    wanted = given(args, ("path", "line", "state", "create", "backup", "mode", "owner", "group"))
    if args["regexp"] is not None:
        wanted["match"] = args["regexp"]
    if args["insertafter"] is not None:
        wanted["insert_after"] = args["insertafter"]
    return [context.step("line", "line", wanted)]
