"""The dpkg status reader, and who holds the package lock."""

from __future__ import annotations

import fcntl
import os
import time
from typing import Any

import pytest

from fleet.agent.facts import packages
from fleet.agent.facts.packages import Dpkg
from fleet.agent.resources.package import remember_holds

STATUS = """\
Package: libc6
Status: install ok installed
Priority: optional
Architecture: amd64
Multi-Arch: same
Version: 2.36-9

Package: libc6
Status: install ok half-installed
Architecture: i386
Version: 2.36-8

Package: nvidia-dkms-580-open
Status: install ok half-configured
Architecture: amd64
Version: 580.95.05-0ubuntu1
Description: mentions
 Package: not-a-package

Package: nvidia-driver-580-open
Status: install ok unpacked
Architecture: amd64
Version: 580.95.05-0ubuntu1

Package: nvidia-fabricmanager-550
Status: hold ok installed
Architecture: amd64
Version: 550.163.01-1

Package: nvidia-driver-535
Status: deinstall ok config-files
Architecture: amd64
Version: 535.183.06-0ubuntu1

Package: nvidia-settings
Status: install reinstreq half-installed
Architecture: amd64
Version: 580.95.05-0ubuntu1

Package: man-db
Status: install ok triggers-pending
Architecture: amd64
Version: 2.11
"""


def test_states_are_told_apart(host: Any) -> None:
    host.write("/var/lib/dpkg/status", STATUS)
    dpkg = Dpkg(host.root)
    assert dpkg.installed("libc6") == "2.36-9"
    assert dpkg.installed("man-db") == "2.11"
    for name in ("nvidia-dkms-580-open", "nvidia-driver-580-open", "nvidia-settings"):
        assert dpkg.installed(name) is None
        assert dpkg.get(name).interrupted  # type: ignore[union-attr]
    assert dpkg.installed("nvidia-driver-535") is None
    assert not dpkg.get("nvidia-driver-535").interrupted  # type: ignore[union-attr]
    assert dpkg.get("nvidia-fabricmanager-550").held  # type: ignore[union-attr]
    assert dpkg.get("not-a-package") is None
    assert dpkg.get("nvidia-dkms") is None
    assert sorted(state.name for state in dpkg.unusual() if state.interrupted) == [
        "libc6",
        "nvidia-dkms-580-open",
        "nvidia-driver-580-open",
        "nvidia-settings",
    ]


def test_an_architecture_can_be_named(host: Any) -> None:
    host.write("/var/lib/dpkg/status", STATUS)
    dpkg = Dpkg(host.root)
    assert dpkg.get("libc6:i386").version == "2.36-8"  # type: ignore[union-attr]
    assert dpkg.get("libc6:arm64") is None
    assert dpkg.get("libc6:any").architecture == "amd64"  # type: ignore[union-attr]


def test_a_changed_file_is_read_again(host: Any) -> None:
    path = host.write("/var/lib/dpkg/status", STATUS)
    dpkg = Dpkg(host.root)
    assert dpkg.installed("libc6") == "2.36-9"
    new = path.with_name("status-new")
    new.write_text(STATUS.replace("2.36-9", "2.36-10"))
    os.replace(new, path)
    assert dpkg.installed("libc6") == "2.36-10"


def test_what_dpkg_left_in_updates_counts(host: Any) -> None:
    host.write("/var/lib/dpkg/status", STATUS)
    newer = "Package: libc6\nStatus: install ok unpacked\nArchitecture: amd64\nVersion: 2.37\n"
    host.write("/var/lib/dpkg/updates/0001", newer)
    host.write("/var/lib/dpkg/updates/tmp.i", "Package: junk\n")
    dpkg = Dpkg(host.root)
    assert dpkg.installed("libc6") is None
    assert "libc6" in {state.name for state in dpkg.unusual()}


def test_a_host_without_dpkg_has_no_packages(tmp_path: Any) -> None:
    dpkg = Dpkg(str(tmp_path))
    assert dpkg.get("libc6") is None
    assert dpkg.unusual() == []


def test_the_holder_of_a_lock_is_named_without_taking_it(host: Any) -> None:
    path = host.write("/var/lib/dpkg/lock-frontend", "")
    assert packages.lock_holder(host) is None
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        descriptor = os.open(path, os.O_RDWR)
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    host.write(f"/proc/{child}/cmdline", "/usr/bin/python3\0/usr/bin/unattended-upgrade\0")
    try:
        assert packages.lock_holder(host) == {
            "pid": child,
            "command": "/usr/bin/python3 /usr/bin/unattended-upgrade",
            "file": "/var/lib/dpkg/lock-frontend",
        }
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)
    assert packages.lock_holder(host) is None
    for descriptor in (*ready, *done):
        os.close(descriptor)


def test_the_age_of_the_lists(host: Any) -> None:
    now = time.time()
    host.write("/var/lib/apt/lists/partial/x", "")
    for name in ("lists", "lists/partial"):
        os.utime(host.path("/var/lib/apt/" + name), (now - 7200, now - 7200))
    assert 7199 <= (packages.lists_age_s(host, now) or 0) <= 7201
    os.unlink(host.path("/var/lib/apt/lists/example.net_debian_dists_bookworm_InRelease"))
    assert packages.lists_age_s(host, now) is None


HELD = "Package: %s\nStatus: hold ok installed\nArchitecture: amd64\nVersion: 1\n\n"


def test_holds_of_fleet_are_told_from_those_of_others(host: Any) -> None:
    host.write("/var/lib/dpkg/status", HELD % "docker.io" + HELD % "libcuda1")
    remember_holds(host, add=["docker.io", "gone"])
    part = packages.collect(host)["packages"]
    assert (part["held"], part["held_by_fleet"]) == (["docker.io", "libcuda1"], ["docker.io"])


def test_holds_that_may_not_be_read_are_not_nobodys(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(host: Any) -> set[str]:
        raise PermissionError

    monkeypatch.setattr("fleet.agent.resources.package.holds_of_fleet", refuse)
    part = packages.collect(host)["packages"]
    assert (part["held_by_fleet"], part["held_by_fleet_reason"]) == (None, "permission")
