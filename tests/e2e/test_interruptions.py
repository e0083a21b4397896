"""No step is lost and none is doubled, whatever is interrupted in the middle of an installation.

The witnesses are apt's history, a file that commands append to, dpkg's audit and the process list;
never fleet's own word. Each test has a host of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.definition import HostDefinition
from fleet.lab.engine import wait_until
from fleet.lab.lab import Lab
from tests.e2e import harness
from tests.e2e.harness import Fleet, Running, count

pytestmark = pytest.mark.lab

PACKAGE = "tree"
TASKS = [count("before"), {"name": "install", "package": {"name": PACKAGE}}, count("after")]


class Scene:
    """A host with a slow apt, an inventory of it, and a playbook that is in the middle of apt."""

    def __init__(self, lab: Lab, host: HostDefinition, fleet: Fleet, folder: Path) -> None:
        self.lab = lab
        self.host = host.name
        self.fleet = fleet
        self.inventory = str(write_inventory(folder / "site.yaml", lab, [host]))
        self.playbook = str(harness.playbook(folder, TASKS))
        harness.slow_apt(lab, self.host)

    def in_the_middle(self) -> Running:
        """Start the run and wait until apt is at work."""
        running = self.fleet.start("run", self.inventory, self.playbook)
        harness.in_apt(self.lab, self.host)
        return running

    def resume(self) -> None:
        """Go on with the run, which must then converge."""
        done = self.fleet("resume", "last")
        assert done.code == 0, done.said

    def assert_once(self) -> None:
        """Every witness says: done, and done once."""
        assert harness.counted(self.lab, self.host) == ["before", "after"]
        assert harness.installations(self.lab, self.host, PACKAGE) == 1
        assert harness.dpkg_is_clean(self.lab, self.host)
        assert harness.lease(self.lab, self.host) == ""
        harness.idle(self.lab, self.host)


MakeScene = Callable[..., Scene]


@pytest.fixture
def scene(lab: Lab, lab_host: Callable[..., HostDefinition], fleet: Fleet, tmp_path: Path) -> MakeScene:
    """``scene(**host fields)``."""
    return lambda **fields: Scene(lab, lab_host(**fields), fleet, tmp_path)


def test_a_dropped_connection(scene: MakeScene) -> None:
    here = scene()
    running = here.in_the_middle()
    assert faults.cut_connections(here.lab, here.host) > 0
    done = running.finish()
    assert done.code == 0, done.said
    here.assert_once()


def test_a_killed_controller(scene: MakeScene) -> None:
    here = scene()
    here.in_the_middle().kill()
    here.resume()
    here.assert_once()


def test_a_killed_worker(scene: MakeScene) -> None:
    here = scene()
    running = here.in_the_middle()
    faults.shell(here.lab, here.host, "systemctl kill --kill-who=main --signal=KILL 'fleet-*.service'")
    failed = running.finish()
    assert failed.code == 1, failed.said
    assert "fleet resume" in failed.said
    here.resume()
    here.assert_once()


def test_a_logout_that_kills_user_processes(scene: MakeScene) -> None:
    here = scene(login="sudo_password", kill_user_processes=True)
    here.in_the_middle().kill()
    wait_until(
        lambda: harness.counted(here.lab, here.host) == ["before", "after"],
        "the worker went on after the logout",
        deadline=120,
        host=here.host,
    )
    here.resume()
    here.assert_once()


def test_ctrl_c_lets_apt_finish_and_leaves_nothing_behind(scene: MakeScene) -> None:
    here = scene()
    running = here.in_the_middle()
    running.interrupt()
    done = running.finish()
    assert done.code == 130, done.said
    assert harness.counted(here.lab, here.host) == ["before"]
    assert harness.dpkg_is_clean(here.lab, here.host)
    installed = faults.execute(here.lab, here.host, "dpkg", "-s", PACKAGE, check=False)
    assert installed.returncode != 0 or "Status: install ok installed" in installed.stdout
    assert harness.lease(here.lab, here.host) == ""
    harness.idle(here.lab, here.host)


def test_ctrl_c_twice_leaves_the_host_to_go_on_alone(scene: MakeScene) -> None:
    here = scene()
    running = here.in_the_middle()
    running.interrupt()
    wait_until(
        lambda: running.says("Ctrl-C again"), "the first Ctrl-C was noticed", deadline=30, host=here.host
    )
    running.interrupt()
    done = running.finish()
    assert done.code == 130, done.said
    assert "fleet resume" in done.said


def test_a_reboot_as_a_step(
    lab: Lab, lab_host: Callable[..., HostDefinition], fleet: Fleet, tmp_path: Path
) -> None:
    host = lab_host()
    before = faults.boot_id(lab, host.name)
    inventory = write_inventory(tmp_path / "site.yaml", lab, [host])
    tasks = [count("before"), {"name": "reboot", "reboot": {}}, count("after")]
    done = fleet("run", str(inventory), str(harness.playbook(tmp_path, tasks)))
    assert done.code == 0, done.said
    assert faults.boot_id(lab, host.name) != before
    assert harness.counted(lab, host.name) == ["before", "after"]
    assert harness.lease(lab, host.name) == ""


def test_resuming_a_failed_run_repeats_only_the_step_that_failed(
    lab: Lab, lab_host: Callable[..., HostDefinition], fleet: Fleet, tmp_path: Path
) -> None:
    host = lab_host()
    inventory = write_inventory(tmp_path / "site.yaml", lab, [host])
    needs_a_file = {"name": "needs a file", "command": {"argv": ["cat", "/var/tmp/mended"]}}
    book = harness.playbook(tmp_path, [count("before"), needs_a_file, count("after")])
    failed = fleet("run", str(inventory), str(book))
    assert failed.code == 1, failed.said
    assert "fleet resume" in failed.said
    assert harness.lease(lab, host.name) == ""
    faults.shell(lab, host.name, "touch /var/tmp/mended")
    resumed = fleet("resume", "last")
    assert resumed.code == 0, resumed.said
    assert harness.counted(lab, host.name) == ["before", "after"]


def test_a_command_that_was_interrupted_is_not_repeated(
    lab: Lab, lab_host: Callable[..., HostDefinition], fleet: Fleet, tmp_path: Path
) -> None:
    host = lab_host()
    inventory = write_inventory(tmp_path / "site.yaml", lab, [host])
    script = "echo started >> /var/tmp/counter; touch /run/in-apt; sleep 60"
    tasks = [{"name": "not repeatable", "command": {"argv": ["sh", "-c", script]}}, count("after")]
    running = fleet.start("run", str(inventory), str(harness.playbook(tmp_path, tasks)))
    harness.in_apt(lab, host.name)
    faults.shell(lab, host.name, "systemctl kill --kill-who=all --signal=KILL 'fleet-*.service'")
    assert running.finish().code == 1
    resumed = fleet("resume", "last")
    assert resumed.code == 1, resumed.said
    assert "interrupted" in resumed.said
    assert harness.counted(lab, host.name) == ["started"]
