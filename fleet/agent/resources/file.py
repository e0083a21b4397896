"""A file with given contents, mode and owner, or the absence of one.

The writing itself is :mod:`fleet.agent.files`.
"""

from __future__ import annotations

import os

from fleet.agent import files
from fleet.agent.protocol import Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Reporter,
    Resource,
    StepFailed,
    difference,
    is_secret,
    would_change_if,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

SECRET_MODE = 0o600  # of a new file with secret contents, when the task names none


class File(Resource):
    """args: path, content | content_base64 (neither: only mode and owner), mode, owner, group,
    state present|absent, backup, validate, create, show_diff."""

    kind = "file"

    def read(self, host: Host, args: Json) -> Json:
        """Attributes, contents now (``data``) and contents wanted (``wanted``), as bytes."""
        absent = args.get("state") == "absent"
        state = files.attributes(host, args["path"], args, follow=not absent)
        if state["kind"] == "directory":
            raise StepFailed(
                "%s is a directory, not a file" % args["path"],
                "use a directory task, or choose another path",
            )
        if not absent:
            state["wanted"] = _wanted(host, args)
            compare = state["exists"] and state["wanted"] is not None
            state["large"] = compare and os.path.getsize(host.path(args["path"])) > files.READ_LIMIT
            small = compare and not state["large"]
            state["data"] = files.read_bytes(host, args["path"]) if small else None
        return state

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        if args.get("state") == "absent":
            return [difference("state", "present", "absent")] if state["exists"] else []
        if not state["exists"]:
            if not args.get("create", True):
                return []
            shown = files.content_difference(args["path"], None, state["wanted"] or b"", _shows(args))
            return [difference("state", "absent", "present"), shown]
        found = []
        if state["wanted"] is not None and state["data"] != state["wanted"]:
            found.append(files.content_difference(args["path"], state["data"], state["wanted"], _shows(args)))
            if state["large"]:
                found[0]["before"] = "more than %d MiB" % (files.READ_LIMIT // 2**20)
        return found + files.attribute_differences(state, args)

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`. ``registered`` holds the path of the backup, if one was made."""
        path = args["path"]
        if args.get("state") == "absent":
            files.remove(host, path)
            return None
        if not any(entry["path"] in ("state", "content") for entry in differences):
            files.set_attributes(host, path, args)
            return None
        mode = SECRET_MODE if _secret_content(args) else 0o644
        kept = files.replace(
            host,
            path,
            _wanted(host, args) or b"",
            args,
            default_mode=mode,
            backup=bool(args.get("backup")),
        )
        return {"registered": {"backup": kept}} if kept else None

    def provides(self, args: Json) -> Provides:
        """The file, also when it is to go: what reads it must look again."""
        return Provides(files=[args["path"]])

    def requires(self, args: Json) -> Provides:
        """Its directory, owner and group."""
        if args.get("state") == "absent":
            return Provides()
        return place_and_owner(args)

    def forecast(self, args: Json, provided: Provides) -> str:
        """A file whose directory is not there yet is not there either."""
        nowhere = provided.contains("directories", os.path.dirname(args["path"]))
        return would_change_if(nowhere and args.get("create", True))


def place_and_owner(args: Json) -> Provides:
    """What every file needs: its directory, and the user and group it is to belong to."""
    needed = Provides(directories=[os.path.dirname(args["path"])])
    for argument, category in (("owner", "users"), ("group", "groups")):
        if args.get(argument) is not None and not str(args[argument]).isdigit():
            needed.add(category, str(args[argument]))
    return needed


def _wanted(host: Host, args: Json) -> Optional[bytes]:
    if args.get("content_base64") is not None:
        import base64

        return base64.b64decode(host.secret(args["content_base64"]))
    if args.get("content") is not None:
        text: str = host.secret(args["content"])
        return text.encode("utf-8", "surrogateescape")
    return None


def _secret_content(args: Json) -> bool:
    return is_secret(args.get("content")) or is_secret(args.get("content_base64"))


def _shows(args: Json) -> bool:
    return bool(args.get("show_diff", True)) and not _secret_content(args)


RESOURCE = File()
