"""Commands and reboots: guards, exit codes, secrets, what may be repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.agent.host import Host
from fleet.agent.protocol import KNOWN_AFTER_APPLY, OK
from fleet.agent.resources.base import Provides, RebootRequested, Silent, StepFailed
from fleet.agent.resources.command import RESOURCE as COMMAND
from fleet.agent.resources.reboot import RESOURCE as REBOOT
from tests.agent.resources.fakes import FakeHost, differences


class Heard(Silent):
    """Remembers the output."""

    def __init__(self) -> None:
        self.text = ""

    def output(self, text: str, stream: str = "stdout") -> None:
        self.text += f"{stream}:{text}"


def run(args: dict[str, Any], host: Host | None = None, report: Any = None) -> dict[str, Any]:
    host = host or Host(secrets={"token": "hunter2hunter2"})
    found = differences(host, COMMAND, args)
    assert found
    extras = COMMAND.apply(host, args, found, report or Silent())
    assert extras is not None
    return extras


def test_result_and_live_output() -> None:
    heard = Heard()
    extras = run({"shell": "echo out; echo $X; pwd", "env": {"X": "y"}, "cwd": "/usr"}, report=heard)
    assert extras["registered"] == {"rc": 0, "stdout": "out\ny\n/usr\n", "stderr": ""}
    assert heard.text == "stdout:out\ny\n/usr\n"
    assert extras["changed"]


def test_secrets_go_by_standard_input_only() -> None:
    assert run({"argv": ["wc", "-c"], "stdin": {"$secret": "token"}})["stdout"].strip() == "14"
    for args in (
        {"argv": ["echo", {"$secret": "token"}]},
        {"shell": {"$secret": "token"}},
        {"shell": "true", "unless": {"$secret": "token"}},
        {"shell": "true", "env": {"T": {"$secret": "token"}}},
    ):
        with pytest.raises(StepFailed, match="a secret in a command's") as caught:
            run(args)
        assert "stdin" in str(caught.value.remedy)


def test_other_exit_codes_can_mean_success() -> None:
    assert run({"shell": "exit 2", "exit_codes": [0, 2]})["exit_code"] == 2
    with pytest.raises(StepFailed, match=r"exit 3 failed: exit code 3: a / b") as caught:
        run({"shell": "echo a; echo b; exit 3"})
    assert caught.value.exit_code == 3
    assert caught.value.stdout == "a\nb\n"


def test_the_diff_says_what_would_run(host: FakeHost) -> None:
    found = differences(host, COMMAND, {"argv": ["touch", "/a b"]})
    assert found == [{"path": "run", "before": None, "after": "touch '/a b'"}]
    assert host.commands == []


@pytest.mark.parametrize(
    ("guards", "needed"),
    [
        ({"creates": "/there"}, False),
        ({"creates": "/th*"}, False),
        ({"creates": "/missing"}, True),
        ({"removes": "/there"}, True),
        ({"removes": "/missing"}, False),
        ({"unless": "true"}, False),
        ({"unless": "false"}, True),
        ({"only_if": "true"}, True),
        ({"only_if": "false"}, False),
        ({"creates": "/missing", "only_if": "false"}, False),
    ],
)
def test_guards(tmp_path: Path, guards: dict[str, str], needed: bool) -> None:
    (tmp_path / "there").touch()
    args = {"shell": "false", **guards}
    assert bool(differences(Host(str(tmp_path)), COMMAND, args)) == needed
    assert COMMAND.may_repeat(args)


def test_what_may_be_repeated() -> None:
    assert not COMMAND.may_repeat({"shell": "x"})
    assert COMMAND.may_repeat({"shell": "x", "repeatable": True})
    assert not COMMAND.rereads({"shell": "x", "creates": "/y"})


def test_a_command_that_only_looks_changes_nothing() -> None:
    args = {"shell": "true", "changed_when": "never"}
    assert run(args)["changed"] is False
    assert COMMAND.outlook(args, [], Provides()) == OK


def test_a_guard_may_see_another_world_later() -> None:
    earlier = Provides(packages=["tool"], files=["/made"])
    assert COMMAND.outlook({"shell": "x", "unless": "tool ok"}, [], earlier) == KNOWN_AFTER_APPLY
    assert COMMAND.outlook({"shell": "x", "creates": "/made"}, [], earlier) == KNOWN_AFTER_APPLY
    assert COMMAND.outlook({"shell": "x"}, [], earlier) is None


def test_no_command_is_an_error() -> None:
    with pytest.raises(StepFailed, match="there is no command to run"):
        run({"argv": []})


def test_reboot_is_asked_of_the_worker(host: FakeHost) -> None:
    found = differences(host, REBOOT, {})
    with pytest.raises(RebootRequested) as caught:
        REBOOT.apply(host, {"deadline_s": 300}, found, Silent())
    assert caught.value.deadline_s == 300.0
    assert not REBOOT.rereads({})


def test_reboot_only_if_required(host: FakeHost) -> None:
    args = {"only_if_required": True}
    assert differences(host, REBOOT, args) == []
    assert REBOOT.outlook(args, [], Provides(packages=["linux-image-amd64"])) == KNOWN_AFTER_APPLY
    host.write("/run/reboot-required", "")
    host.write("/run/reboot-required.pkgs", "linux-image-6.1\nlibc6\nlibc6\n")
    assert differences(host, REBOOT, args)[0]["after"] == "a new one for libc6, linux-image-6.1"
