"""Source lists, keys and the apt_repository resource."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.package_manager import apt_sources, openpgp
from fleet.agent.process import Result
from fleet.agent.resources import load
from fleet.agent.resources.base import StepFailed

# The sample version 4 key of RFC 9580, appendix A.1.
KEY = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----
Comment: a sample

xjMEU/NfCxYJKwYBBAHaRw8BAQdAPwmJlL3ZFu1AUxl5NOSofIBzOhKA1i+AEJku
Q+47JAY=
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "C959BDBAFA32A2F89A153B678CFDE12197965A9A"
LISTS = "/var/lib/apt/lists/"


def repository(**changes: Any) -> dict[str, Any]:
    args: dict[str, Any] = {
        "name": "example",
        "uris": ["https://repo.example.net/ubuntu2404/x86_64/"],
        "suites": ["/"],
        "components": [],
        "architectures": ["amd64"],
        "key": {"content": KEY, "fingerprint": FINGERPRINT},
        "trusted": False,
        "state": "present",
        "options": {},
    }
    return {**args, **changes}


def differences(host: Any, args: dict[str, Any]) -> list[dict[str, Any]]:
    resource = load("apt_repository")
    return resource.diff(resource.read(host, args), args)


def apply(host: Any, report: Any, args: dict[str, Any]) -> None:
    resource = load("apt_repository")
    resource.apply(host, args, resource.diff(resource.read(host, args), args), report)


@pytest.fixture
def answering(host: Any) -> Any:
    """A host whose ``apt-get update`` fetches the example's release file."""

    def update(argv: Any) -> Result:
        host.write(LISTS + "repo.example.net_ubuntu2404_x86%5f64_InRelease", "")
        return Result(0)

    host.on("apt-get", "update", answer=update)
    return host


def test_apts_own_user_can_read_what_is_written(answering: Any, report: Any) -> None:
    """The agent's umask is 077; on an older system /etc/apt/keyrings is not there yet."""
    before = os.umask(0o077)
    try:
        apply(answering, report, repository())
    finally:
        os.umask(before)
    for path in ("/etc/apt/keyrings", "/etc/apt/sources.list.d"):
        assert os.stat(answering.path(path)).st_mode & 0o777 == 0o755
    assert os.stat(answering.path("/etc/apt/keyrings/example.asc")).st_mode & 0o777 == 0o644


def test_a_repository_is_written_fetched_and_then_as_wanted(answering: Any, report: Any) -> None:
    args = repository()
    assert [item["path"] for item in differences(answering, args)] == [
        "/etc/apt/keyrings/example.asc",
        "/etc/apt/sources.list.d/example.sources",
        "package lists of example",
    ]
    apply(answering, report, args)
    source = Path(answering.path("/etc/apt/sources.list.d/example.sources"))
    assert source.read_text() == (
        "# Written by fleet; changes are overwritten.\n"
        "Types: deb\n"
        "URIs: https://repo.example.net/ubuntu2404/x86_64/\n"
        "Suites: /\n"
        "Architectures: amd64\n"
        "Signed-By: /etc/apt/keyrings/example.asc\n"
    )
    assert source.stat().st_mode & 0o777 == 0o644
    assert Path(answering.path("/etc/apt/keyrings/example.asc")).read_text() == KEY
    assert answering.ran[-1][-6:] == [
        "-o",
        "Dir::Etc::sourcelist=" + str(source),
        "-o",
        "Dir::Etc::sourceparts=-",
        "-o",
        "APT::Get::List-Cleanup=0",
    ]
    assert differences(answering, args) == []


def test_lists_that_are_gone_and_modes_are_differences(answering: Any, report: Any) -> None:
    args = repository()
    apply(answering, report, args)
    os.unlink(answering.path(LISTS + "repo.example.net_ubuntu2404_x86%5f64_InRelease"))
    os.chmod(answering.path("/etc/apt/sources.list.d/example.sources"), 0o600)
    assert differences(answering, args) == [
        {"path": "/etc/apt/sources.list.d/example.sources mode", "before": "0600", "after": "0644"},
        {"path": "package lists of example", "before": None, "after": "fetched"},
    ]
    apply(answering, report, args)
    assert differences(answering, args) == []


