"""Packages by apt: as :mod:`fleet.modules.package`, with the arguments of Ansible's apt known by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.modules import package
from fleet.modules.base import Answers, Argument, ArgumentProblem, Context, ControllerResult, Facts, Json

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

_UPGRADE = "upgrading everything cannot converge; name the packages"
ARGUMENTS = {
    **{name: argument for name, argument in package.ARGUMENTS.items() if name != "use"},
    "autoremove": Argument(refused="fleet removes only what is named"),
    "deb": Argument(refused="put the file in a repository and name it in apt_repository:"),
    "default_release": Argument(refused="write name=version"),
    "dpkg_options": Argument(refused="configuration files that were changed are always kept"),
    "force": Argument(refused="write allow_downgrade:, also_allowed: or hold:"),
    "purge": Argument(refused="remove leftover files with file: state: absent"),
    "upgrade": Argument(refused=_UPGRADE),
}
check = package.check
needs = package.needs


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """As package."""
    return package.results(args, facts, answers, context)


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """As package, on hosts with apt only."""
    manager = (facts.get("packages") or {}).get("manager")
    if manager not in (None, "apt"):
        raise ArgumentProblem(f"apt is written here, but this host has {manager}; write package:")
    return package.steps(args, facts, answers, context)
