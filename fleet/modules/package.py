"""Packages are there, at a version if one is given, or are not. The same for apt and dnf hosts."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from fleet.modules.base import (
    PACKAGE_DEADLINE_S,
    Answers,
    Argument,
    ArgumentProblem,
    Context,
    ControllerResult,
    Facts,
    Json,
)

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

REMOVAL = ("absent", "removed")
ARGUMENTS = {
    "name": Argument("list", required=True, aliases=("pkg", "package"), description="name, or name=version"),
    "state": Argument(default="present", choices=("present", "installed", "absent", "removed", "latest")),
    "hold": Argument("boolean", description="keep others from upgrading or removing it"),
    "allow_downgrade": Argument("boolean", default=False, aliases=("allow_downgrades",)),
    "install_recommends": Argument("boolean", default=False),
    "lock_timeout": Argument(
        "integer", default=300, description="seconds to wait for another package manager"
    ),
    "also_allowed": Argument(
        "list", default=[], description="packages a transaction may change besides these"
    ),
    "update_cache": Argument(
        "boolean", default=True, description="accepted; lists are refreshed when they are needed"
    ),
    "cache_valid_time": Argument("integer", description="accepted; lists are refreshed when they are needed"),
    "use": Argument(refused="the host's own package manager is used"),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """``latest`` is refused: what it means changes under the operator."""
    if args.get("state") == "latest":
        message = "state: latest means another version on every day; write name=version, or state: present"
        return [ArgumentProblem(message, "state")]
    return []


def needs(args: Json, facts: Facts, context: Context) -> list[Json]:
    """Which versions there are, for names with a version that is not known to be installed."""
    if args["state"] in REMOVAL:
        return []
    asked = sorted(
        name for name, version in pins(args["name"]) if version and not _installed(facts, name, version)
    )
    return [{"id": "versions", "kind": "package_versions", "names": asked}] if asked else []


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """A pin that no repository offers stops this host before anything is touched."""
    refused: list[ControllerResult] = []
    if args["state"] in REMOVAL:
        return refused
    for name, version in pins(args["name"]):
        if version and not _installed(facts, name, version):
            offered = (answers.get("versions") or {}).get(name, [])
            if not any(fnmatch.fnmatchcase(each, version) for each in offered):
                refused.append(pin_refused(name, version, offered, context))
    return refused


def pin_refused(name: str, version: str, offered: list[str], context: Context) -> ControllerResult:
    """The result for a version that cannot be had, with what can."""
    there = ", ".join(offered[:5]) or "none at all"
    return context.result(
        "failed",
        f"pin_not_available: {name} {version} is in no repository of this host; offered: {there}",
        remedy=f"pin a version that is offered, or add the repository that has {name} {version}",
        stops=True,
    )


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One transaction for all names."""
    removal = args["state"] in REMOVAL
    names: list[Json] = []
    for name, version in pins(args["name"]):
        wanted: Json = {"name": name}
        if version and not removal:
            wanted["version"] = resolved(name, version, facts, answers)
        names.append(wanted)
    if not names:
        return []
    return [package_step(names, args, context, removal=removal)]


def package_step(
    names: list[Json], args: Json, context: Context, *, removal: bool = False, part: str = "packages"
) -> Step:
    """The ``package`` step for ``names``, with the options of ``args`` or their defaults."""
    wanted: Json = {
        "names": names,
        "state": "absent" if removal else "present",
        "install_recommends": args.get("install_recommends", False),
        "allow_downgrade": args.get("allow_downgrade", False),
        "lock_timeout_s": args.get("lock_timeout", 300),
        "also_allowed": args.get("also_allowed") or [],
    }
    if args.get("hold") is not None:
        wanted["hold"] = args["hold"]
    return context.step(part, "package", wanted, deadline_s=PACKAGE_DEADLINE_S)


def pins(names: list[str]) -> list[tuple[str, str | None]]:
    """``["a", "b=1.2*"]`` as ``[("a", None), ("b", "1.2*")]``."""
    result: list[tuple[str, str | None]] = []
    for text in names:
        name, equals, version = str(text).partition("=")
        result.append((name.strip(), version.strip() if equals else None))
    return result


def resolved(name: str, version: str, facts: Facts, answers: Answers) -> str:
    """The exact version a pin means: the installed one if it matches, else the newest offered that does."""
    installed = installed_version(facts, name)
    if installed is not None and fnmatch.fnmatchcase(installed, version):
        return installed
    offered = (answers.get("versions") or {}).get(name, [])
    return next((each for each in offered if fnmatch.fnmatchcase(each, version)), version)


def installed_version(facts: Facts, name: str) -> str | None:
    """The installed version of a package of the watch list, or None where it is absent or not watched."""
    found = ((facts.get("packages") or {}).get("installed") or {}).get(name)
    return None if found is None else str(found)


def _installed(facts: Facts, name: str, version: str) -> bool:
    found = installed_version(facts, name)
    return found is not None and fnmatch.fnmatchcase(found, version)
