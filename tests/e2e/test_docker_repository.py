"""Docker Engine from Docker's own repository (the lab's stand-in): pinned, kept, and brought to another version."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.lab import Lab
from tests.conftest import LabFactory
from tests.e2e.harness import Fleet

pytestmark = [pytest.mark.lab, pytest.mark.slow]

OLDER, NEWER = "26.1.4", "26.1.5"
_LAB = """\
all:
  vars: {lab_subnet: 172.28.62.0/25, lab_inner_subnet: 172.28.62.128/25, lab_docker_repository: true}
  hosts:
    engine: {ansible_host: 172.28.62.11, lab_release: bookworm}
"""


@pytest.fixture(scope="module")
def docker_lab(own_lab: LabFactory) -> Lab:
    """One bare host, and a package server with Docker's repository."""
    return own_lab("docker-repository", _LAB)


def engine_version(lab: Lab) -> str:
    return faults.shell(lab, "engine", "docker version --format '{{.Server.Version}}'").partition("+")[0]


def test_the_engine_comes_from_dockers_repository_and_stays_at_its_pin(
    docker_lab: Lab, fleet: Fleet, tmp_path: Path
) -> None:
    state = docker_lab.state.directory
    variables = yaml.safe_load((state / "variables.yaml").read_text())
    repository = {
        "base_url": "http://packages.lab/docker/linux/debian",
        "key_fingerprint": variables["lab_docker_engine_key_fingerprint"],
    }
    for version in (OLDER, NEWER):
        inventory = write_inventory(
            tmp_path / "inventory.yaml",
            docker_lab,
            list(docker_lab.definition.hosts),
            docker_engine_source="docker",
            docker_engine_version=version,
            docker_engine_repository=repository,
        )
        done = fleet("provision", str(inventory))
        assert done.code == 0, done.said
        assert engine_version(docker_lab) == version
        assert fleet.reports()["engine"]["status"] == "converged"
        again = fleet("provision", str(inventory))
        assert "changed=0" in again.out, again.said
    held = faults.shell(docker_lab, "engine", "apt-mark showhold").split()
    assert held == ["containerd.io", "docker-ce", "docker-ce-cli"]