def test_a_binary_key_is_stored_as_gpg_and_replaces_the_other_form(answering: Any, report: Any) -> None:
    apply(answering, report, repository())
    binary = base64.b64encode(openpgp.dearmor(KEY)).decode()
    args = repository(key={"content": binary, "fingerprint": FINGERPRINT})
    apply(answering, report, args)
    assert sorted(os.listdir(answering.path("/etc/apt/keyrings"))) == ["example.gpg"]
    assert differences(answering, args) == []


def test_another_key_than_the_pinned_one_is_refused_naming_both(host: Any) -> None:
    wrong = "0" * 40
    with pytest.raises(StepFailed, match=f"fingerprint {FINGERPRINT}, but {wrong} is pinned"):
        differences(host, repository(key={"content": KEY, "fingerprint": wrong}))
    assert not os.path.exists(host.path("/etc/apt/keyrings"))


def test_a_key_beside_the_pinned_one_is_refused(host: Any) -> None:
    data = openpgp.dearmor(KEY)
    second = data[:-1] + bytes([data[-1] ^ 1])
    both = base64.b64encode(data + second).decode()
    with pytest.raises(StepFailed, match="is pinned"):
        differences(host, repository(key={"content": both, "fingerprint": FINGERPRINT}))


def test_a_page_instead_of_a_key_is_refused(host: Any) -> None:
    with pytest.raises(StepFailed, match="cannot be used"):
        differences(host, repository(key={"content": "<html>404</html>", "fingerprint": None}))


@pytest.mark.parametrize("typed", [FINGERPRINT.lower(), " ".join(FINGERPRINT), "0x" + FINGERPRINT])
def test_fingerprints_are_compared_however_they_are_typed(answering: Any, typed: str) -> None:
    assert len(differences(answering, repository(key={"content": KEY, "fingerprint": typed}))) == 3


def test_the_same_repository_in_another_file_is_refused_or_replaced(answering: Any, report: Any) -> None:
    answering.write(
        "/etc/apt/sources.list.d/cuda.list",
        "# old\ndeb [signed-by=/usr/share/keyrings/c.gpg] https://repo.example.net/ubuntu2404/x86_64 /\n",
    )
    with pytest.raises(StepFailed, match=r"/etc/apt/sources\.list\.d/cuda\.list:2 already configures"):
        differences(answering, repository())
    args = repository(replaces=["/etc/apt/sources.list.d/cuda.list"])
    assert {"path": "/etc/apt/sources.list.d/cuda.list", "before": "present", "after": None} in differences(
        answering, args
    )
    apply(answering, report, args)
    assert not os.path.exists(answering.path("/etc/apt/sources.list.d/cuda.list"))
    assert differences(answering, args) == []


def test_other_components_of_the_same_suite_with_the_same_key_are_no_clash(host: Any) -> None:
    host.write("/etc/apt/sources.list", "deb http://deb.example.net/debian bookworm main\n")
    args = repository(
        uris=["http://deb.example.net/debian"], suites=["bookworm"], components=["non-free"], key=None
    )
    assert differences(host, args)
    with pytest.raises(StepFailed, match="already configures"):
        differences(host, {**args, "components": ["main"]})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("404  Not Found [IP: 192.0.2.1]", "not on the server"),
        ("Clearsigned file isn't valid, got 'NOSPLIT' (…)", "a page that is no repository"),
    ],
)
def test_a_source_that_cannot_be_fetched_is_taken_back(host: Any, report: Any, said: str, words: str) -> None:
    text = f"Err:2 https://repo.example.net/ubuntu2404/x86_64  InRelease\n  {said}\n"
    host.on("apt-get", "update", answer=Result(100, text))
    with pytest.raises(StepFailed, match=words):
        apply(host, report, repository())
    assert os.listdir(host.path("/etc/apt/sources.list.d")) == []


