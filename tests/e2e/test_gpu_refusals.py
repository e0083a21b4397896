"""A GPU host that cannot be had as wanted: the reason is said, with what to do, and nothing on the host changes.

Tests share one bare host, since each leaves it as it found it, by the word of a snapshot from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fleet.lab import faults
from fleet.lab.definition import HostDefinition
from fleet.lab.engine import wait_until
from fleet.lab.lab import Lab
from fleet.lab.simulation.faults import package_lock_held, rotated_key, switch, vanished_package
from fleet.lab.simulation.hardware import hardware
from fleet.lab.snapshot import snapshot
from tests.conftest import HostFactory
from tests.e2e import gpu
from tests.e2e.harness import Finished, Fleet

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def bare_host(module_host: HostFactory) -> HostDefinition:
    """A host with GPUs and NVSwitches, and nothing installed for them."""
    return module_host(hardware=hardware("h100-sxm", 8, seed="bare"))


@pytest.fixture
def refused(lab: Lab, bare_host: HostDefinition, fleet: Fleet) -> Iterator[Callable[[], Finished]]:
    """``refused()``: provision fails; that it changed nothing is looked at when the test ends."""
    before = snapshot(lab, bare_host.name)
    yield lambda: provision(lab, bare_host, fleet)
    assert before.differences(snapshot(lab, bare_host.name)) == []


def provision(lab: Lab, host: HostDefinition, fleet: Fleet) -> Finished:
    """``fleet provision``, which fails."""
    done = fleet("provision", str(gpu.gpu_inventory(fleet.folder, lab, [host])))
    assert done.code == 1, done.said
    return done


def test_secure_boot_without_a_key(lab: Lab, lab_host: HostFactory, fleet: Fleet) -> None:
    """Nothing that is built would load: said before anything is built, with commands that do put it right."""
    host = lab_host(hardware=hardware("h100-sxm", 8, seed="secure", secure_boot="enabled"))
    before = snapshot(lab, host.name)
    provision(lab, host, fleet)
    assert before.differences(snapshot(lab, host.name)) == []
    report = fleet.reports()[host.name]
    assert report["status"] == "blocked"
    assert "Secure Boot is on" in report["reason"]
    commands, _, at_the_console = report["remedy"].partition("; ")
    assert "mokutil --import /var/lib/dkms/mok.pub" in commands
    assert "Enroll MOK" in at_the_console
    faults.execute(lab, host.name, "sh", "-ec", commands, stdin="password\npassword\n")
    switch(lab, host.name, {"mok_confirm": 1})
    faults.reboot(lab, host.name)
    done = fleet("provision", str(fleet.folder / "site.yaml"), "--tags", "driver")
    assert done.code == 0, done.said
    (version,) = set(gpu.versions(lab, host.name).values())
    assert version.startswith(f"{gpu.BRANCH}.")


def test_a_repository_whose_key_was_rotated(lab: Lab, refused: Callable[[], Finished]) -> None:
    with rotated_key(lab, "debian12") as fingerprint:
        done = refused()
    assert fingerprint[-16:] in done.said.replace(" ", "")
    assert "packages.lab" in done.said


def test_a_package_that_vanished(lab: Lab, refused: Callable[[], Finished]) -> None:
    """The driver without its fabric manager is none: the host would see GPUs that no program can use."""
    with vanished_package(lab, "debian12", "nvidia-fabricmanager"):
        done = refused()
    assert "nvidia-fabricmanager" in done.said
    assert gpu.BRANCH in done.said


def test_a_lock_that_somebody_holds(lab: Lab, bare_host: HostDefinition, fleet: Fleet) -> None:
    """It is waited for, its holder named, and nothing is installed meanwhile."""
    inventory = str(gpu.gpu_inventory(fleet.folder, lab, [bare_host]))
    before = snapshot(lab, bare_host.name)
    with package_lock_held(lab, bare_host.name) as pid:
        running = fleet.start("provision", inventory, "--tags", "driver", "-vv")
        wait_until(
            lambda: running.says(rf"waiting for .*\(pid {pid}\) to release the package lock"),
            "the holder is named",
            deadline=120,
            host=bare_host.name,
        )
        assert snapshot(lab, bare_host.name).sections["package"] == before.sections["package"]
        running.interrupt()
        assert running.finish().code == 130
    assert snapshot(lab, bare_host.name).sections["package"] == before.sections["package"]
    assert faults.execute(lab, bare_host.name, "dpkg", "--audit").stdout == ""
