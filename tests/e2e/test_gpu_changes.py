"""What happens to a driver after it was provisioned: updates of the system, a build that fails, a new kernel."""

from __future__ import annotations

import re

import pytest

from fleet.lab import faults
from fleet.lab.lab import Lab
from fleet.lab.simulation.faults import switched
from fleet.lab.simulation.hardware import hardware
from tests.conftest import HostFactory
from tests.e2e import gpu, harness
from tests.e2e.harness import Fleet

pytestmark = pytest.mark.lab

RUNNING, NEXT = "6.1.0-90-amd64", "6.1.0-91-amd64"
# Newer ones of the same packages are in the repositories.
PINNED_DRIVER, PINNED_TOOLKIT = "580.105.08", "1.17.8"

ONLY_NVIDIAS = """\
#clear Unattended-Upgrade::Origins-Pattern;
Unattended-Upgrade::Origins-Pattern { "site=packages.lab"; };
"""


def test_unattended_upgrades_change_nothing_of_the_set(lab: Lab, lab_host: HostFactory, fleet: Fleet) -> None:
    """They are told to take whatever NVIDIA has, and newer versions are there: once free, they take them."""
    host = lab_host(
        hardware=hardware("h100-sxm", 8, seed="upgrades", kernel="5.15.0-170-generic"),
        dress="ubuntu2204",
        unattended_upgrades=True,
        packages=("docker.io",),
    ).name
    pins = {"nvidia_driver_branch": None, "nvidia_driver_version": PINNED_DRIVER}
    inventory = gpu.gpu_inventory(
        fleet.folder, lab, [lab.member(host)], **pins, container_toolkit_version=PINNED_TOOLKIT
    )
    done = fleet("provision", str(inventory), "--tags", "driver,docker")
    assert done.code == 0, done.said
    packages, versions = gpu.set_versions(lab, host), gpu.versions(lab, host)
    assert set(versions.values()) == {PINNED_DRIVER}
    # Debian's own updates have nothing to do with it, and take their time.
    faults.execute(lab, host, "sh", "-c", "cat > /etc/apt/apt.conf.d/60only-nvidia", stdin=ONLY_NVIDIAS)
    faults.shell(lab, host, "apt-get update -q")
    said = faults.shell(lab, host, "unattended-upgrade --verbose 2>&1")
    assert gpu.set_versions(lab, host) == packages, said
    assert gpu.versions(lab, host) == versions
    # Without what fleet left on the host they would have taken it, so the test proves something.
    faults.shell(lab, host, f"rm {' '.join(gpu.KEEPS_VERSIONS)}; apt-mark unhold $(apt-mark showhold)")
    freed = faults.shell(lab, host, "unattended-upgrade --dry-run --verbose 2>&1")
    taken = re.search("^Packages that will be upgraded: (.*)$", freed, re.MULTILINE)
    assert taken is not None, freed
    assert {name for name in packages if PINNED_DRIVER not in name} <= set(taken[1].split())


def test_a_driver_that_cannot_be_built(lab: Lab, lab_host: HostFactory, fleet: Fleet) -> None:
    """The old one stays in the kernel, nothing reboots, and once it can be built resume goes on."""
    definition = lab_host(hardware=hardware("t4", 1, seed="build"), driver=gpu.OLD_DRIVER)
    host, inventory = definition.name, str(gpu.gpu_inventory(fleet.folder, lab, [definition]))
    boot = faults.boot_id(lab, host)
    with switched(lab, host, {"dkms_build": "fail"}):
        failed = fleet("provision", inventory, "--tags", "driver")
    assert failed.code == 1, failed.said
    said = " ".join(failed.said.split())
    assert RUNNING in said
    assert f"{gpu.BRANCH}." in said
    assert "does not build" in said
    assert "Error 2" in said  # the cause, out of make.log
    assert "build/make.log; do not reboot before" in said
    assert "fleet resume" in said
    loaded = faults.shell(lab, host, "cat /proc/driver/nvidia/version")
    assert gpu.OLD_DRIVER in loaded
    assert faults.boot_id(lab, host) == boot
    resumed = fleet("resume", "last")
    assert resumed.code == 0, resumed.said
    assert faults.boot_id(lab, host) == boot
    (version,) = set(gpu.versions(lab, host).values())
    assert version.startswith(f"{gpu.BRANCH}.")
    assert harness.dpkg_is_clean(lab, host)
    again = fleet("provision", inventory, "--tags", "driver")
    assert again.code == 0, again.said
    assert "changed=0" in again.out


def test_a_kernel_that_boots_next(lab: Lab, lab_host: HostFactory, fleet: Fleet) -> None:
    """The modules are built for it, too: after the reboot the driver is there by itself."""
    definition = lab_host(hardware=hardware("h100-sxm", 8, seed="kernel"), packages=("docker.io",))
    host, inventory = definition.name, str(gpu.gpu_inventory(fleet.folder, lab, [definition]))
    faults.shell(lab, host, f"DEBIAN_FRONTEND=noninteractive apt-get install -qy linux-image-{NEXT}")
    assert faults.execute(lab, host, "dpkg", "-s", f"linux-headers-{NEXT}", check=False).returncode != 0
    done = fleet("provision", inventory)
    assert done.code == 0, done.said
    versions = gpu.versions(lab, host)
    for kernel in (RUNNING, NEXT):
        assert gpu.installed(lab, host, f"linux-headers-{kernel}")
        on_disk = faults.execute(lab, host, "modinfo", "-k", kernel, "-F", "version", "nvidia").stdout.strip()
        assert on_disk == versions["loaded"]
    faults.reboot(lab, host)
    assert faults.execute(lab, host, "uname", "-r").stdout.strip() == NEXT
    assert gpu.versions(lab, host) == versions
    gpu.services_run(lab, host)
    again = fleet("provision", inventory)
    assert again.code == 0, again.said
    # What was seen in a container before the boot says nothing about now, so that one is looked at again.
    changed = [step["id"] for step in fleet.reports()[host]["steps"] if step["status"] == "changed"]
    assert len(changed) == 1
    assert "container" in changed[0]
    third = fleet("provision", inventory)
    assert "changed=0" in third.out, third.said