def test_absent_removes_everything_of_that_name(answering: Any, report: Any) -> None:
    apply(answering, report, repository())
    gone = repository(state="absent")
    assert len(differences(answering, gone)) == 2
    apply(answering, report, gone)
    assert differences(answering, gone) == []
    assert os.listdir(answering.path("/etc/apt/sources.list.d")) == []


def test_an_address_with_a_secret_is_not_shown(answering: Any) -> None:
    answering.secrets["s1"] = "https://user:hunter2@repo.example.net/x/"
    shown = differences(answering, repository(uris=[{"$secret": "s1"}]))
    assert "hunter2" not in str(shown)


@pytest.mark.parametrize(
    ("uri", "suite", "prefix"),
    [
        ("http://mirror.example.net/debian", "bookworm", "mirror.example.net_debian_dists_bookworm_"),
        ("http://u:p@h:8080/a_b/", "x/y", "h:8080_a%5fb_dists_x_y_"),
        ("https://h/repos/x86_64", "/", "h_repos_x86%5f64_"),
        ("https://h/repos", "sub/", "h_repos_sub_"),
        ("file:/srv/repo", "./", "_srv_repo_._"),
    ],
)
def test_names_of_apts_list_files(uri: str, suite: str, prefix: str) -> None:
    assert apt_sources.list_prefix(uri, suite) == prefix


def test_problems_that_make_apt_unusable() -> None:
    files = {
        "/etc/apt/sources.list": "deb http://deb.example.net/debian bookworm main # ok\n",
        "/etc/apt/sources.list.d/a.list": "deb [arch=amd64 signed-by=/k/a.gpg] https://r.example.net/x /\n",
        "/etc/apt/sources.list.d/b.sources": (
            "Types: deb\nURIs: https://r.example.net/x/\nSuites: /\nSigned-By:\n -----BEGIN\n .\n abc\n\n"
            "Types: deb\nURIs: https://off.example.net\nSuites: y\nEnabled: no\n"
        ),
        "/etc/apt/sources.list.d/c.list": "# Unsupported distribution!\n# Check https://example.net\n",
        "/etc/apt/sources.list.d/d.list": "<!DOCTYPE html><html></html>\n",
        "/etc/apt/sources.list.d/e.sources": "Types: deb\nSuites: x\n",
        "/etc/apt/sources.list.d/f.list": "debx http://x y z\n",
    }
    found = apt_sources.problems(files)
    assert len(found) == 5
    assert found[0].startswith(
        "conflicting Signed-By for https://r.example.net/x/ /: /etc/apt/sources.list.d/a.list"
    )
    assert "c.list:1: holds a server's error page" in found[1]
    assert "d.list:1: holds a server's error page" in found[2]
    assert "e.sources:1: a stanza without Uris" in found[3]
    assert "f.list:1: not a source" in found[4]


def test_fingerprint_of_the_sample_key() -> None:
    assert openpgp.fingerprints(openpgp.dearmor(KEY)) == [FINGERPRINT]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xc6\x33\x04", b"\xc6\x01\x05", b"\xc6\xff\0\0"])
def test_damaged_keys_are_refused(data: bytes) -> None:
    with pytest.raises(openpgp.BadKey):
        openpgp.fingerprints(data)


def test_a_trusted_repository_without_a_release_file_settles(host: Any, report: Any) -> None:
    def update(argv: Any) -> Result:
        host.write(LISTS + "_srv_repo_._Packages", "")
        return Result(0)

    host.on("apt-get", "update", answer=update)
    args = repository(uris=["file:/srv/repo"], suites=["./"], key=None, trusted=True)
    apply(host, report, args)
    assert differences(host, args) == []
