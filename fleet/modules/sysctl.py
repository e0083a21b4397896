"""A kernel setting, kept in a file and, unless ``sysctl_set: false``, in the running kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.modules.base import Answers, Argument, Context, Facts, Json

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ARGUMENTS = {
    "name": Argument("plain", required=True, aliases=("key",), description="such as vm.swappiness"),
    "value": Argument("plain", required=True, aliases=("val",), description="the value"),
    "sysctl_file": Argument("path", default="/etc/sysctl.d/99-fleet.conf", description="where it is kept"),
    "sysctl_set": Argument("boolean", default=True, description="set it in the running kernel too"),
    "state": Argument(refused="delete the line with lineinfile: state: absent"),
    "reload": Argument(refused="the running value is set at once; sysctl_set: false leaves it"),
}


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``sysctl`` step."""
    wanted = {
        "name": args["name"],
        "value": args["value"],
        "file": args["sysctl_file"],
        "apply": args["sysctl_set"],
    }
    return [context.step("sysctl", "sysctl", wanted)]
