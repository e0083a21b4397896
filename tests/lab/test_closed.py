"""Hosts without the internet: apt by the lab's mirror, the world refused and counted, a proxy where one is wanted."""

from __future__ import annotations

import pytest

from fleet.lab import closed, faults
from fleet.lab.lab import Lab
from fleet.lab.simulation import server
from tests.conftest import LabFactory

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_LAB = """\
all:
  vars: {lab_subnet: 172.28.63.0/25, lab_inner_subnet: 172.28.63.128/25, lab_release: bookworm}
  hosts:
    shut: {ansible_host: 172.28.63.11, lab_public_internet: false}
    open: {ansible_host: 172.28.63.12}
"""
_CONNECT = "import socket; socket.create_connection(('192.0.2.1', 443), 3)"


@pytest.fixture(scope="module")
def closed_lab(own_lab: LabFactory) -> Lab:
    """A host without the internet, and one with it."""
    return own_lab("closed", _LAB)


def test_packages_come_by_the_mirror_and_nothing_else_is_tried(closed_lab: Lab) -> None:
    before = closed.attempts(closed_lab, "shut")
    faults.shell(closed_lab, "shut", "apt-get update -q && apt-get install -qy hello")
    assert faults.shell(closed_lab, "shut", "hello").startswith("Hello")
    assert closed.attempts(closed_lab, "shut") == before
    address = closed_lab.member("shut").address
    assert any(line.startswith(f"mirror {address} ") for line in server.requests(closed_lab.place))


def test_the_world_is_refused_at_once_and_counted_after_a_reboot_too(closed_lab: Lab) -> None:
    for _ in range(2):
        before = closed.attempts(closed_lab, "shut")
        done = faults.execute(closed_lab, "shut", "python3", "-c", _CONNECT, check=False)
        assert "Network is unreachable" in done.stderr
        assert closed.attempts(closed_lab, "shut") == before + 1
        faults.reboot(closed_lab, "shut")


def test_a_host_behind_a_proxy_fetches_through_it(closed_lab: Lab) -> None:
    """The mirror itself stands for the world: it is asked through the proxy, not directly."""
    ask = "import urllib.request as u; print(u.urlopen('http://deb.debian.invalid/debian/dists').status)"
    proxied = ("env", "http_proxy=http://packages.lab:3128", "python3", "-c", ask)
    refused = faults.execute(closed_lab, "shut", *proxied, check=False)
    assert "HTTP Error 404" in refused.stderr
    address = closed_lab.member("shut").address
    wanted = f"proxy {address} http://deb.debian.invalid/debian/dists"
    assert wanted in server.requests(closed_lab.place)
