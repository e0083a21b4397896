"""A local group, read from /etc/group, changed with the shadow tools."""

from __future__ import annotations

from fleet.agent.protocol import Json
from fleet.agent.resources.base import Difference, Provides, Reporter, Resource, difference, expect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

LOCK_REMEDY = (
    "another tool may be changing users: see whether /etc/passwd.lock or /etc/group.lock is left over"
)


class Group(Resource):
    """args: name, gid, system, state present|absent."""

    kind = "group"

    def read(self, host: Host, args: Json) -> Json:
        """{"gid"}: its number, None when there is no such group."""
        row = host.table("/etc/group").get(args["name"])
        return {"gid": int(row[2]) if row is not None else None}

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        exists = state["gid"] is not None
        if args.get("state") == "absent":
            return [difference("state", "present", "absent")] if exists else []
        if not exists:
            return [difference("state", "absent", "present")]
        if args.get("gid") is not None and int(args["gid"]) != state["gid"]:
            return [difference("gid", state["gid"], int(args["gid"]))]
        return []

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`."""
        name = args["name"]
        number = ["--gid", str(args["gid"])] if args.get("gid") is not None else []
        if args.get("state") == "absent":
            argv = ["groupdel", name]
        elif differences[0]["path"] == "state":
            argv = ["groupadd", *number, *(["--system"] if args.get("system") else []), name]
        else:
            argv = ["groupmod", *number, name]
        expect(host.run(argv, on_output=report.output), " ".join(argv), LOCK_REMEDY)
        return None

    def provides(self, args: Json) -> Provides:
        """The group."""
        return Provides(groups=[args["name"]])


RESOURCE = Group()
