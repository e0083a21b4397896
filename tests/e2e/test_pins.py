"""A version that one release does not offer refuses the run for the hosts of every release."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.lab import Lab
from tests.conftest import LabFactory
from tests.e2e.harness import Fleet, playbook

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_LAB = """\
all:
  vars: {lab_subnet: 172.28.66.0/25, lab_inner_subnet: 172.28.66.128/25}
  hosts:
    older: {ansible_host: 172.28.66.11, lab_release: bookworm}
    newer: {ansible_host: 172.28.66.12, lab_release: trixie}
"""


@pytest.fixture(scope="module")
def two_releases(own_lab: LabFactory) -> Lab:
    """A host of each release."""
    return own_lab("releases", _LAB)


def has_group(lab: Lab, host: str) -> bool:
    return faults.execute(lab, host, "getent", "group", "witness", check=False).returncode == 0


def test_no_host_is_touched_and_what_is_offered_is_shown(
    two_releases: Lab, fleet: Fleet, tmp_path: Path
) -> None:
    lab = two_releases
    inventory = write_inventory(tmp_path / "site.yaml", lab, list(lab.definition.hosts))
    book = playbook(tmp_path, [{"group": {"name": "witness"}}, {"package": {"name": "jq=1.6*"}}], serial=1)
    refused = fleet("run", str(inventory), str(book))
    assert refused.code == 1, refused.said
    assert "pin_not_available: jq 1.6* is in no repository of this host; offered: 1.7" in refused.said
    reports = fleet.reports()
    assert (reports["older"]["status"], reports["newer"]["status"]) == ("skipped", "failed")
    assert not any(has_group(lab, host) for host in ("older", "newer"))
    alone = fleet("run", str(inventory), str(book), "--limit", "older")
    assert alone.code == 0, alone.said
    assert has_group(lab, "older")
