"""What a check says of steps behind a package step that brings what they are about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.agent.check import CheckPass
from fleet.agent.paths import Paths
from fleet.agent.pending import Pending
from fleet.agent.protocol import KNOWN_AFTER_APPLY, OK, WOULD_CHANGE
from fleet.agent.resources import load
from tests.agent.resources.fakes import Systemd
from tests.agent.resources.test_check_pass import CheckHost, steps

CONF = "/etc/docker/daemon.json"
UNIT = "docker.service"
PACKAGE = ("package", {"names": [{"name": "docker.io"}], "starts": [UNIT]})
UNDECLARED = ("package", {"names": [{"name": "docker.io"}]})
SERVICE = ("service", {"name": "docker", "state": "started", "enabled": True, "reflects": [CONF]})
FOLDER = ("directory", {"path": "/etc/docker", "mode": "0755"})
SETTINGS = ("json_file", {"path": CONF, "merge": {"debug": True}})


@pytest.fixture
def host(tmp_path: Path) -> CheckHost:
    """A bare Debian: apt, systemd, no engine."""
    host = CheckHost(tmp_path)
    Systemd(host)
    host.write("/var/lib/dpkg/status", "")
    host.write("/usr/bin/apt-get", "", 0o755)
    return host


def check(host: CheckHost, *wanted: tuple[str, dict[str, Any]]) -> list[tuple[str, str | None]]:
    """(status, reason) of each step."""
    plan: Any = {"format": 1, "run": "r", "host": "h", "segment": 1, "last": True, "steps": steps(*wanted)}
    pending = Pending(Paths(host.state_dir, host.runtime_dir))
    found = CheckPass(plan, host, load=load, pending=pending, outcomes={}).run()
    return [(result["status"], result["reason"]) for result in found]


def test_a_service_that_its_package_starts_is_ok(host: CheckHost) -> None:
    assert check(host, PACKAGE, SERVICE) == [(WOULD_CHANGE, None), (OK, None)]


def test_what_is_written_before_the_package_comes_is_read_when_it_starts(host: CheckHost) -> None:
    said = check(host, FOLDER, SETTINGS, PACKAGE, SERVICE)
    assert [status for status, _ in said] == [WOULD_CHANGE, WOULD_CHANGE, WOULD_CHANGE, OK]


def test_the_engines_folder_may_come_with_its_package(host: CheckHost) -> None:
    said = check(host, PACKAGE, FOLDER, SETTINGS)
    assert [status for status, _ in said] == [WOULD_CHANGE, KNOWN_AFTER_APPLY, WOULD_CHANGE]


def test_what_is_written_after_it_means_a_restart(host: CheckHost) -> None:
    assert check(host, PACKAGE, FOLDER, SETTINGS, SERVICE)[-1] == (
        WOULD_CHANGE,
        f"its package starts it, and a later step would change file {CONF}",
    )


def test_what_is_perhaps_written_after_it_means_perhaps_a_restart(host: CheckHost) -> None:
    perhaps = ("line", {"path": CONF, "line": "x", "create": False})
    assert check(host, PACKAGE, FOLDER, perhaps, SERVICE)[-1] == (
        KNOWN_AFTER_APPLY,
        f"its package starts it, and a later step may change file {CONF}",
    )


def test_a_package_that_declares_nothing_may_start_it_or_not(host: CheckHost) -> None:
    assert check(host, UNDECLARED, SERVICE)[-1] == (
        KNOWN_AFTER_APPLY,
        f"needs unit {UNIT}, which an earlier step would bring",
    )


@pytest.mark.parametrize(
    ("path", "doubt"),
    [
        ("/usr/sbin/policy-rc.d", "/usr/sbin/policy-rc.d may keep its package from starting it"),
        (
            "/etc/systemd/system-preset/00-site.preset",
            "a preset in /etc/systemd/system-preset may keep its package from enabling it",
        ),
        (
            f"/var/lib/systemd/deb-systemd-helper-enabled/{UNIT}.dsh-also",
            "it was installed before, and may have been disabled then",
        ),
    ],
)
def test_a_host_may_keep_packages_from_starting_things(host: CheckHost, path: str, doubt: str) -> None:
    host.write(path, "")
    assert check(host, PACKAGE, SERVICE)[-1] == (
        KNOWN_AFTER_APPLY,
        f"needs unit {UNIT}, which an earlier step would bring; {doubt}",
    )


def test_so_may_a_policy_that_an_earlier_step_writes(host: CheckHost) -> None:
    policy = ("file", {"path": "/usr/sbin/policy-rc.d", "content": "exit 101\n"})
    assert check(host, policy, PACKAGE, SERVICE)[-1][0] == KNOWN_AFTER_APPLY


def test_enterprise_linux_starts_nothing(host: CheckHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.agent.package_manager.dnf.read", _no_packages)
    (host.folder / "var/lib/dpkg/status").unlink()
    (host.folder / "usr/bin/apt-get").rename(host.folder / "usr/bin/dnf")
    enabled = ("service", {"name": "docker", "enabled": True})
    assert [status for status, _ in check(host, PACKAGE, SERVICE)] == [WOULD_CHANGE, WOULD_CHANGE]
    assert check(host, PACKAGE, enabled)[-1][0] == KNOWN_AFTER_APPLY  # a preset may enable it


def _no_packages(host: Any, names: list[str]) -> dict[str, Any]:
    return {name: {"version": None, "state": "absent", "held": False} for name in names}


def test_a_service_that_its_package_starts_is_to_be_stopped(host: CheckHost) -> None:
    stopped = ("service", {"name": "docker", "state": "stopped"})
    assert [status for status, _ in check(host, PACKAGE, stopped)] == [WOULD_CHANGE, WOULD_CHANGE]
    said = check(host, PACKAGE, stopped, SERVICE)
    assert said[-1] == (KNOWN_AFTER_APPLY, f"an earlier step would change unit {UNIT} too")


def test_an_upgrade_may_do_what_differs_now(host: CheckHost) -> None:
    host.write("/var/lib/dpkg/status", STANZA)
    host.answer.units[UNIT] = Systemd._unit(ActiveState="inactive")  # type: ignore[attr-defined]
    newer = ("package", {"names": [{"name": "docker.io", "version": "2"}], "starts": [UNIT]})
    said = check(host, newer, SERVICE)
    assert [status for status, _ in said] == [WOULD_CHANGE, KNOWN_AFTER_APPLY]
    assert [status for status, _ in check(host, SERVICE)] == [WOULD_CHANGE]


STANZA = "Package: docker.io\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n"


def test_a_file_in_a_folder_to_come_would_change_and_says_no_more(host: CheckHost) -> None:
    assert check(host, FOLDER, ("file", {"path": CONF, "content": "{}"})) == [
        (WOULD_CHANGE, None),
        (WOULD_CHANGE, None),
    ]


def test_a_login_with_an_authority_to_come_has_nothing_to_change(host: CheckHost) -> None:
    place = "/etc/docker/certs.d/registry.example:5000"
    login = {"registry": "registry.example:5000", "username": "u", "password": "p", "ca": f"{place}/ca.crt"}
    folder = ("directory", {"path": place})
    authority = ("file", {"path": login["ca"], "content": "x"})
    said = check(host, folder, authority, ("registry_login", login))
    assert [status for status, _ in said] == [WOULD_CHANGE, WOULD_CHANGE, OK]
    said = check(host, PACKAGE, folder, authority, ("registry_login", {**login, "persist": True}))
    assert said[-1][0] == KNOWN_AFTER_APPLY
    assert f"needs engine docker, file {login['ca']}" in str(said[-1][1])


def test_folders_to_come_are_folders(host: CheckHost) -> None:
    folder = ("directory", {"path": "/srv/app"})
    line = ("line", {"path": "/srv/app/conf", "line": "x", "create": False})
    assert check(host, folder, line)[-1] == (
        KNOWN_AFTER_APPLY,
        "needs folder /srv/app, which an earlier step would bring",
    )
