"""A file with this content: from ``content``, or from a file next to the playbook (``files/``)."""

from __future__ import annotations

import base64
import posixpath
from typing import TYPE_CHECKING

from fleet.modules.base import OWNERSHIP, Answers, Argument, ArgumentProblem, Context, Facts, Json, given

if TYPE_CHECKING:
    from fleet.agent.protocol import Step

LARGEST_FILE = 8_000_000  # a plan is one line of the protocol, which has a limit
DESTINATION = {
    "dest": Argument("path", required=True, aliases=("path",), description="the file on the host"),
    "backup": Argument("boolean", default=False, description="keep the old file beside the new one"),
    "validate": Argument(
        "command", description="a check of the new file before it is put in place; %s is its path"
    ),
    "force": Argument("boolean", default=True, description="false: leave a file that is there as it is"),
    **OWNERSHIP,
}
ARGUMENTS = {
    "src": Argument("plain", description="a file in files/ next to the playbook, or an absolute path"),
    "content": Argument("any", description="the text itself"),
    **DESTINATION,
    "remote_src": Argument(refused="write command: cp with creates:"),
    "directory_mode": Argument(refused="make the directory with file:"),
}


def check(args: Json, in_handler: bool) -> list[ArgumentProblem]:
    """Exactly one of ``src`` and ``content``; ``validate`` must name the file."""
    problems = destination_problems(args)
    if (args.get("src") is None) == (args.get("content") is None):
        problems.append(ArgumentProblem("copy needs src or content, and only one of them"))
    return problems


def destination_problems(args: Json) -> list[ArgumentProblem]:
    """What is wrong with the arguments that copy and template share."""
    validate = args.get("validate")
    words = validate if isinstance(validate, list) else str(validate or "%s").split()
    if validate is not None and not any("%s" in str(word) for word in words):
        return [ArgumentProblem("validate must hold %s, which becomes the path of the new file", "validate")]
    return []


def needs(args: Json, facts: Facts, context: Context) -> list[Json]:
    """With ``force: false`` whether the file is there decides."""
    return [] if args["force"] else [{"id": "dest", "kind": "path", "path": args["dest"]}]


def steps(args: Json, facts: Facts, answers: Answers, context: Context) -> list[Step]:
    """One ``file`` step."""
    if args["content"] is not None:
        return file_steps(args, {"content": _as_text(args["content"])}, answers, context)
    data = context.read_file(args["src"])
    if len(data) > LARGEST_FILE:
        size, limit = len(data) / 1e6, LARGEST_FILE / 1e6
        message = f"src is {size:.1f} MB, and a file in a plan has at most {limit:.0f}; make a package of it"
        raise ArgumentProblem(message, "src")
    try:
        contents: Json = {"content": data.decode("utf-8")}
    except UnicodeDecodeError:
        contents = {"content_base64": base64.b64encode(data).decode("ascii")}
    return file_steps(args, contents, answers, context)


def file_steps(args: Json, contents: Json, answers: Answers, context: Context) -> list[Step]:
    """The step that puts ``contents`` at ``dest``; shared with template."""
    if not args["force"] and (answers.get("dest") or {}).get("exists"):
        return []
    path = args["dest"]
    if path.endswith("/"):
        if not args.get("src"):
            raise ArgumentProblem("dest must name a file, not end with /", "dest")
        path += posixpath.basename(args["src"])
    wanted = given(args, ("mode", "owner", "group", "backup", "validate"))
    return [context.step("file", "file", {"path": path, **contents, **wanted, "state": "present"})]


def _as_text(content: object) -> object:
    """``content: {a: 1}`` is written as JSON, as Ansible does."""
    if isinstance(content, (dict, list)):
        import json

        return json.dumps(content, indent=4, sort_keys=True) + "\n"
    return str(content) if isinstance(content, (bool, int, float)) else content
