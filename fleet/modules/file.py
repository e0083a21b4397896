"""A directory, a symbolic link, permissions of a file, or nothing at all at a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.modules.base import OWNERSHIP, Answers, Argument, ArgumentProblem, Context, Facts, Json, given

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

ARGUMENTS = {
    "path": Argument("path", required=True, aliases=("dest", "name"), description="where"),
    "state": Argument(
        default="file",
        choices=("file", "directory", "link", "absent", "touch", "hard"),
        description="what is there",
    ),
    "src": Argument("plain", description="what a link points to"),
    "recurse": Argument("boolean", default=False, description="owner, group and mode of all below, too"),
    **OWNERSHIP,
    "force": Argument(refused="remove what is in the way in a task of its own"),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """States that can never converge are refused, and arguments that do not go together."""
    state = args.get("state", "file")
    if state == "touch":
        hint = 'write copy: with content: "" and force: false'
        return [ArgumentProblem(f"state: touch changes the file on every run; {hint}", "state")]
    if state == "hard":
        return [ArgumentProblem("hard links are not supported; write state: link", "state")]
    if state == "link" and args.get("src") is None:
        return [ArgumentProblem("state: link needs src, what the link points to")]
    if state != "link" and args.get("src") is not None:
        return [ArgumentProblem("src belongs to state: link; copy: puts a file there", "src")]
    return []


def needs(args: Json, facts: Facts, context: Context) -> list[Json]:
    """What is at the path decides how it is removed."""
    return [{"id": "path", "kind": "path", "path": args["path"]}] if args["state"] == "absent" else []


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``directory``, ``link`` or ``file`` step."""
    path = args["path"]
    if args["state"] == "directory":
        wanted = given(args, ("path", "mode", "owner", "group", "recurse"))
        return [context.step("directory", "directory", {**wanted, "state": "present"})]
    if args["state"] == "link":
        return [context.step("link", "link", {"path": path, "target": args["src"]})]
    if args["state"] == "absent":
        if (answers.get("path") or {}).get("kind") == "directory":
            return [context.step("absent", "directory", {"path": path, "state": "absent", "recurse": True})]
        return [context.step("absent", "file", {"path": path, "state": "absent"})]
    wanted = given(args, ("path", "mode", "owner", "group"))
    return [context.step("file", "file", {**wanted, "state": "present", "create": False})]
