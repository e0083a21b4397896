"""The driver transaction is interrupted in its middle: resume converges, and every part has one version.

The middle is the build of the kernel modules, when the packages are unpacked and half of them configured, or
the moment between the old module and the new. The witnesses are dpkg, modinfo, /proc and nvidia-smi. The hosts
have NVSwitches, so that fabric manager and driver must agree, too.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.lab import faults
from fleet.lab.definition import HostDefinition
from fleet.lab.engine import wait_until
from fleet.lab.lab import Lab
from fleet.lab.simulation.faults import process_on_gpu, switch
from fleet.lab.simulation.hardware import hardware
from tests.conftest import HostFactory
from tests.e2e import gpu, harness
from tests.e2e.harness import Fleet, Running

pytestmark = pytest.mark.lab


class Scene:
    """A host whose driver is being installed, and a run that gets no further than ``fault`` lets it."""

    def __init__(self, lab: Lab, host: HostDefinition, fleet: Fleet) -> None:
        self.lab = lab
        self.host = host.name
        self.fleet = fleet
        self.inventory = str(gpu.gpu_inventory(fleet.folder, lab, [host]))

    def in_the_middle(self, fault: str = "dkms_build", command: str = "/dkms install ") -> Running:
        """Start a run, and wait until ``command`` runs and hangs."""
        switch(self.lab, self.host, {fault: "hang"})
        running = self.fleet.start("provision", self.inventory, "--tags", "driver")
        wait_until(
            lambda: command in harness.processes(self.lab, self.host),
            f"{command} runs",
            deadline=180,
            host=self.host,
        )
        return running

    def go_on(self) -> None:
        """What hangs goes on, where it is still there."""
        switch(self.lab, self.host, {})

    def kill_worker(self, who: str = "all") -> None:
        """The worker and all it started; ``main``: the worker alone."""
        kill = ("systemctl", "kill", f"--kill-who={who}", "--signal=KILL")
        # The lab has services of the name fleet-…, too; a run's begins with its number, in hexadecimal.
        faults.execute(self.lab, self.host, *kill, "fleet-[0-9a-f]*-[0-9].service")

    def converges(self) -> None:
        """After ``fleet resume`` everything is there once, and of one version; a second run finds nothing."""
        done = self.fleet("resume", "last")
        assert done.code == 0, done.said
        self.agrees()

    def agrees(self) -> None:
        """Every part has the wanted version, the services run, and nothing is left to do."""
        assert harness.dpkg_is_clean(self.lab, self.host)
        versions = gpu.versions(self.lab, self.host)
        assert set(versions) == {"loaded", "disk", "library", "smi"}
        (version,) = set(versions.values())
        assert version.startswith(f"{gpu.BRANCH}.")
        packages = gpu.set_versions(self.lab, self.host)
        assert packages["nvidia-fabricmanager"] == f"{version}-1"
        assert {value for name, value in packages.items() if "container" not in name} == {f"{version}-1"}
        gpu.services_run(self.lab, self.host)
        harness.idle(self.lab, self.host)
        assert harness.lease(self.lab, self.host) == ""
        again = self.fleet("provision", self.inventory, "--tags", "driver")
        assert again.code == 0, again.said
        assert "changed=0" in again.out


@pytest.fixture
def scene(lab: Lab, lab_host: HostFactory, fleet: Fleet) -> Callable[..., Scene]:
    """``scene(**host fields)``."""
    h100s = hardware("h100-sxm", 8, seed="cut")
    return lambda **fields: Scene(lab, lab_host(hardware=h100s, **fields), fleet)


def test_apt_is_killed(scene: Callable[..., Scene]) -> None:
    """The build goes on without it, as it would."""
    here = scene()
    running = here.in_the_middle()
    faults.shell(here.lab, here.host, "kill -KILL $(pidof apt-get dpkg)")
    here.go_on()
    failed = running.finish()
    assert failed.code == 1, failed.said
    assert "fleet resume" in failed.said
    here.converges()


def test_the_connection_is_cut(scene: Callable[..., Scene]) -> None:
    here = scene()
    running = here.in_the_middle()
    assert faults.cut_connections(here.lab, here.host) > 0
    here.go_on()
    done = running.finish()
    assert done.code == 0, done.said
    here.agrees()


def test_the_controller_is_killed(scene: Callable[..., Scene]) -> None:
    here = scene()
    here.in_the_middle().kill()
    here.go_on()
    here.converges()


def test_the_worker_is_killed(scene: Callable[..., Scene]) -> None:
    here = scene()
    running = here.in_the_middle()
    here.kill_worker()
    here.go_on()
    failed = running.finish()
    assert failed.code == 1, failed.said
    assert "fleet resume" in failed.said
    here.converges()


def test_the_worker_alone_is_killed(scene: Callable[..., Scene]) -> None:
    """apt goes on without it: resume waits for it, and starts no second one."""
    here = scene()
    running = here.in_the_middle()
    here.kill_worker("main")
    failed = running.finish()
    assert failed.code == 1, failed.said
    resumed = here.fleet.start("resume", "last", "-vv")
    wait_until(
        lambda: resumed.says("left by a killed worker"), "apt is waited for", deadline=60, host=here.host
    )
    here.go_on()
    done = resumed.finish()
    assert done.code == 0, done.said
    assert harness.installations(here.lab, here.host, "nvidia-kernel-open-dkms") == 1
    here.agrees()


def test_the_worker_is_killed_between_the_old_module_and_the_new(scene: Callable[..., Scene]) -> None:
    """No driver is loaded and the services are stopped: resume loads the new one, and starts them again."""
    here = scene(driver=gpu.OLD_DRIVER)
    gpu.services_run(here.lab, here.host)
    running = here.in_the_middle("module_load", "/modprobe nvidia ")
    loaded = faults.shell(here.lab, here.host, "ls /sys/module /proc/driver")
    assert "nvidia" not in loaded.split()
    here.kill_worker()
    here.go_on()
    failed = running.finish()
    assert failed.code == 1, failed.said
    here.converges()


def test_the_power_goes(scene: Callable[..., Scene]) -> None:
    """The controller is there when the host comes back, and finds nobody at work on it."""
    here = scene()
    running = here.in_the_middle()
    faults.stop(here.lab, here.host, power=True)
    faults.start(here.lab, here.host)
    here.go_on()
    failed = running.finish()
    assert failed.code == 1, failed.said
    assert "fleet resume" in failed.said
    here.converges()


def test_a_job_begins_while_the_driver_is_built(scene: Callable[..., Scene]) -> None:
    """Nobody used the GPUs when the run was planned. The job keeps its driver, and is named."""
    here = scene(driver=gpu.OLD_DRIVER)
    running = here.in_the_middle()
    with process_on_gpu(here.lab, here.host, user="daemon") as pid:
        here.go_on()
        begun = gpu.process_start(here.lab, here.host, pid)
        done = running.finish()
        assert done.code == 5, done.said
        assert f"(pid {pid}, user daemon" in done.said
        assert gpu.process_start(here.lab, here.host, pid) == begun
        assert gpu.OLD_DRIVER in faults.shell(here.lab, here.host, "cat /proc/driver/nvidia/version")
    after = here.fleet("provision", here.inventory, "--tags", "driver")
    assert after.code == 0, after.said
    here.agrees()
