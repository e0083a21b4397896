"""Whose a process on a GPU is: the engine names its container, where it answers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.agent.gpu_probe import processes
from tests.agent.engine.fake import FakeEngine
from tests.agent.facts.conftest import FolderHost

CONTAINER = "ab" * 32


@pytest.fixture
def host() -> Iterator[FolderHost]:
    with tempfile.TemporaryDirectory(prefix="fe") as root:  # short: a socket's name has at most 107 bytes
        os.makedirs(root + "/var/run")
        host = FolderHost(root, state_dir=root + "/state", runtime_dir=root + "/runtime")
        for pid, group in (
            (7, f"/system.slice/docker-{CONTAINER}.scope"),
            (8, "/system.slice/train.service"),
        ):
            host.write(f"/proc/{pid}/comm", "python3\n")
            host.write(f"/proc/{pid}/cmdline", "python3\0train.py\0")
            host.write(f"/proc/{pid}/cgroup", f"0::{group}\n")
        yield host


def joined(host: FolderHost) -> list[dict[str, Any]]:
    found = [
        {"pid": 7, "kind": "compute", "memory_used_mib": 1},
        {"pid": 8, "kind": "graphics", "memory_used_mib": 2},
    ]
    processes.join(host, [{"processes": found}, {"processes": None}])
    return found


def test_the_engine_names_the_container(host: FolderHost) -> None:
    engine = FakeEngine(host.path("/var/run/docker.sock"))
    engine.containers["trainer"] = {"Id": CONTAINER, "Name": "/trainer", "State": {"Status": "running"}}
    engine.containers[CONTAINER] = engine.containers["trainer"]
    try:
        one, other = joined(host)
    finally:
        engine.stop()
    assert (one["container_id"], one["container_name"], one["unit"]) == (CONTAINER, "trainer", None)
    assert (other["container_id"], other["container_name"], other["unit"]) == (None, None, "train.service")


def test_without_an_engine_the_id_is_all(host: FolderHost) -> None:
    one, _ = joined(host)
    assert (one["container_id"], one["container_name"]) == (CONTAINER, None)


def test_a_socket_that_nobody_answers_on_costs_a_name_and_no_more(host: FolderHost) -> None:
    Path(host.path("/var/run/docker.sock")).write_text("not a socket")
    assert joined(host)[0]["container_name"] is None
