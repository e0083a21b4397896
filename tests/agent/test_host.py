"""The host edge: root prefix, secrets, users, batched unit queries, what is absent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fleet.agent.host import Host
from fleet.agent.process import Result
from fleet.agent.resources.base import Provides, StepFailed
from tests.agent.resources.fakes import FakeHost, Systemd


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def test_paths_lie_under_the_root(tmp_path: Path) -> None:
    assert Host("/").path("/etc/x") == "/etc/x"
    assert Host(str(tmp_path)).path("/etc/x") == f"{tmp_path}/etc/x"


def test_secrets_never_become_arguments() -> None:
    host = Host(secrets={"s": "hunter2"})
    with pytest.raises(StepFailed, match="would show in the process list"):
        host.run(["echo", {"$secret": "s"}])  # type: ignore[list-item]
    assert host.run(["cat"], stdin={"$secret": "s"}).stdout == "hunter2"


def test_what_cannot_start_is_a_failure_with_a_remedy() -> None:
    with pytest.raises(StepFailed, match="the command no-such-tool was not found"):
        Host().run(["no-such-tool"])
    with pytest.raises(StepFailed, match="the working directory /no/where does not exist"):
        Host().run(["true"], cwd="/no/where")
    with pytest.raises(StepFailed, match="cannot run /etc/passwd: Permission denied"):
        Host().run(["/etc/passwd"])


def test_no_command_outlives_its_step() -> None:
    host = Host()
    host.step_ends = time.monotonic()
    assert host.run(["sleep", "60"], deadline_s=50.0).timed_out


def test_finished_commands_leave_no_output_files(tmp_path: Path) -> None:
    host = Host(output_dir=str(tmp_path / "output"))
    assert host.run(["echo", "hi"]).stdout == "hi\n"
    with pytest.raises(StepFailed):
        host.run(["no-such-tool"])
    assert os.listdir(tmp_path / "output") == []


def test_without_an_output_folder_nothing_is_written(tmp_path: Path) -> None:
    Host(str(tmp_path)).run(["echo", "hi"])
    assert os.listdir(tmp_path) == []


def test_users_and_groups_come_from_the_files(host: FakeHost) -> None:
    host.write(
        "/etc/passwd", "# note\nroot:x:0:0::/root:/bin/bash\nann:x:1001:1001::/home/ann:/bin/zsh\n+::::::\n"
    )
    host.write("/etc/group", "root:x:0:\nann:x:1001:\nvideo:x:44:bob,ann\n")
    assert (host.user_id("ann"), host.user_id("1234"), host.user_id("nobody")) == (1001, 1234, None)
    assert (host.group_id("video"), host.group_name(44), host.user_name(77)) == (44, "video", "77")
    account = host.account("ann")
    assert (account.uid, account.groups, account.home, account.shell) == (
        1001,
        [44, 1001],
        "/home/ann",
        "/bin/zsh",
    )
    with pytest.raises(StepFailed, match="there is no user bob"):
        host.account("bob")


def test_units_are_asked_for_in_one_call_and_remembered(host: FakeHost) -> None:
    Systemd(host, docker_service={}, ssh_service={"ActiveState": "failed"})
    host.expect(Provides(units=["docker.service", "ssh.service", "none.service"]))
    assert host.units(["docker.service"])["docker.service"]["ActiveState"] == "active"
    assert host.units(["ssh.service"])["ssh.service"]["ActiveState"] == "failed"
    assert host.units(["none.service"])["none.service"]["LoadState"] == "not-found"
    assert len(host.commands) == 1


def test_any_command_makes_units_be_asked_for_again(host: FakeHost) -> None:
    Systemd(host, docker_service={})
    host.units(["docker.service"])
    host.run(["true"])
    host.units(["docker.service"])
    assert [argv[0] for argv, _ in host.commands] == ["systemctl", "true", "systemctl"]


def test_one_bad_name_does_not_spoil_the_others(host: FakeHost) -> None:
    systemd = Systemd(host, docker_service={})

    def answer(argv: list[str], stdin: str | None) -> Result:
        return Result(1, "", "Invalid unit name\n") if "bad name" in argv else systemd(argv, stdin)

    host.answer = answer
    host.expect(Provides(units=["bad name"]))
    with pytest.raises(StepFailed, match="cannot tell the state of bad name: Invalid unit name"):
        host.units(["docker.service"])


def test_without_systemd_units_are_refused_by_name(host: FakeHost) -> None:
    with pytest.raises(StepFailed, match="systemd does not run on this host"):
        host.units(["docker.service"])


def test_what_is_absent(host: FakeHost) -> None:
    Systemd(host, docker_service={})
    host.write("/etc/passwd", "root:x:0:0::/root:/bin/bash\n")
    host.write("/usr/bin/tool", "", 0o755)
    wanted = Provides(
        engine=True,
        files=["/etc/passwd", "/none"],
        directories=["/etc", "/opt"],
        users=["root", "ann"],
        groups=["wheel"],
        commands=["tool", "gone"],
        units=["docker.service", "none.service"],
    )
    assert list(host.absent(wanted)) == [
        ("commands", "gone"),
        ("directories", "/opt"),
        ("engine", "docker"),
        ("files", "/none"),
        ("groups", "wheel"),
        ("units", "none.service"),
        ("users", "ann"),
    ]


def test_programs_of_a_driver_mounted_into_a_container_are_found_last(host: FakeHost) -> None:
    host.write("/usr/local/nvidia/bin/nvidia-smi", "", 0o755)
    assert host.which("nvidia-smi") == "/usr/local/nvidia/bin/nvidia-smi"
    host.write("/usr/bin/nvidia-smi", "", 0o755)
    assert host.which("nvidia-smi") == "/usr/bin/nvidia-smi"
