"""Whose key a repository's packages are checked with, where it lies, and what is refused while reading."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.catalogue.container_toolkit import toolkit_repository
from fleet.catalogue.docker import upstream_repository
from fleet.catalogue.driver_packages import driver_repository
from fleet.modules import load
from fleet.modules.arguments import converted
from fleet.modules.base import ArgumentProblem, Context
from tests.facts import healthy_gpu_facts

OWN = "0123456789ABCDEF0123456789ABCDEF01234567"
TEXT = "-----BEGIN PGP PUBLIC KEY BLOCK-----\nAAAA\n-----END PGP PUBLIC KEY BLOCK-----\n"
DRIVER = driver_repository()
TOOLKIT = toolkit_repository()
DOCKER = upstream_repository()
PUBLISHED = {
    "nvidia_driver": (
        f"{DRIVER.base_url}/debian12/x86_64/3bf863cc.pub",
        "EB693B3035CD5710E231E123A4B469963BF863CC",
    ),
    "container_toolkit": (
        "https://nvidia.github.io/libnvidia-container/gpgkey",
        "C95B321B61E88C1809C4F759DDCAE044F796ECB0",
    ),
    "docker_engine": (
        "https://download.docker.com/linux/debian/gpg",
        "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
    ),
}
# A copy whose folders are those of the original, and where its key lies.
COPIES = {
    "nvidia_driver": (
        "http://mirror.example.net/nv",
        "http://mirror.example.net/nv/debian12/x86_64/3bf863cc.pub",
    ),
    "container_toolkit": ("http://mirror.example.net/t/stable/deb/", "http://mirror.example.net/t/gpgkey"),
    "docker_engine": ("http://mirror.example.net/docker/", "http://mirror.example.net/docker/gpg"),
}
MODULES = sorted(PUBLISHED)


def key_of(name: str, repository: dict[str, Any], *, os_version: str = "12", **context: Any) -> Any:
    """``key`` of the repository that a bare host is to have."""
    module = load(name)
    given = {"repository": repository, "version": {"nvidia_driver": "580.105.08"}.get(name)}
    given |= {"source": "docker"} if name == "docker_engine" else {}
    assert module.check(given, False) == []
    facts = healthy_gpu_facts(
        {
            "os.id": "debian", "os.version_id": os_version, "os.codename": "bookworm", "packages.installed": {},
            "driver.loaded": None, "driver.modules": {}, "driver.library_version": None, "nvswitches": [],
        }
    )  # fmt: skip
    made = Context(prefix="1", task="t", read_file=lambda _: TEXT.encode(), **context)
    args = converted(given, module.arguments, name)
    if name == "nvidia_driver":
        return module.needs(args, facts, made)[0]["repositories"][0]["key"]
    steps = module.steps(args, facts, {}, made)
    return next(step["args"]["key"] for step in steps if step["resource"] == "apt_repository")


@pytest.mark.parametrize("name", MODULES)
def test_nothing_needs_to_be_said_of_keys(name: str) -> None:
    url, fingerprint = PUBLISHED[name]
    assert key_of(name, {}) == {"url": url, "fingerprint": fingerprint}


def test_debian_13_has_a_key_of_its_own() -> None:
    assert key_of("nvidia_driver", {}, os_version="13") == {
        "url": f"{DRIVER.base_url}/debian13/x86_64/8793F200.pub",
        "fingerprint": "02182E60104FCDC26EAE1B8597A5D4CB8793F200",
    }


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("public_internet", [True, False])
def test_of_a_copy_the_key_lies_where_the_publishers_does(name: str, public_internet: bool) -> None:
    base, url = COPIES[name]
    found = key_of(name, {"base_url": base}, public_internet=public_internet)
    assert found == {"url": url, "fingerprint": PUBLISHED[name][1]}


@pytest.mark.parametrize("name", MODULES)
def test_a_site_that_signs_itself_pins_its_own(name: str) -> None:
    base, url = COPIES[name]
    again = {"base_url": base, "key_fingerprint": OWN.lower()}
    assert key_of(name, again) == {"url": url, "fingerprint": OWN}
    elsewhere = "http://keys.example.net/k.asc"
    assert key_of(name, {**again, "key_url": elsewhere}) == {"url": elsewhere, "fingerprint": OWN}
    assert key_of(name, {**again, "key_file": "k.asc"}) == {"content": TEXT, "fingerprint": OWN}


@pytest.mark.parametrize("name", MODULES)
def test_what_is_trusted_has_no_key_unless_one_is_named(name: str) -> None:
    base, _ = COPIES[name]
    assert key_of(name, {"base_url": base, "trusted": True}) is None
    assert key_of(name, {"base_url": base, "trusted": True, "key": TEXT}) == {
        "content": TEXT,
        "fingerprint": None,
    }
    named = {"url": "https://x/k", "fingerprint": PUBLISHED[name][1]}
    assert key_of(name, {"base_url": base, "trusted": True, "key_url": "https://x/k"}) == named


def test_where_the_toolkits_key_cannot_be_told_it_must_be_named() -> None:
    odd = {"base_url": "http://mirror.example.net/toolkit"}
    with pytest.raises(ArgumentProblem, match="write key_url or key_file in repository"):
        key_of("container_toolkit", odd)
    assert key_of("container_toolkit", {**odd, "key_url": "http://x/k"})["url"] == "http://x/k"


@pytest.mark.parametrize("name", MODULES)
def test_without_internet_a_key_url_alone_is_not_enough(name: str) -> None:
    with pytest.raises(ArgumentProblem, match="public_internet is false here"):
        key_of(name, {"key_url": "http://mirror.example.net/k"}, public_internet=False)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(
    ("repository", "message"),
    [
        ({"key_uri": "x"}, "repository has no key_uri; it takes "),
        ({"key_url": "mirror/key"}, "key_url must be an http or https address, not mirror/key"),
        ({"key_url": "http://x/k", "key_file": "k"}, "give key_file or key_url, not both"),
        ({"key_fingerprint": "3BF863CC"}, "key_fingerprint must be 40 hex digits"),
        ({"key_fingerprint": 12}, "key_fingerprint must be 40 hex digits in quotes"),
    ],
)
def test_slips_are_told_while_the_playbook_is_read(
    name: str, repository: dict[str, Any], message: str
) -> None:
    (problem,) = load(name).check({"repository": repository}, False)
    assert problem.message.startswith(message)
    assert problem.argument == "repository"


def test_a_template_is_left_to_its_value() -> None:
    written = {"key_url": "{{ url }}", "key_fingerprint": "{{ print }}"}
    assert load("docker_engine").check({"source": "docker", "repository": written}, False) == []
    assert load("docker_engine").check({"source": "docker", "repository": "{{ all_of_it }}"}, False) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "apt_repository needs key_url with key_fingerprint, key or key_file (or trusted: true, unsafe)"),
        ({"key_url": "https://x/k"}, "key_url needs key_fingerprint: "),
        ({"key": "x", "key_url": "https://x/k", "key_fingerprint": OWN}, "give key or key_url, not both"),
        ({"key_url": "x", "key_fingerprint": OWN}, "key_url must be an http or https address"),
        ({"key": "x", "key_fingerprint": "12"}, "key_fingerprint must be 40 hex digits"),
    ],
)
def test_a_repository_of_ones_own(given: dict[str, Any], message: str) -> None:
    (problem,) = load("apt_repository").check({"name": "n", "uris": ["x"], "suites": ["./"], **given}, False)
    assert problem.message.startswith(message)
