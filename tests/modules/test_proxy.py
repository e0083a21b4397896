"""What the proxy module refuses, and what apt is told of servers that need no proxy."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from fleet.core.secret import Secret
from fleet.modules import load, proxy
from fleet.modules.base import Context
from tests.facts import healthy_facts

PASSWORD = "s3cret-pw"


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("http", "proxy.example.net:3128"),
        ("http", "socks5://proxy.example.net:1080"),
        ("https", f'http://fleet:{PASSWORD}"@proxy.example.net:3128'),
        ("https", Secret(f"http://fleet:{PASSWORD} @proxy.example.net", "proxy")),
        ("http", f"http://fleet:{PASSWORD}%zz@proxy.example.net"),
        ("http", f"http://fleet:{PASSWORD}#@proxy.example.net"),
        ("no_proxy", ["*.a.*"]),
        ("no_proxy", ["a;reboot"]),
        ("no_proxy", [Secret("a.example.net", "name")]),
    ],
)
def test_what_apt_and_docker_would_not_both_read_is_refused_unquoted(argument: str, value: Any) -> None:
    (problem,) = load("proxy").check({argument: value}, False)
    assert problem.argument == argument
    assert PASSWORD not in problem.message


@pytest.mark.parametrize(
    "value",
    [
        "http://proxy.example.net:3128",
        "https://proxy.example.net/",
        f"http://fleet:{PASSWORD}%40@10.0.0.1:80",
        "http://[fd00::1]:3128",
        "{{ site_proxy }}",
        "",
    ],
)
def test_addresses_of_proxies_pass(value: str) -> None:
    assert load("proxy").check({"http": value, "no_proxy": ["10.0.0.0/8", ".lab", "*", "*.b"]}, False) == []


def test_a_password_is_a_secret_wherever_it_goes() -> None:
    args = {"http": f"http://fleet:{PASSWORD}@proxy.example.net:3128", "https": None, "no_proxy": ["a"]}
    context = Context(prefix="1.proxy", task="t")
    for step in proxy.steps(args, healthy_facts({"engine.present": False}), {}, context):
        assert PASSWORD not in repr(step)
        if isinstance(step["args"].get("content"), Secret):
            assert step["args"]["mode"] == "0600"
    assert isinstance((proxy.proxies(args) or {})["http"], Secret)


def test_an_empty_address_is_none() -> None:
    assert proxy.proxies({"http": Secret("", "proxy"), "https": "", "no_proxy": []}) is None


@pytest.mark.parametrize(
    ("address", "direct"),
    [
        ("http://mirror.example.net/debian/dists/x", True),
        ("http://mirror.example.net:8080/debian", True),
        ("http://below.mirror.example.net", True),
        ("http://user@a.corp/x", True),
        ("http://corp/x", False),
        ("http://othermirror.example.net/", False),
        ("https://world.example/mirror.example.net", False),
    ],
)
def test_apt_asks_a_program_that_knows_domains(address: str, direct: bool) -> None:
    args = {"http": "http://p:1", "https": None, "no_proxy": ["mirror.example.net", ".corp", "10.0.0.0/8"]}
    made = proxy.steps(args, healthy_facts(), {}, Context(prefix="1.proxy", task="t"))
    (program,) = [step["args"]["content"] for step in made if step["id"] == "1.proxy.apt_exempt"]
    said = subprocess.run(["sh", "-s", address], input=program, capture_output=True, text=True, check=True)
    assert said.stdout == ("DIRECT\n" if direct else "")
