"""A group is there, or is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.modules.base import Answers, Argument, Context, Facts, Json, given

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ARGUMENTS = {
    "name": Argument("plain", required=True, description="the group"),
    "gid": Argument("integer", description="its number"),
    "system": Argument("boolean", default=False, description="take a number of the system range"),
    "state": Argument(default="present", choices=("present", "absent")),
}


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``group`` step."""
    wanted = given(args, ("name", "gid", "system", "state"))
    return [context.step("group", "group", wanted)]
