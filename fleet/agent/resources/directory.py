"""A directory with its mode and owner, or the absence of one."""

from __future__ import annotations

import os
import stat

from fleet.agent import files
from fleet.agent.protocol import KNOWN_AFTER_APPLY, Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Reporter,
    Resource,
    StepFailed,
    difference,
)
from fleet.agent.resources.file import place_and_owner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple

    from fleet.agent.host import Host

SHOWN = 20  # entries of a recursive difference that are listed one by one


class Directory(Resource):
    """args: path, mode, owner, group, state present|absent, recurse.

    Parents that are missing are made with mode 0755. With ``recurse`` everything below gets the owner
    and group; directories below get the mode, and files the mode without its execute bits unless the
    file is executable already (what chmod calls ``X``). Links below are left alone.
    """

    kind = "directory"

    def read(self, host: Host, args: Json) -> Json:
        """Attributes; with ``recurse`` also ``below``, the entries whose attributes differ."""
        path = args["path"]
        absent = args.get("state") == "absent"
        state = files.attributes(host, path, args, follow=not absent)
        if state["exists"] and state["kind"] != "directory":
            raise StepFailed(
                "%s is a %s, not a directory" % (path, state["kind"]), "move it away, or choose another path"
            )
        if args.get("recurse") and state["exists"] and not absent:
            state["below"] = [
                [entry, found]
                for entry, wanted in _below(host, args)
                for found in files.attribute_differences(files.attributes(host, entry, wanted), wanted)
            ]
        return state

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        if args.get("state") == "absent":
            return [difference("state", "present", "absent")] if state["exists"] else []
        if not state["exists"]:
            return [difference("state", "absent", "present")]
        below = state.get("below", [])
        found = files.attribute_differences(state, args)
        for entry, one in below[:SHOWN]:
            found.append(difference("%s of %s" % (one["path"], entry), one["before"], one["after"]))
        if len(below) > SHOWN:
            found.append(difference("below", "%d more differ" % (len(below) - SHOWN), "as wanted"))
        return found

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`."""
        path = args["path"]
        if args.get("state") == "absent":
            _remove_tree(host, path)
            return None
        files.wanted_ids(host, args)  # an unknown owner must be noticed before anything is made
        _make(host, path, files.octal(args["mode"]) if args.get("mode") is not None else 0o755)
        files.set_attributes(host, path, args)
        if args.get("recurse"):
            for entry, wanted in _below(host, args):
                files.set_attributes(host, entry, wanted)
        return None

    def provides(self, args: Json) -> Provides:
        """The directory and every parent it would make."""
        if args.get("state") == "absent":
            return Provides(directories=[args["path"]])
        return Provides(directories=[args["path"], *_parents(args["path"])])

    def requires(self, args: Json) -> Provides:
        """Its owner and group."""
        needed = place_and_owner(args)
        needed.sets.pop("directories", None)
        return needed

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """Sharing a parent with an earlier step means nothing; the same directory does."""
        return KNOWN_AFTER_APPLY if provided.contains("directories", args["path"]) else None


def _parents(path: str) -> Iterator[str]:
    parent = os.path.dirname(path.rstrip("/"))
    while parent not in ("", "/"):
        yield parent
        parent = os.path.dirname(parent)


def _make(host: Host, path: str, mode: int) -> None:
    """mkdir -p, with the mode right from the start."""
    for parent in reversed([path, *_parents(path)]):
        real = host.path(parent)
        if os.path.isdir(real):
            continue
        try:
            os.mkdir(real, mode if parent == path else 0o755)
            os.chmod(real, mode if parent == path else 0o755)  # whatever the umask is
        except OSError as error:
            raise StepFailed("cannot make the directory %s: %s" % (parent, error.strerror)) from None


def _below(host: Host, args: Json) -> Iterator[Tuple[str, Json]]:
    """Everything below the directory, each with the attributes it should have."""
    top = host.path(args["path"])
    for folder, names, leaves in os.walk(top):
        for name in sorted(names) + sorted(leaves):
            real = os.path.join(folder, name)
            found = os.lstat(real)
            if stat.S_ISLNK(found.st_mode):
                continue
            wanted = {"owner": args.get("owner"), "group": args.get("group"), "mode": args.get("mode")}
            if wanted["mode"] is not None and not stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o111:
                wanted["mode"] = "%04o" % (files.octal(wanted["mode"]) & ~0o7111)
            yield os.path.join(args["path"], os.path.relpath(real, top)), wanted


def _remove_tree(host: Host, path: str) -> None:
    """rm -r, refusing the roots of the system and anything with a file system mounted in it."""
    import shutil

    real = os.path.realpath(host.path(path))
    if len([part for part in os.path.normpath(path).split("/") if part]) < 2:
        raise StepFailed("fleet does not remove %s" % path, "remove what is in it by name")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.split()[4] for line in file]
    inside = [mount for mount in mounts if mount == real or mount.startswith(real + "/")]
    if inside:
        raise StepFailed("%s is mounted in %s" % (inside[0], path), "unmount it first: umount %s" % inside[0])
    try:
        if os.path.islink(host.path(path)):
            os.unlink(host.path(path))
        else:
            shutil.rmtree(real)
    except OSError as error:
        raise StepFailed("cannot remove %s: %s" % (path, error.strerror)) from None


RESOURCE = Directory()
