"""A local user, read from /etc/passwd, /etc/group and /etc/shadow, changed with the shadow tools."""

from __future__ import annotations

from fleet.agent.protocol import Json
from fleet.agent.resources.base import (
    MASK,
    Difference,
    Provides,
    Reporter,
    Resource,
    StepFailed,
    difference,
    expect,
    would_change_if,
)
from fleet.agent.resources.group import LOCK_REMEDY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host


class User(Resource):
    """args: name, uid, group (primary), groups, append, shell, home, create_home, system, password_hash,
    state present|absent.

    ``groups`` with ``append`` (the default) are added to those the user has; without it they are all.
    The home directory is made with the user only, and is not removed with it.
    """

    kind = "user"

    def read(self, host: Host, args: Json) -> Json:
        """{"exists", "uid", "group", "groups", "home", "shell", "password_ok"}."""
        name = args["name"]
        row = host.table("/etc/passwd").get(name)
        if row is None or len(row) < 7:
            return {"exists": False}
        groups = host.table("/etc/group")
        return {
            "exists": True,
            "uid": int(row[2]),
            "group": host.group_name(int(row[3])),
            "gid": int(row[3]),
            "wanted_gid": host.group_id(args["group"]) if args.get("group") is not None else None,
            "groups": sorted(
                group for group, fields in groups.items() if len(fields) > 3 and name in fields[3].split(",")
            ),
            "home": row[5],
            "shell": row[6],
            "password_ok": _password_matches(host, args),
        }

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        if args.get("state") == "absent":
            return [difference("state", "present", "absent")] if state["exists"] else []
        if not state["exists"]:
            return [difference("state", "absent", "present")]
        found = []
        if args.get("uid") is not None and int(args["uid"]) != state["uid"]:
            found.append(difference("uid", state["uid"], int(args["uid"])))
        if args.get("group") is not None and state["wanted_gid"] != state["gid"]:
            found.append(difference("group", state["group"], args["group"]))
        wanted = _wanted_groups(state["groups"], args)
        if wanted != state["groups"]:
            found.append(difference("groups", state["groups"], wanted))
        for name in ("home", "shell"):
            if args.get(name) is not None and args[name] != state[name]:
                found.append(difference(name, state[name], args[name]))
        if not state["password_ok"]:
            found.append(difference("password_hash", MASK, MASK))
        return found

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`. The password goes over standard input, never in the arguments."""
        name = args["name"]
        if args.get("state") == "absent":
            _run(host, report, ["userdel", name], "userdel refuses while the user's processes run")
            return None
        changed = {entry["path"]: entry["after"] for entry in differences}
        if "state" in changed:
            _run(host, report, ["useradd", *_add_options(host, args), name])
        else:
            options = _change_options(changed)
            if options:
                _run(host, report, ["usermod", *options, name])
        if args.get("password_hash") is not None and ("state" in changed or "password_hash" in changed):
            line = "%s:%s\n" % (name, _hash(host, args))
            result = host.run(["chpasswd", "--encrypted"], stdin=line, on_output=report.output)
            expect(result, "setting the password of " + name, LOCK_REMEDY)
        return None

    def provides(self, args: Json) -> Provides:
        """The user, and the group of that name which useradd makes."""
        if args.get("state") == "absent" or args.get("group") is not None:
            return Provides(users=[args["name"]])
        return Provides(users=[args["name"]], groups=[args["name"]])

    def requires(self, args: Json) -> Provides:
        """The groups it is to be in."""
        if args.get("state") == "absent":
            return Provides()
        groups = [str(group) for group in args.get("groups") or ()]
        if args.get("group") is not None and not str(args["group"]).isdigit():
            groups.append(str(args["group"]))
        return Provides(groups=groups)

    def forecast(self, args: Json, provided: Provides) -> str:
        """Nobody is in a group that is not there yet."""
        return would_change_if(not provided.contains("users", args["name"]))


def _wanted_groups(now: List[str], args: Json) -> List[str]:
    if args.get("groups") is None:
        return now
    asked = {str(group) for group in args["groups"]}
    return sorted(asked.union(now) if args.get("append", True) else asked)


def _add_options(host: Host, args: Json) -> List[str]:
    options = []
    for argument, option in (
        ("uid", "--uid"),
        ("group", "--gid"),
        ("home", "--home-dir"),
        ("shell", "--shell"),
    ):
        if args.get(argument) is not None:
            options += [option, str(args[argument])]
    if args.get("group") is None and host.group_id(args["name"]) is not None:
        options += ["--gid", args["name"]]  # useradd refuses to make a group that is there
    if args.get("groups"):
        options += ["--groups", ",".join(sorted(str(group) for group in args["groups"]))]
    if args.get("system"):
        options.append("--system")
    options.append("--create-home" if args.get("create_home", True) else "--no-create-home")
    return options


def _change_options(changed: Json) -> List[str]:
    options = []
    for path, option in (("uid", "--uid"), ("group", "--gid"), ("home", "--home"), ("shell", "--shell")):
        if path in changed:
            options += [option, str(changed[path])]
    if "groups" in changed:
        options += ["--groups", ",".join(changed["groups"])]
    return options


def _run(host: Host, report: Reporter, argv: List[str], remedy: str = LOCK_REMEDY) -> None:
    expect(host.run(argv, on_output=report.output), " ".join(argv), remedy)


def _hash(host: Host, args: Json) -> str:
    value: str = host.secret(args["password_hash"])
    if not value.startswith(("$", "!", "*")) or ":" in value or "\n" in value:
        raise StepFailed(
            "password_hash of %s is not a password hash" % args["name"],
            "make one with: openssl passwd -6 (never put the password itself there)",
        )
    return value


def _password_matches(host: Host, args: Json) -> bool:
    if args.get("password_hash") is None:
        return True
    row = host.table("/etc/shadow").get(args["name"])
    return row is not None and row[1] == _hash(host, args)


RESOURCE = User()
