"""``fleet health`` on real hosts with simulated GPUs: a fault is found, named and explained, and nothing is touched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.lab.definition import HostDefinition
from fleet.lab.lab import Lab
from fleet.lab.simulation.faults import switched, xid
from fleet.lab.simulation.hardware import hardware
from fleet.lab.snapshot import snapshot
from tests.conftest import HostFactory
from tests.e2e import gpu
from tests.e2e.harness import Fleet

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def host(module_host: HostFactory) -> HostDefinition:
    """A host with two T4 and a driver. Nothing is changed on it, so tests share it."""
    return module_host(hardware=hardware("t4", 2, seed="health"), driver="580.159.03")


def asked(fleet: Fleet, lab: Lab, host: HostDefinition, folder: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and the host's part of the document, without what a host is like that nobody provisioned."""
    site = gpu.gpu_inventory(folder, lab, [host], gpu_count=2)
    finished = fleet("health", str(site), "--json")
    document = json.loads(finished.out)
    assert finished.code == document["exit_code"]
    found: dict[str, Any] = document["hosts"][host.name]
    return finished.code, found


def test_a_healthy_host_gives_no_finding_and_is_not_touched(
    fleet: Fleet, lab: Lab, host: HostDefinition, tmp_path: Path
) -> None:
    before = snapshot(lab, host.name)
    code, found = asked(fleet, lab, host, tmp_path)
    assert (code, found["status"], found["findings"]) == (0, "healthy", [])
    assert found["simulated"] is True
    assert snapshot(lab, host.name) == before


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ({"gpu.1.state": "lost"}, "health.presence.lost"),
        ({"gpu.1.ecc_pending": 0}, "health.memory.change_pending"),
        ({"gpu.1.pcie.width": 8}, "health.pcie.width"),
        ({"gpu.1.clocks_event_reasons": 64}, "health.thermal.slowdown"),
        ({"gpu.1.retired_pending": 1}, "health.memory.retirement_pending"),
        ({"gpu.1.hang": 1}, "health.presence.silent"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_found_and_its_gpu_named(
    fault: Mapping[str, object], rule: str, fleet: Fleet, lab: Lab, host: HostDefinition, tmp_path: Path
) -> None:
    with switched(lab, host.name, fault):
        _, found = asked(fleet, lab, host, tmp_path)
    (finding,) = found["findings"]
    assert (finding["id"], finding["gpu"]) == (rule, found["gpus"][1]["address"])


def test_an_xid_of_the_kernel_log(fleet: Fleet, lab: Lab, host: HostDefinition, tmp_path: Path) -> None:
    """Last: it stays in the log until the next boot."""
    xid(lab, host.name, 79, 1)
    code, found = asked(fleet, lab, host, tmp_path)
    (finding,) = found["findings"]
    assert (code, finding["id"], finding["gpu"]) == (4, "health.xid.fault", found["gpus"][1]["address"])
