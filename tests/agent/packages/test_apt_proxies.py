"""Proxies in apt's words: each exempt server that will be asked is named."""

from __future__ import annotations

import pytest

from fleet.agent.package_manager import apt_proxies


def test_servers_are_found_in_lists_of_sources() -> None:
    text = (
        "deb [x=y] http://A.example.net:80/debian bookworm main\nURIs: https://u:p@b.example.net/x http://c\n"
    )
    assert apt_proxies.servers(text + text) == ["a.example.net", "b.example.net", "c"]


def test_exempt_servers_are_named_and_others_are_not() -> None:
    ways = {"http": "http://p:3128", "https": None}
    text = apt_proxies.settings(ways, [".example.net"], ["a.example.net", "world.example"])
    assert text == 'Acquire::http::Proxy "http://p:3128";\nAcquire::http::Proxy::a.example.net "DIRECT";\n'


@pytest.mark.parametrize(
    ("server", "entry", "exempt"),
    [
        ("a.lab", "a.lab", True),
        ("b.a.lab", "a.lab", True),
        ("ba.lab", "a.lab", False),
        ("a.lab", ".lab", True),
        ("a.lab", "*.lab", True),
        ("lab", ".lab", False),
        ("anything", "*", True),
    ],
)
def test_what_an_entry_of_no_proxy_means(server: str, entry: str, exempt: bool) -> None:
    assert apt_proxies.is_exempt(server, ["other", entry]) is exempt
