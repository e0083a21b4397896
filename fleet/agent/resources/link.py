"""A symbolic link and what it points to, or the absence of one."""

from __future__ import annotations

import os

from fleet.agent.protocol import Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Reporter,
    Resource,
    StepFailed,
    difference,
    would_change_if,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host


class Link(Resource):
    """args: path, target (as written into the link), state present|absent."""

    kind = "link"

    def read(self, host: Host, args: Json) -> Json:
        """``target``: what the link points to, None when there is no link."""
        path = args["path"]
        try:
            return {"target": os.readlink(host.path(path))}
        except (FileNotFoundError, NotADirectoryError):
            return {"target": None}
        except OSError:
            raise StepFailed(
                "%s is there and is not a link" % path, "move it away; fleet does not replace it by a link"
            ) from None

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        wanted = None if args.get("state") == "absent" else args["target"]
        return [] if state["target"] == wanted else [difference("target", state["target"], wanted)]

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """A new link is made beside the path and renamed over it: there is always one of the two."""
        real = host.path(args["path"])
        temporary = "%s/.%s.fleet-new" % (os.path.dirname(real), os.path.basename(real))
        try:
            if args.get("state") == "absent":
                os.unlink(real)
                return None
            if os.path.lexists(temporary):
                os.unlink(temporary)
            os.symlink(args["target"], temporary)
            os.rename(temporary, real)
        except OSError as error:
            raise StepFailed(
                "cannot make the link %s: %s" % (args["path"], error.strerror),
                "its directory must exist: create it first, with a directory task",
            ) from None
        return None

    def provides(self, args: Json) -> Provides:
        """The path, also when it is to go."""
        return Provides(files=[args["path"]])

    def requires(self, args: Json) -> Provides:
        """Its directory."""
        return Provides(directories=[os.path.dirname(args["path"])])

    def forecast(self, args: Json, provided: Provides) -> str:
        """A link whose directory is not there yet is not there either."""
        return would_change_if(args.get("state") != "absent")


RESOURCE = Link()
