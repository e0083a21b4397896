"""Facts of many hosts, asked again and again: as root where that works, over connections that stay open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import BecomeFailed, ConnectionLost, InputError
from fleet.core.secret import Scrubber
from fleet.inventory import Host, LoadOptions, load_inventory
from fleet.run.asking import Asking
from fleet.run.live import LiveFacts, facts_of, read_once


class Site:
    """Stands for the transport: says of every connection whether it was to be root, and counts them."""

    def __init__(self) -> None:
        self.sudo = True
        self.lost = 0
        self.error: Exception | None = None
        self.asked_for_root: list[bool] = []
        self.closed = 0

    def __call__(self, scrubber: Scrubber, *, accept_new: bool) -> Site:
        return self

    def connect(self, settings: ConnectionSettings) -> Agent:
        root = settings.become.enabled
        self.asked_for_root.append(root)
        if self.error is not None:
            raise self.error
        if root and not self.sudo:
            raise BecomeFailed("sudo needs a password", remedy="-K asks for it")
        return Agent(self, 0 if root else 1000)

    def close(self) -> None:
        self.closed += 1


class Agent:
    def __init__(self, site: Site, uid: int) -> None:
        self.hello = {"uid": uid}
        self._site = site

    def request(self, method: str, params: dict[str, Any], *, deadline_s: float) -> dict[str, Any]:
        if self._site.lost:
            self._site.lost -= 1
            raise ConnectionLost("the connection broke")
        return {"groups": params["groups"]}

    def close(self) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    stands = Site()
    monkeypatch.setattr("fleet.run.live.Connector", stands)
    return stands


@pytest.fixture
def hosts(tmp_path: Path) -> list[Host]:
    file = tmp_path / "site.yaml"
    file.write_text("all: {hosts: {gpu01: {ansible_host: 192.0.2.1, ansible_become: true}}}\n")
    return list(load_inventory(str(file), options=LoadOptions()).select(None))


def test_one_connection_serves_every_look(site: Site, hosts: list[Host]) -> None:
    with LiveFacts(hosts, ["gpus"], Scrubber(), Asking()) as live:
        first, second = live.read()["gpu01"], live.read()["gpu01"]
    assert first == second
    assert (first.facts, first.as_root, first.note) == ({"groups": ["gpus"]}, True, None)
    assert site.asked_for_root == [True]
    assert site.closed == 1


def test_where_becoming_root_fails_the_login_user_is_asked_and_sudo_left_alone(
    site: Site, hosts: list[Host]
) -> None:
    site.sudo = False
    with LiveFacts(hosts, ["gpus"], Scrubber(), Asking()) as live:
        first = live.read()["gpu01"]
        site.lost = 1  # the next look has to connect anew
        second = live.read()["gpu01"]
    assert first == second
    assert (first.as_root, first.note) == (False, "asked without root: sudo needs a password")
    assert site.asked_for_root == [True, False, False]


def test_without_become_nobody_tries_to_be_root(site: Site, hosts: list[Host]) -> None:
    reading = read_once(hosts, ["gpus"], Scrubber(), Asking(become=False))["gpu01"]
    assert (reading.as_root, reading.note) == (False, None)
    assert site.asked_for_root == [False]


def test_a_connection_that_breaks_twice_is_the_hosts_error(site: Site, hosts: list[Host]) -> None:
    with LiveFacts(hosts, ["gpus"], Scrubber(), Asking()) as live:
        live.read()
        site.lost = 2
        assert isinstance(live.read()["gpu01"].error, ConnectionLost)
        assert live.read()["gpu01"].error is None


def test_whatever_keeps_fleet_from_asking_a_host_costs_only_that_host(site: Site, hosts: list[Host]) -> None:
    site.error = InputError("its key file cannot be read")
    assert isinstance(facts_of(hosts, ["gpus"], Scrubber(), Asking())["gpu01"], InputError)
