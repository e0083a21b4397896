"""A package repository of apt hosts, as a deb822 file with its own key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.modules.base import PACKAGE_DEADLINE_S, Answers, Argument, ArgumentProblem, Context, Facts, Json
from fleet.modules.shared import repository_key

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ARGUMENTS = {
    "name": Argument(
        "plain", required=True, description="the file's name in sources.list.d, without .sources"
    ),
    "uris": Argument("list", description="base addresses"),
    "suites": Argument("list", description="such as bookworm, or ./"),
    "components": Argument("list", default=[], description="such as main; none for a flat repository"),
    "architectures": Argument("list", description="such as amd64; all if left out"),
    "key": Argument("plain", description="the signing key, ASCII-armoured"),
    "key_file": Argument("plain", description="the signing key, a file in files/ next to the playbook"),
    "key_url": Argument("plain", description="where the host gets the signing key; needs key_fingerprint"),
    "key_fingerprint": Argument("plain", description="40 hex digits the key must have"),
    "trusted": Argument("boolean", default=False, description="take it without a signature"),
    "options": Argument("mapping", default={}, description="further fields of the deb822 file"),
    "state": Argument(default="present", choices=("present", "absent")),
    "repo": Argument(refused="write name:, uris:, suites: and components:"),
    "filename": Argument(refused="write name:"),
    "signed_by": Argument(refused="write key:, key_file: or key_url:"),
    "update_cache": Argument(refused="the lists of this repository are always refreshed when it changes"),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """What a repository that is to be there must say."""
    problems = []
    if args.get("state", "present") == "present":
        for name in ("uris", "suites"):
            if args.get(name) is None:
                problems.append(
                    ArgumentProblem(f"apt_repository needs {name} ({ARGUMENTS[name].description})")
                )
        if not any(args.get(name) for name in ("key", "key_file", "key_url", "trusted")):
            message = "apt_repository needs key_url with key_fingerprint, key or key_file (or trusted: true, unsafe)"
            problems.append(ArgumentProblem(message))
        if args.get("key_url") and not args.get("key_fingerprint"):
            message = "key_url needs key_fingerprint: what is fetched is taken only if it is that key"
            problems.append(ArgumentProblem(message, "key_url"))
        problems += [ArgumentProblem(text, name) for name, text in repository_key.key_problems(args)]
    return problems


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``apt_repository`` step, on hosts with apt only."""
    manager = (facts.get("packages") or {}).get("manager")
    if manager not in (None, "apt"):
        raise ArgumentProblem(
            f"an apt repository is written here, but this host has {manager}; guard it with when:"
        )
    return [
        context.step("repository", "apt_repository", repository(args, context), deadline_s=PACKAGE_DEADLINE_S)
    ]


def repository(args: Json, context: Context) -> Json:
    """The resource's arguments; also those of a ``package_versions`` query."""
    if args["state"] == "absent":
        return {"name": args["name"], "state": "absent"}
    return {
        "name": args["name"],
        "uris": args["uris"],
        "suites": args["suites"],
        "components": args["components"],
        "architectures": args["architectures"],
        "key": repository_key.given(args, context),
        "trusted": args["trusted"],
        "options": args["options"],
        "state": "present",
    }
