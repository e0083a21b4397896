"""A container image is there, by digest where one is given: a tag can move, a digest cannot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet.modules.base import (
    IMAGE_DEADLINE_S,
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

_DIGEST = re.compile("sha256:[0-9a-f]{64}")
ARGUMENTS = {
    "reference": Argument("plain", required=True, aliases=("name", "image"), description="registry/name:tag"),
    "digest": Argument("plain", description="sha256:… of the manifest; another one is refused"),
    "username": Argument(description="for the registry"),
    "password": Argument(description="for the registry; a secret"),
    "state": Argument(default="present", choices=("present", "absent")),
    "source": Argument(refused="images are pulled"),
    "pull": Argument(refused="images are pulled when they are missing"),
    "tag": Argument(refused="write it in reference: name:tag"),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """The digest's form; user and password together."""
    problems = []
    digest = args.get("digest")
    if isinstance(digest, str) and "{{" not in digest and not _DIGEST.fullmatch(digest):
        problems.append(ArgumentProblem("digest must be sha256: and 64 hex digits", "digest"))
    reference = args.get("reference")
    if isinstance(reference, str) and "@" in reference:
        problems.append(ArgumentProblem("write the digest in digest:, not in the reference", "reference"))
    if (args.get("username") is None) != (args.get("password") is None):
        problems.append(ArgumentProblem("username and password go together"))
    return problems


def results(args: Json, facts: Facts, answers: Answers, context: Context) -> list[ControllerResult]:
    """A ``message`` where nothing pins the image."""
    if args["state"] == "absent" or args["digest"] is not None:
        return []
    text = f"{args['reference']} has no digest: hosts may get different images when the tag is moved"
    return [context.result("message", text)]


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``image`` step."""
    wanted: Json = {"reference": args["reference"], "digest": args["digest"], "state": args["state"]}
    if args["password"] is not None:
        wanted["auth"] = {"username": args["username"], "password": args["password"]}
    return [context.step("image", "image", wanted, deadline_s=IMAGE_DEADLINE_S)]
