"""The whole document: it holds to its schema, and a group that fails costs that group only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fleet.agent import facts
from fleet.agent.facts import memory
from fleet.agent.host import Host
from tests.facts import healthy_facts, healthy_gpu_facts

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas" / "facts.schema.json").read_text())


def check(document: dict[str, Any]) -> None:
    """Against the schema, and through JSON without NaN."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    again = json.loads(json.dumps(document, allow_nan=False))
    jsonschema.Draft202012Validator(SCHEMA).validate(again)


def test_the_facts_of_this_machine_hold_to_the_schema() -> None:
    document = facts.collect(Host())
    check(document)
    assert document["errors"] == []
    assert document["identity"]["boot_id"]
    assert any(disk["mount"] == "/" for disk in document["disks"])


def test_a_bare_folder_gives_nulls_with_reasons(host: Any) -> None:
    document = facts.collect(host)
    check(document)
    failed = {error["group"] for error in document["errors"]}
    assert {"os_release", "memory", "kernel", "disks"} <= failed
    assert document["memory_bytes"] is None
    assert document["memory_bytes_reason"] == "not_supported"
    assert document["packages"]["manager"] is None
    assert document["engine"]["present"] is False
    assert document["engine"]["version_reason"] == "not_supported"


def test_a_known_host_gives_a_known_document(host: Any) -> None:
    host.write("/etc/os-release", 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nNAME="Debian"\n')
    host.write("/proc/meminfo", "MemTotal: 1000 kB\n")
    host.write("/proc/sys/kernel/osrelease", "6.1.0-28-amd64\n")
    host.write("/proc/cmdline", "root=/dev/vda1\n")
    host.write("/boot/vmlinuz-6.1.0-28-amd64", "")
    host.write("/proc/self/mounts", "/dev/vda1 / ext4 rw 0 0\n")
    host.write("/etc/docker/daemon.json", '{"data-root": "/srv/docker"}')
    host.write("/var/lib/dpkg/status", STATUS)
    host.write("/usr/bin/apt-get", "").chmod(0o755)
    host.write("/etc/fleet-lab.json", "{}")
    document = facts.collect(host, ["os_release", "kernel", "memory", "packages", "engine", "disks"])
    check(document)
    assert document["simulated"] is True
    assert document["errors"] == []
    assert document["kernel"]["next_release"] == "6.1.0-28-amd64"
    assert document["paths"]["engine_root"]["path"] == "/srv/docker"
    assert document["packages"]["installed"] == {"docker.io": "26.1.5", "nvidia-settings": "550.1"}
    assert document["packages"]["held"] == ["docker.io"]
    assert document["packages"]["interrupted"] == ["nvidia-kernel-dkms"]
    assert document["identity_reason"] == "not_collected"


STATUS = """\
Package: docker.io
Status: hold ok installed
Architecture: amd64
Version: 26.1.5

Package: nvidia-kernel-dkms
Status: install ok half-configured
Architecture: amd64
Version: 550.1

Package: nvidia-settings
Status: install ok installed
Architecture: amd64
Version: 550.1

Package: nvidia-driver-535
Status: deinstall ok config-files
Architecture: amd64
Version: 535.1
"""


@pytest.mark.parametrize("document", [healthy_facts(), healthy_gpu_facts()])
def test_the_healthy_hosts_of_the_tests_hold_to_the_schema(document: dict[str, Any]) -> None:
    check(document)
    assert set(document) >= {key for keys in facts.KEYS_OF.values() for key in keys}


def test_an_unknown_group_is_refused(host: Any) -> None:
    with pytest.raises(ValueError, match="unknown groups of facts: gpu "):
        facts.collect(host, ["gpu"])


def test_a_bug_is_not_a_missing_fact(host: Any, monkeypatch: Any) -> None:
    def bug(_host: Host) -> dict[str, Any]:
        raise KeyError("bug")

    monkeypatch.setattr(memory, "collect", bug)
    with pytest.raises(KeyError):
        facts.collect(host, ["memory"])


def test_the_schema_refuses_what_it_does_not_know(host: Any) -> None:
    document = facts.collect(host, ["clock"])
    document["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):
        check(document)
