"""A unit file in /etc/systemd/system, loaded, enabled and started as asked.

The running unit reflects its file: changing the contents restarts it (see :mod:`.service`).
"""

from __future__ import annotations

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
)
from fleet.agent.resources.service import RESOURCE as SERVICE
from fleet.agent.resources.service import systemctl, unit_name, unit_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

FOLDER = "/etc/systemd/system"


class SystemdUnit(Resource):
    """args: name, content, state present|absent, enabled, started (None: leave as it is)."""

    kind = "systemd_unit"

    def read(self, host: Host, args: Json) -> Json:
        """The file's contents (``data``), those wanted, and ``unit``, what systemd says."""
        name = unit_name(args["name"])
        content = host.secret(args.get("content"))
        return {
            "data": files.read_bytes(host, _path(name)),
            "wanted": None if content is None else content.encode("utf-8", "surrogateescape"),
            "unit": unit_state(host, name, [_path(name)] if args.get("started") else ()),
        }

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        name = unit_name(args["name"])
        if args.get("state") == "absent":
            if state["data"] is not None:
                return [difference("state", "present", "absent")]
            forgotten = not state["unit"]["needs_daemon_reload"]
            return [] if forgotten else [difference("loaded", "the removed file", None)]
        found = []
        if state["data"] != state["wanted"]:
            shown = not is_secret(args.get("content"))
            found.append(files.content_difference(_path(name), state["data"], state["wanted"] or b"", shown))
        elif state["unit"]["needs_daemon_reload"]:
            found.append(difference("loaded", "an older file", "this file"))
        return found + SERVICE.diff(state["unit"], _service_args(args))

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`."""
        name = unit_name(args["name"])
        if args.get("state") == "absent":
            _take_away(host, report, name)
            return None
        if args.get("content") is None:
            raise StepFailed("the unit file %s has no contents" % name, "give the task its content")
        if any(entry["path"] in ("content", "loaded") for entry in differences):
            wanted = host.secret(args["content"]).encode("utf-8", "surrogateescape")
            if files.read_bytes(host, _path(name)) != wanted:
                files.replace(host, _path(name), wanted, {"mode": "0644"})
            systemctl(host, report, "daemon-reload")
        service = _service_args(args)
        SERVICE.apply(host, service, SERVICE.diff(SERVICE.read(host, service), service), report)
        return None

    def provides(self, args: Json) -> Provides:
        """The unit and its file."""
        name = unit_name(args["name"])
        turned = args.get("started") is not None or args.get("enabled") is not None
        return Provides(units=[name], files=[_path(name)], switched=[name] if turned else [])

    def looks_at(self, args: Json) -> Provides:
        """The unit."""
        return Provides(units=[unit_name(args["name"])])


def _path(name: str) -> str:
    return "%s/%s" % (FOLDER, name)


def _service_args(args: Json) -> Json:
    name = unit_name(args["name"])
    started = args.get("started")
    return {
        "name": name,
        "enabled": args.get("enabled"),
        "state": None if started is None else "started" if started else "stopped",
        "reflects": [_path(name)] if started else [],
    }


def _take_away(host: Host, report: Reporter, name: str) -> None:
    """Stop, disable, remove: in this order, since systemd needs the file for the first two."""
    if files.read_bytes(host, _path(name)) is not None:
        systemctl(host, report, "disable", "--now", name)
        files.remove(host, _path(name))
    systemctl(host, report, "daemon-reload")


RESOURCE = SystemdUnit()
