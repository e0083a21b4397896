"""A kernel module: loaded or not, at boot or not, blacklisted or not, with options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.modules.base import Answers, Argument, Context, Facts, Json, given

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ARGUMENTS = {
    "name": Argument("plain", required=True, description="the module"),
    "state": Argument(
        choices=("present", "loaded", "absent"), description="now; leave out to not load or unload"
    ),
    "persist": Argument("boolean", default=False, description="load it at every boot"),
    "blacklist": Argument("boolean", default=False, description="never load it by itself"),
    "options": Argument(
        "plain", aliases=("params",), description="what follows *options NAME* in modprobe.d"
    ),
    "persistent": Argument(refused="write persist: true"),
}


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``kernel_module`` step; unloading a module is disruptive."""
    wanted = given(args, ("name", "persist", "blacklist", "options"))
    state = args["state"]
    wanted["state"] = "loaded" if state == "present" else state
    return [context.step("module", "kernel_module", wanted, disruptive=state == "absent")]
