"""Comparing a host before and after: everything a change shows in, nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.lab import faults
from fleet.lab.definition import HostDefinition
from fleet.lab.lab import Lab
from fleet.lab.snapshot import snapshot
from tests.lab import ssh

pytestmark = pytest.mark.lab


def test_a_login_alone_changes_nothing(lab: Lab, lab_host: Callable[..., HostDefinition]) -> None:
    host = lab_host(login="sudo_nopasswd")
    with ssh.login(lab, host) as client:
        ssh.run(client, "sudo true")  # what the very first sudo of a user leaves behind is not at issue
    before = snapshot(lab, host.name)
    with ssh.login(lab, host) as client:
        assert ssh.run(client, "sudo ls -R /etc /usr/lib > /dev/null")[0] == 0
    assert before.differences(snapshot(lab, host.name)) == []


def test_each_kind_of_change_is_seen(lab: Lab, lab_host: Callable[..., HostDefinition]) -> None:
    host = lab_host()
    before = snapshot(lab, host.name)
    faults.shell(
        lab,
        host.name,
        """
        echo changed >> /etc/hostname.example
        chmod 600 /etc/fstab
        touch /usr/local/bin/new
        useradd --system robot
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qy hello >/dev/null
        systemctl mask systemd-timesyncd.service apt-daily.service 2>/dev/null
        """,
    )
    found = before.differences(snapshot(lab, host.name))
    text = "\n".join(found)
    assert "file /etc/hostname.example: absent -> -rw-r--r-- 0:0 8 bytes" in text
    assert "file /etc/fstab: -rw-r--r--" in text
    assert "file /usr/local/bin/new: absent ->" in text
    assert "user robot: absent ->" in text
    assert "group robot: absent ->" in text
    assert "package hello: absent ->" in text
    assert "unit apt-daily.service (file): static -> masked" in text
