"""Faults that are done to hosts: each shows as it would in the wild, and is gone afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.lab import faults
from fleet.lab.definition import HostDefinition
from fleet.lab.lab import Lab
from tests.lab import ssh

pytestmark = pytest.mark.lab
HostFactory = Callable[..., HostDefinition]


def test_an_interrupted_dpkg_stops_apt_until_it_is_told_to_go_on(lab: Lab, lab_host: HostFactory) -> None:
    host = lab_host().name
    package = faults.interrupt_dpkg(lab, host)
    assert package in faults.shell(lab, host, "dpkg --audit")
    refused = faults.execute(lab, host, "apt-get", "install", "-qy", "sl", check=False)
    assert "dpkg was interrupted" in refused.stderr
    faults.execute(lab, host, "dpkg", "--configure", "-a")
    assert faults.shell(lab, host, "dpkg --audit") == ""


def test_a_small_disk_is_empty_and_goes_again(lab: Lab, lab_host: HostFactory) -> None:
    host = lab_host(foreign_containers=("other",)).name
    with faults.small_disk(lab, host, "/var/lib/docker", megabytes=20):
        assert faults.shell(lab, host, "docker ps -aq") == ""
        size = int(faults.shell(lab, host, "df -m --output=size /var/lib/docker").split()[-1])
        assert size == 20
    assert faults.shell(lab, host, "docker ps --format '{{.Names}}'") == "other\n"


def test_garbage_comes_where_it_is_said(lab: Lab, lab_host: HostFactory) -> None:
    host = lab_host()
    with faults.garbage_on_channel(lab, host.name, after=4), ssh.login(lab, host) as client:
        _, stdout, _ = client.exec_command("echo 12345678; exit 3", timeout=30)
        said = stdout.read()
        assert said.startswith(b"1234\x00\x01")
        assert said.endswith(b"\xff\n5678\n")
        assert stdout.channel.recv_exit_status() == 3
    with ssh.login(lab, host) as client:
        assert ssh.run(client, "echo 12345678") == (0, "12345678\n")


def test_a_slow_link_is_shaped_and_is_fast_again(lab: Lab, lab_host: HostFactory) -> None:
    host = lab_host().name
    with faults.slow_link(lab, host, kilobytes_per_second=50):
        assert "rate 400Kbit" in faults.shell(lab, host, "tc qdisc show dev eth0")
    assert "tbf" not in faults.shell(lab, host, "tc qdisc show dev eth0")
