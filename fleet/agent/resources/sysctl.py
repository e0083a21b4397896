"""A kernel parameter: its line in a file of /etc/sysctl.d, and its live value in /proc/sys."""

from __future__ import annotations

from fleet.agent import files
from fleet.agent.protocol import KNOWN_AFTER_APPLY, Json
from fleet.agent.resources.base import Difference, Provides, Reporter, Resource, StepFailed, difference
from fleet.agent.resources.line import edited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

FILE = "/etc/sysctl.d/99-fleet.conf"


class Sysctl(Resource):
    """args: name, value, file, apply (False: the file only, for the next boot).

    Values are compared with runs of white space as one: the kernel prints tabs where people write spaces.
    """

    kind = "sysctl"

    def read(self, host: Host, args: Json) -> Json:
        """{"text": the file's, "configured": the value in it, "live": the value now}; None where absent."""
        text = files.read_text(host, _file(args))
        return {
            "text": text,
            "configured": _configured(text or "", args["name"]),
            "live": _live(host, args["name"]) if args.get("apply", True) else None,
        }

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        wanted = _plain(args["value"])
        found = []
        if state["configured"] != wanted:
            found.append(difference(_file(args), state["configured"], wanted))
        if args.get("apply", True) and state["live"] != wanted:
            found.append(difference("live", state["live"], wanted))
        return found

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """The live value first: a value the kernel refuses must not wait in a file for the next boot."""
        for entry in differences:
            if entry["path"] == "live":
                _set_live(host, args["name"], _plain(args["value"]))
        state = self.read(host, args)
        if state["configured"] != _plain(args["value"]):
            line = "%s = %s" % (args["name"], _plain(args["value"]))
            wanted = edited(state["text"] or "", line, {"match": _pattern(args["name"])})
            files.replace(host, _file(args), wanted.encode("utf-8", "surrogateescape"), {})
        return None

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """Other steps may write the same file; only a step that replaces all of it matters."""
        return KNOWN_AFTER_APPLY if provided.contains("files", _file(args)) else None


def _file(args: Json) -> str:
    return args.get("file") or FILE


def _plain(value: object) -> str:
    return " ".join(str(value).split())


def _key(name: str) -> str:
    """The path below /proc/sys. Whichever of ``.`` and ``/`` comes first separates, as sysctl has it."""
    first = next((sign for sign in name if sign in "./"), ".")
    return name if first == "/" else name.translate(str.maketrans("./", "/."))


def _pattern(name: str) -> str:
    import re

    return r"^\s*-?\s*" + re.escape(name) + r"\s*="


def _configured(text: str, name: str) -> Optional[str]:
    """The value the file gives: its last line for this key decides."""
    found = None
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and _key(key.strip().lstrip("-").strip()) == _key(name) and not key.startswith(("#", ";")):
            found = _plain(value)
    return found


def _live(host: Host, name: str) -> Optional[str]:
    try:
        with open(host.path("/proc/sys/" + _key(name)), encoding="utf-8", errors="replace") as file:
            return _plain(file.read())
    except OSError:
        return None  # absent, or write-only


def _set_live(host: Host, name: str, value: str) -> None:
    remedies = {
        2: "load the kernel module that brings it first, or set apply: false to write only the file",
        13: "this host may not change it (a container?); set apply: false to write only the file",
        22: "correct the value",
        30: "/proc/sys is read-only here (a container?); set apply: false to write only the file",
    }
    try:
        with open(host.path("/proc/sys/" + _key(name)), "r+", encoding="utf-8") as file:
            file.write(value + "\n")
    except OSError as error:
        raise StepFailed(
            "the kernel did not take %s = %s: %s" % (name, value, error.strerror),
            remedies.get(error.errno or 0, "set apply: false to write only the file"),
        ) from None


RESOURCE = Sysctl()
