"""Services: state, enabling, and restarts that cannot be lost or repeated for ever."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fleet.agent.process import Result
from fleet.agent.protocol import KNOWN_AFTER_APPLY, WOULD_CHANGE
from fleet.agent.resources.base import Provides, Silent, StepFailed
from fleet.agent.resources.service import RESOURCE, unit_name
from tests.agent.resources.fakes import FakeHost, Systemd, converge, differences

CONF = "/etc/docker/daemon.json"


def unit(host: FakeHost, **fields: str) -> Systemd:
    return Systemd(host, docker_service=fields)


@pytest.mark.parametrize(
    ("fields", "args", "commands"),
    [
        ({}, {"state": "started", "enabled": True}, []),
        ({"ActiveState": "reloading"}, {"state": "started"}, []),
        ({"ActiveState": "inactive"}, {"state": "started"}, ["systemctl start -- docker.service"]),
        ({"ActiveState": "failed"}, {"state": "started"},
         ["systemctl reset-failed docker.service", "systemctl start -- docker.service"]),
        ({"ActiveState": "failed"}, {"state": "stopped"}, []),
        ({}, {"state": "stopped", "enabled": False},
         ["systemctl disable docker.service", "systemctl stop docker.service"]),
        ({"UnitFileState": "disabled"}, {"enabled": True}, ["systemctl enable docker.service"]),
        ({"UnitFileState": "static"}, {"enabled": True}, []),
        ({"UnitFileState": "static"}, {"enabled": False}, []),
        ({"UnitFileState": "masked"}, {"enabled": False}, []),
        ({"NeedDaemonReload": "yes", "ActiveState": "inactive"}, {"state": "started"},
         ["systemctl daemon-reload", "systemctl start -- docker.service"]),
        ({}, {"state": None, "enabled": None}, []),
    ],
)  # fmt: skip
def test_commands(host: FakeHost, fields: dict[str, str], args: dict[str, Any], commands: list[str]) -> None:
    unit(host, **fields)
    converge(host, RESOURCE, {"name": "docker", **args})
    assert host.argvs() == commands


def test_names_without_a_suffix_are_services() -> None:
    assert [unit_name(name) for name in ("docker", "docker.socket", "foo.bar", "a@b")] == [
        "docker.service", "docker.socket", "foo.bar.service", "a@b.service",
    ]  # fmt: skip


def test_a_service_older_than_its_configuration_is_restarted_once(host: FakeHost) -> None:
    unit(host)
    host.write(CONF, "{}")
    args = {"name": "docker", "state": "started", "reflects": [CONF]}
    found = converge(host, RESOURCE, args)
    assert found == [{"path": "restart", "before": f"started before {CONF} changed", "after": "restarted"}]
    assert host.argvs() == ["systemctl restart -- docker.service"]
    assert differences(host, RESOURCE, args) == []
    host.write(CONF, '{"debug": true}')
    assert differences(host, RESOURCE, args) != []


def test_a_service_started_after_its_configuration_is_left_alone(host: FakeHost) -> None:
    systemd = unit(host)
    host.write(CONF, "{}")
    systemd(["systemctl", "restart", "docker.service"], None)
    assert differences(host, RESOURCE, {"name": "docker", "reflects": [CONF]}) == []


def test_a_clock_set_back_does_not_make_it_restart_for_ever(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit(host)
    real = host.write(CONF, "{}")
    ahead = real.stat().st_mtime + 86400
    os.utime(real, (ahead, ahead))
    converge(host, RESOURCE, {"name": "docker", "reflects": [CONF]})


def test_a_file_put_in_place_with_an_old_date_is_noticed(host: FakeHost) -> None:
    systemd = unit(host)
    systemd(["systemctl", "restart", "docker.service"], None)
    real = host.write(CONF, "{}")
    os.utime(real, (1, 1))
    assert differences(host, RESOURCE, {"name": "docker", "reflects": [CONF]}) != []


def test_a_file_that_fleet_removed_and_a_file_in_a_folder_count(host: FakeHost) -> None:
    from fleet.agent.resources.file import RESOURCE as FILE

    systemd = unit(host)
    host.write(CONF, "{}")
    host.write("/etc/drop/a.conf", "x")
    args = {"name": "docker", "reflects": [CONF, "/etc/drop", "/never/there"]}
    converge(host, RESOURCE, args)
    converge(host, FILE, {"path": CONF, "state": "absent"})
    assert CONF in differences(host, RESOURCE, args)[0]["before"]
    converge(host, RESOURCE, args)
    host.write("/etc/drop/a.conf", "y")
    assert "/etc/drop" in differences(host, RESOURCE, args)[0]["before"]
    assert systemd.units["docker.service"]["ActiveState"] == "active"


class Refusing(Systemd):
    """A unit that does not start while its configuration holds a certain word."""

    def __call__(self, argv: list[str], stdin: str | None) -> Result:
        starts = argv[:2] in (["systemctl", "restart"], ["systemctl", "start"])
        real = self.host.folder / CONF.lstrip("/")
        if starts and real.exists() and "refused" in real.read_text():
            self.units["docker.service"].update(ActiveState="failed", Result="exit-code")
            return Result(1, "", "Job for docker.service failed")
        return super().__call__(argv, stdin)


def test_a_restart_that_fails_is_undone_with_the_former_configuration(host: FakeHost) -> None:
    from fleet.agent.resources.json_file import RESOURCE as JSON_FILE

    systemd = Refusing(host, docker_service={})
    host.write(CONF, '{"kept": 1}')
    converge(host, JSON_FILE, {"path": CONF, "merge": {"key": "refused"}, "backup": True})
    args = {"name": "docker", "state": "started", "reflects": [CONF], "put_back": [CONF]}
    with pytest.raises(StepFailed, match="is again as it was before, and with that the unit runs"):
        converge(host, RESOURCE, args)
    assert host.text(CONF) == '{"kept": 1}'
    assert "refused" in host.text(CONF + ".fleet-refused")
    assert systemd.units["docker.service"]["ActiveState"] == "active"
    assert differences(host, RESOURCE, args) == []


def test_a_configuration_that_was_not_there_before_goes_again(host: FakeHost) -> None:
    from fleet.agent.resources.json_file import RESOURCE as JSON_FILE

    systemd = Refusing(host, docker_service={})
    (host.folder / "etc/docker").mkdir(parents=True)
    converge(host, JSON_FILE, {"path": CONF, "merge": {"key": "refused"}, "backup": True})
    args = {"name": "docker", "state": "started", "reflects": [CONF], "put_back": [CONF]}
    with pytest.raises(StepFailed, match="with that the unit runs"):
        converge(host, RESOURCE, args)
    assert not (host.folder / CONF.lstrip("/")).exists()
    assert "refused" in host.text(CONF + ".fleet-refused")
    assert systemd.units["docker.service"]["ActiveState"] == "active"


def test_of_several_changes_the_unit_gets_back_what_it_ran_with(host: FakeHost) -> None:
    from fleet.agent.resources.json_file import RESOURCE as JSON_FILE

    Refusing(host, docker_service={})
    host.write(CONF, '{"kept": 1}')
    for key in ("first", "second"):  # the run was cut off between the first and its restart
        converge(host, JSON_FILE, {"path": CONF, "merge": {key: "refused"}, "backup": True})
    args = {"name": "docker", "state": "started", "reflects": [CONF], "put_back": [CONF]}
    with pytest.raises(StepFailed, match="as it was before"):
        converge(host, RESOURCE, args)
    assert host.text(CONF) == '{"kept": 1}'


def test_an_old_backup_is_not_what_the_service_ran_with(host: FakeHost) -> None:
    systemd = Refusing(host, docker_service={})
    host.write(CONF + ".fleet-20200101T000000Z.bak", "{}")
    os.utime(host.folder / (CONF + ".fleet-20200101T000000Z.bak").lstrip("/"), (1, 1))
    host.write(CONF, '{"key": "refused"}')
    systemd.units["docker.service"]["ActiveState"] = "active"
    with pytest.raises(StepFailed) as caught:
        converge(host, RESOURCE, {"name": "docker", "reflects": [CONF], "put_back": [CONF]})
    assert "as it was before" not in caught.value.what
    assert "refused" in host.text(CONF)


def test_an_interrupted_restart_is_still_due(host: FakeHost) -> None:
    systemd = unit(host)
    host.write(CONF, "{}")
    args = {"name": "docker", "reflects": [CONF]}

    class Died(Exception):
        pass

    def die(argv: list[str], stdin: str | None) -> Result:
        if argv[1] == "restart":
            raise Died
        return systemd(argv, stdin)

    host.answer = die
    with pytest.raises(Died):
        converge(host, RESOURCE, args)
    host.answer = systemd
    assert [entry["path"] for entry in converge(host, RESOURCE, args)] == ["restart"]


def test_a_reload_is_remembered_though_the_service_is_older(host: FakeHost) -> None:
    unit(host, CanReload="yes")
    host.write(CONF, "{}")
    args = {"name": "docker", "reflects": [CONF], "reload": True}
    converge(host, RESOURCE, args)
    assert host.argvs() == ["systemctl reload -- docker.service"]
    host.write(CONF, "{ }")
    assert [entry["path"] for entry in differences(host, RESOURCE, args)] == ["reload"]


def test_a_unit_that_cannot_reload_is_restarted(host: FakeHost) -> None:
    unit(host, CanReload="no")
    host.write(CONF, "{}")
    found = converge(host, RESOURCE, {"name": "docker", "reflects": [CONF], "reload": True})
    assert found[0]["path"] == "restart"


def test_a_stopped_service_is_not_stale(host: FakeHost) -> None:
    unit(host, ActiveState="inactive")
    host.write(CONF, "{}")
    assert differences(host, RESOURCE, {"name": "docker", "reflects": [CONF]}) == []


def test_a_handler_restarts_whatever_the_state(host: FakeHost) -> None:
    unit(host)
    args = {"name": "docker", "restart": True}
    RESOURCE.apply(host, args, differences(host, RESOURCE, args), Silent())
    assert host.argvs() == ["systemctl restart -- docker.service"]
    assert not RESOURCE.rereads(args)
    assert RESOURCE.rereads({"name": "docker"})


@pytest.mark.parametrize(
    ("fields", "verb"),
    [
        ({"CanReload": "yes"}, "reload"),
        ({}, "restart"),
        ({"CanReload": "yes", "ActiveState": "inactive"}, "restart"),
    ],
)
def test_a_handler_reloads_where_the_unit_runs_and_can(host: FakeHost, fields: Any, verb: str) -> None:
    unit(host, **fields)
    args = {"name": "docker", "restart": True, "reload": True}
    RESOURCE.apply(host, args, differences(host, RESOURCE, args), Silent())
    assert host.argvs() == [f"systemctl {verb} -- docker.service"]


def test_a_broken_start_shows_the_services_own_last_words(host: FakeHost) -> None:
    systemd = unit(host, ActiveState="inactive", Result="exit-code")

    def answer(argv: list[str], stdin: str | None) -> Result:
        if argv[0] == "journalctl":
            return Result(0, "unable to configure the daemon\ninvalid character\n")
        if argv[1] == "start":
            systemd.units["docker.service"]["ActiveState"] = "failed"
            return Result(1, "", "Job for docker.service failed.\n")
        return systemd(argv, stdin)

    host.answer = answer
    with pytest.raises(
        StepFailed, match=r"failed \(exit-code\): unable to configure the daemon / invalid char"
    ):
        converge(host, RESOURCE, {"name": "docker", "state": "started"})
    assert "journalctl -u docker.service -n 5 --no-pager -o cat" in host.argvs()


def test_a_fabric_manager_of_another_version_names_both(host: FakeHost) -> None:
    name = "nvidia-fabricmanager"
    systemd = Systemd(host, **{f"{name}_service": {"ActiveState": "failed", "Result": "exit-code"}})
    said = (
        "Starting NVIDIA fabric manager service...\n"
        "fabric manager NVIDIA GPU driver interface version 570.124.06 don't match with driver version"
        " 570.86.15. Please update with matching NVIDIA driver package.\n"
        f"{name}.service: Control process exited, code=exited, status=1/FAILURE\n"
    )

    def answer(argv: list[str], stdin: str | None) -> Result:
        if argv[0] == "journalctl":
            return Result(0, said)
        return Result(1) if argv[1] == "start" else systemd(argv, stdin)

    host.answer = answer
    with pytest.raises(StepFailed) as caught:
        converge(host, RESOURCE, {"name": name, "state": "started"})
    assert caught.value.what.startswith("fabricmanager_mismatch: ")
    assert "version 570.124.06 and the loaded driver of 570.86.15" in caught.value.what


def test_a_masked_unit_needs_the_operator(host: FakeHost) -> None:
    systemd = unit(host, LoadState="masked", UnitFileState="masked", ActiveState="inactive")
    host.answer = lambda argv, stdin: (
        Result(1, "", "Unit is masked.\n") if argv[1] in ("start", "enable") else systemd(argv, stdin)
    )
    for args in ({"state": "started"}, {"enabled": True}):
        with pytest.raises(StepFailed) as caught:
            converge(host, RESOURCE, {"name": "docker", **args})
        assert "systemctl unmask docker.service" in str(caught.value.remedy)


def test_a_unit_that_runs_once_cannot_be_kept_started(host: FakeHost) -> None:
    systemd = unit(host, ActiveState="inactive")
    host.answer = lambda argv, stdin: Result(0) if argv[1] == "start" else systemd(argv, stdin)
    with pytest.raises(StepFailed, match="ran and ended at once"):
        converge(host, RESOURCE, {"name": "docker", "state": "started"})


def test_a_missing_unit(host: FakeHost) -> None:
    unit(host)
    assert differences(host, RESOURCE, {"name": "none", "state": "stopped", "enabled": False}) == []
    args = {"name": "none", "state": "started"}
    with pytest.raises(StepFailed, match=r"there is no unit none\.service"):
        converge(host, RESOURCE, args)


def test_what_a_check_can_say() -> None:
    args = {"name": "app", "state": "started", "reflects": [CONF]}
    unit_comes = Provides(units=["app.service"])
    package_comes = Provides(units=["app.service"], packages=["app"])
    assert RESOURCE.forecast(args, unit_comes) == WOULD_CHANGE
    assert RESOURCE.forecast(args, package_comes) == KNOWN_AFTER_APPLY  # its scripts may start it
    missing = [{"path": "state", "before": "absent", "after": "started"}]
    assert RESOURCE.outlook(args, missing, Provides(packages=["app"])) == KNOWN_AFTER_APPLY
    assert RESOURCE.outlook(args, missing, Provides(users=["app"])) is None
