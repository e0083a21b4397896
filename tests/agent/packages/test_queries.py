"""Queries: files, and versions from a private apt root that leaves nothing behind."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

from fleet.agent import queries
from fleet.agent.process import Result

MADISON = """\
 docker-ce | 5:26.1.4-1~ubuntu | https://x noble/stable amd64 Packages
 docker-ce | 5:27.0.1-1~ubuntu | https://x noble/stable amd64 Packages
"""
REPOSITORY = {
    "name": "docker",
    "uris": ["https://download.example.net/linux/ubuntu"],
    "suites": ["noble"],
    "components": ["stable"],
    "key": None,
    "options": {"Signed-By": "/usr/share/keyrings/x.gpg"},
}


def one(host: Any, **query: Any) -> dict[str, Any]:
    return queries.answer(host, [{"id": "q", **query}])["q"]


def test_files_are_described(host: Any) -> None:
    host.write("/etc/thing", "abc").chmod(0o640)
    value = one(host, kind="path", path="/etc/thing")["value"]
    assert value["exists"]
    assert (value["kind"], value["mode"], value["size"]) == ("file", "0640", 3)
    assert value["sha256"] == hashlib.sha256(b"abc").hexdigest()
    assert one(host, kind="path", path="/etc/none")["value"]["exists"] is False
    assert one(host, kind="path", path="/etc")["value"]["kind"] == "directory"


def test_content_is_cut_at_the_limit_and_says_so(host: Any) -> None:
    host.write("/etc/thing", b"abc\xffdef")
    value = one(host, kind="file_content", path="/etc/thing", limit=4)["value"]
    assert value == {"exists": True, "content": "abc\udcff", "truncated": True}
    assert one(host, kind="file_content", path="/etc/none", limit=4)["value"]["exists"] is False


def test_versions_of_a_repository_come_from_a_private_root(host: Any) -> None:
    seen: dict[str, str] = {}

    def update(argv: Any) -> Result:
        settings = dict(word.split("=", 1) for word in argv if "=" in word)
        seen.update(settings)
        sources = settings["Dir::Etc::sourceparts"]
        seen["text"] = Path(sources, "docker.sources").read_text()
        return Result(0)

    host.on("apt-get", "update", answer=update)
    host.on("apt-cache", answer=Result(0, MADISON))
    value = one(host, kind="package_versions", names=["docker-ce", "nosuch"], repositories=[REPOSITORY])[
        "value"
    ]
    assert value == {"docker-ce": ["5:27.0.1-1~ubuntu", "5:26.1.4-1~ubuntu"], "nosuch": []}
    for setting in ("Dir::State::Lists", "Dir::Cache", "Dir::Etc::sourceparts"):
        assert seen[setting].startswith(host.runtime_dir + "/apt-")
    assert seen["Dir::Etc::sourcelist"] == "/dev/null"
    assert "URIs: https://download.example.net/linux/ubuntu" in seen["text"]
    assert os.listdir(host.runtime_dir) == []


def test_fresh_lists_of_the_host_are_used_as_they_are(host: Any) -> None:
    host.on("apt-cache", "madison", answer=Result(0, MADISON))
    assert one(host, kind="package_versions", names=["docker-ce"], repositories=[])["ok"]
    assert len(host.ran) == 1


def test_fresh_lists_that_lack_a_name_may_be_of_some_sources_only(host: Any) -> None:
    asked: list[Any] = []

    def madison(argv: Any) -> Result:
        asked.append(argv)
        return Result(0, MADISON if len(asked) > 1 else "")

    host.on("apt-get", "update", answer=Result(0))
    host.on("apt-cache", answer=madison)
    value = one(host, kind="package_versions", names=["docker-ce"], repositories=[])["value"]
    assert value == {"docker-ce": ["5:27.0.1-1~ubuntu", "5:26.1.4-1~ubuntu"]}
    assert "update" in [word for argv in host.ran for word in argv]


def test_old_lists_are_refreshed_privately_with_the_hosts_own_sources(host: Any) -> None:
    for name in ("lists", "lists/partial"):
        os.makedirs(host.path("/var/lib/apt/" + name), exist_ok=True)
        old = time.time() - 90000
        os.utime(host.path("/var/lib/apt/" + name), (old, old))
    os.utime(host.path("/var/lib/apt/lists"), (old, old))
    host.on("apt-get", "update", answer=Result(0))
    host.on("apt-cache", answer=Result(0, MADISON))
    assert one(host, kind="package_versions", names=["docker-ce"], repositories=[])["ok"]
    assert not any("sourceparts" in word for word in host.ran[0])
    assert os.listdir(host.runtime_dir) == []


def test_a_failed_query_says_why_and_spoils_no_other(host: Any) -> None:
    host.write("/etc/thing", "abc")
    said = "Err:1 https://download.example.net/linux/ubuntu noble InRelease\n  404  Not Found\n"
    host.on("apt-get", "update", answer=Result(100, said))
    answers = queries.answer(
        host,
        [
            {"id": "v", "kind": "package_versions", "names": ["x"], "repositories": [REPOSITORY]},
            {"id": "p", "kind": "path", "path": "/etc/thing"},
            {"id": "u", "kind": "command", "argv": ["id"]},
        ],
    )
    assert "not on the server" in answers["v"]["error"]
    assert answers["p"]["ok"]
    assert "unknown kind of query" in answers["u"]["error"]
    assert os.listdir(host.runtime_dir) == []


def test_without_an_engine_a_registry_digest_is_null_with_a_reason(host: Any) -> None:
    value = one(host, kind="registry_digest", reference="registry.example.net/torch:2.7", auth=None)["value"]
    assert value["digest"] is None
    assert value["digest_reason"] == "not_supported"


def test_proxies_that_are_to_come_lead_the_private_root_out(host: Any) -> None:
    seen: list[str] = []

    def update(argv: Any) -> Result:
        seen.append(Path(argv[argv.index("-c") + 1]).read_text())
        return Result(0)

    host.on("apt-get", "update", answer=update)
    host.on("apt-cache", answer=Result(0, MADISON))
    host.secrets["q:proxies.https"] = "http://fleet:pw@proxy.example.net:3128"
    proxies = {"http": None, "https": {"$secret": "q:proxies.https"}, "no_proxy": [".example.net"]}
    query = {"kind": "package_versions", "names": ["docker-ce"], "proxies": proxies}
    assert one(host, **query, repositories=[REPOSITORY])["ok"]
    assert 'Acquire::https::Proxy "http://fleet:pw@proxy.example.net:3128";\n' in seen[0]
    assert 'Acquire::https::Proxy::download.example.net "DIRECT";\n' in seen[0]
    assert not any("pw@" in word for argv in host.ran for word in argv)
    assert os.listdir(host.runtime_dir) == []


def test_a_file_is_compared_where_it_lies(host: Any) -> None:
    host.write("/etc/thing", "token=abc")
    host.secrets["q:content"] = "token=abc"
    assert one(host, kind="file_is", path="/etc/thing", content={"$secret": "q:content"})["value"] == {
        "same": True
    }
    assert one(host, kind="file_is", path="/etc/thing", content="token")["value"] == {"same": False}
    assert one(host, kind="file_is", path="/etc/none", content="")["value"] == {"same": False}
