"""A package repository of apt hosts, as a deb822 file with its own key."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from fleet.modules.base import PACKAGE_DEADLINE_S, Answers, Argument, ArgumentProblem, Context, Facts, Json

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
    "key_fingerprint": Argument("plain", description="40 hex digits the key must have"),
    "trusted": Argument("boolean", default=False, description="take it without a signature"),
    "options": Argument("mapping", default={}, description="further fields of the deb822 file"),
    "state": Argument(default="present", choices=("present", "absent")),
    "repo": Argument(refused="write name:, uris:, suites: and components:"),
    "filename": Argument(refused="write name:"),
    "signed_by": Argument(refused="write key: or key_file:"),
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
        if not any(args.get(name) for name in ("key", "key_file", "trusted")):
            problems.append(
                ArgumentProblem("apt_repository needs key or key_file (or trusted: true, unsafe)")
            )
    fingerprint = args.get("key_fingerprint")
    if (
        isinstance(fingerprint, str)
        and "{{" not in fingerprint
        and not re.fullmatch("[0-9A-Fa-f]{40}", _bare(fingerprint))
    ):
        problems.append(ArgumentProblem("key_fingerprint must be 40 hex digits", "key_fingerprint"))
    return problems


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``apt_repository`` step."""
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
        "key": key(args, context),
        "trusted": args["trusted"],
        "options": args["options"],
        "state": "present",
    }


def key(args: Json, context: Context) -> dict[str, Any] | None:
    """The signing key as the agent takes it: ASCII as it is, binary in base64; None where there is none."""
    content = args.get("key")
    if content is None and args.get("key_file"):
        data = context.read_file(args["key_file"])
        armoured = data.lstrip().startswith(b"-----BEGIN PGP")
        content = data.decode("utf-8", "replace") if armoured else base64.b64encode(data).decode("ascii")
    if content is None:
        return None
    fingerprint = args.get("key_fingerprint")
    return {"content": content, "fingerprint": _bare(fingerprint).upper() if fingerprint else None}


def _bare(fingerprint: str) -> str:
    return fingerprint.replace(" ", "").replace(":", "")
