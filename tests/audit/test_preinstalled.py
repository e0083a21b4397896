"""A host whose driver, engine and toolkit are taken as they are: nothing is refused for what fleet does not touch."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.audit.findings import Finding
from fleet.audit.rules import evaluate
from fleet.audit.settled import settled
from tests.facts import healthy_facts, rented_facts

PREINSTALLED = {"source": "preinstalled"}
WANTED = {**PREINSTALLED, "driver": PREINSTALLED, "container_toolkit": {**PREINSTALLED, "mode": "auto"}}
NO_ROOM = {"path": "/boot", "mount": "/boot", "free_bytes": 1_000_000, "free_inodes": 10}
JOB = {
    "pid": 40335, "command": "python", "uid": 1000, "user": "anna", "container_id": None, "unit": None,
    "devices": ["/dev/nvidia0"], "kind": "work",
}  # fmt: skip


def findings(changes: dict[str, Any] | None = None, **wanted: Any) -> list[Finding]:
    return evaluate("preflight", rented_facts(changes), {**WANTED, **wanted})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"paths.boot": NO_ROOM},
        {"paths.boot": {"path": "/boot", "mount": None, "free_bytes": None}},
        {"paths.boot": None},
        {"kernel.next_release": "6.8.0-60-custom"},
        {"driver.kernels": []},
        {"driver.holders": [JOB]},
        {"driver.holders": None, "driver.holders_reason": "permission"},
        {"secure_boot": {"enforcing": True, "signing_key": None, "enrolment_pending": False}},
        {"secure_boot": {"enforcing": None, "enforcing_reason": "permission"}},
        {"packages.installed": {"docker-ce": "5:27.5.1-1~ubuntu.24.04~noble"}},
        {"packages.held": ["nvidia-driver-580"]},
    ],
)
def test_nothing_blocks_it(changes: dict[str, Any]) -> None:
    assert [finding.id for finding in findings(changes) if finding.blocks] == []


def test_it_is_silent_on_such_a_host_as_it_is() -> None:
    assert findings() == []


def test_a_driver_whose_library_is_another_still_stops_it() -> None:
    found = findings({"driver.library_version": "570.172.08"})
    assert [finding.id for finding in found if finding.blocks] == ["preflight.driver_versions"]


@pytest.mark.parametrize("source", ["distribution", "docker"])
def test_the_same_host_has_work_to_do_where_packages_are_wanted(source: str) -> None:
    assert settled(rented_facts(), WANTED)
    assert not settled(rented_facts(), {**WANTED, "source": source})
    assert not settled(rented_facts(), {**WANTED, "container_toolkit": {"source": "nvidia", "mode": "auto"}})


def test_an_engine_that_does_not_answer_is_not_there() -> None:
    assert not settled(healthy_facts({"engine.responding": False}), PREINSTALLED)
