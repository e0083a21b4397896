"""Users and groups: the files are read, the shadow tools are called, passwords go by standard input."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.process import Result
from fleet.agent.protocol import KNOWN_AFTER_APPLY, WOULD_CHANGE
from fleet.agent.resources.base import MASK, Provides, Silent, StepFailed
from fleet.agent.resources.group import RESOURCE as GROUP
from fleet.agent.resources.user import RESOURCE as USER
from tests.agent.resources.fakes import FakeHost, converge, differences

HASH = "$6$salt$abcdefghijklmnop"


@pytest.fixture
def accounts(host: FakeHost) -> FakeHost:
    host.write("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nann:x:1001:1001::/home/ann:/bin/sh\n")
    host.write("/etc/group", "root:x:0:\nann:x:1001:\nvideo:x:44:ann\nrender:x:105:\n")
    host.write("/etc/shadow", f"root:*:1::::::\nann:{HASH}:1::::::\n")
    host.secrets["hash"] = HASH
    host.secrets["other"] = "$6$salt$other"
    return host


@pytest.mark.parametrize(
    ("args", "commands"),
    [
        ({"name": "ann", "groups": ["video"], "shell": "/bin/sh", "uid": 1001, "group": "ann"}, []),
        ({"name": "ann", "groups": ["render"]}, ["usermod --groups render,video ann"]),
        ({"name": "ann", "groups": ["render"], "append": False}, ["usermod --groups render ann"]),
        ({"name": "ann", "groups": [], "append": False}, ["usermod --groups  ann"]),
        ({"name": "ann", "groups": []}, []),
        ({"name": "ann", "uid": "1002", "shell": "/bin/zsh", "home": "/srv/ann", "group": "video"},
         ["usermod --uid 1002 --gid video --home /srv/ann --shell /bin/zsh ann"]),
        ({"name": "ann", "state": "absent"}, ["userdel ann"]),
        ({"name": "bob", "state": "absent"}, []),
        ({"name": "bob"}, ["useradd --create-home bob"]),
        ({"name": "render", "system": True, "create_home": False},
         ["useradd --gid render --system --no-create-home render"]),
        ({"name": "bob", "uid": 1500, "groups": ["video", "render"], "shell": "/bin/sh", "home": "/srv/b"},
         ["useradd --uid 1500 --home-dir /srv/b --shell /bin/sh --groups render,video --create-home bob"]),
    ],
)  # fmt: skip
def test_user_commands(accounts: FakeHost, args: dict[str, Any], commands: list[str]) -> None:
    found = differences(accounts, USER, args)
    assert bool(found) == bool(commands)
    if found:
        USER.apply(accounts, args, found, Silent())
    assert accounts.argvs() == commands


@pytest.mark.parametrize(
    ("args", "commands"),
    [
        ({"name": "video", "gid": 44}, []),
        ({"name": "video", "gid": "45"}, ["groupmod --gid 45 video"]),
        ({"name": "gpu"}, ["groupadd gpu"]),
        ({"name": "gpu", "gid": 300, "system": True}, ["groupadd --gid 300 --system gpu"]),
        ({"name": "video", "state": "absent"}, ["groupdel video"]),
        ({"name": "gpu", "state": "absent"}, []),
    ],
)
def test_group_commands(accounts: FakeHost, args: dict[str, Any], commands: list[str]) -> None:
    found = differences(accounts, GROUP, args)
    assert bool(found) == bool(commands)
    if found:
        GROUP.apply(accounts, args, found, Silent())
    assert accounts.argvs() == commands


def test_a_password_never_shows_and_never_is_an_argument(accounts: FakeHost) -> None:
    def chpasswd(argv: list[str], stdin: str | None) -> Result:
        assert stdin is not None
        accounts.write("/etc/shadow", f"ann:{stdin.strip().split(':')[1]}:1::::::\n")
        return Result(0)

    accounts.answer = chpasswd
    assert differences(accounts, USER, {"name": "ann", "password_hash": {"$secret": "hash"}}) == []
    found = converge(accounts, USER, {"name": "ann", "password_hash": {"$secret": "other"}})
    assert found == [{"path": "password_hash", "before": MASK, "after": MASK}]
    assert accounts.commands == [(["chpasswd", "--encrypted"], "ann:$6$salt$other\n")]


def test_a_new_user_gets_its_password(accounts: FakeHost) -> None:
    def tools(argv: list[str], stdin: str | None) -> Result:
        if argv[0] == "useradd":
            accounts.write(
                "/etc/passwd", accounts.text("/etc/passwd") + "bob:x:1002:1002::/home/bob:/bin/sh\n"
            )
        else:
            accounts.write("/etc/shadow", f"{(stdin or '').strip()}:1::::::\n")
        return Result(0)

    accounts.answer = tools
    converge(accounts, USER, {"name": "bob", "password_hash": {"$secret": "hash"}})


def test_a_password_in_the_place_of_its_hash_is_refused(accounts: FakeHost) -> None:
    with pytest.raises(StepFailed, match="is not a password hash") as caught:
        differences(accounts, USER, {"name": "ann", "password_hash": "hunter2"})
    assert "hunter2" not in str(caught.value) + str(caught.value.remedy)


def test_a_failing_tool_is_told_in_its_own_words(accounts: FakeHost) -> None:
    accounts.answer = lambda argv, stdin: Result(8, "", "userdel: user ann is currently used by process 7\n")
    with pytest.raises(StepFailed, match=r"userdel ann failed: exit code 8: .*currently used by process 7"):
        converge(accounts, USER, {"name": "ann", "state": "absent"})


def test_what_a_check_can_say() -> None:
    args = {"name": "bob", "groups": ["docker"]}
    assert list(USER.requires(args)) == [("groups", "docker")]
    assert USER.forecast(args, Provides(groups=["docker"])) == WOULD_CHANGE
    assert USER.forecast(args, Provides(groups=["docker"], users=["bob"])) == KNOWN_AFTER_APPLY
    assert list(USER.provides(args)) == [("groups", "bob"), ("users", "bob")]
