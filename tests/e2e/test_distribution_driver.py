"""Debian's own NVIDIA driver by fleet, for real: non-free packages, modules built by dkms, and the honest end.

Nothing of it is simulated but the PCI bus and which of Debian's kernels is said to run: so the modules are built
for that kernel, and modprobe, which asks the kernel itself, does not load them. It takes minutes: what is compiled
is NVIDIA's kernel module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.core.schema import validate
from fleet.lab import faults
from fleet.lab.access import write_inventory
from fleet.lab.lab import Lab
from fleet.lab.snapshot import snapshot
from tests.conftest import LabFactory
from tests.e2e import harness
from tests.e2e.harness import Finished, Fleet

pytestmark = [pytest.mark.lab, pytest.mark.slow]

HOST = "real"
COMPONENTS = "/etc/apt/sources.list.d/non-free.list"
HIDDEN = "/var/tmp/non-free.list"
BUILD_DEADLINE_S = 3600
OWN = (
    "var/lib/fleet",
    "var/lib/apt",
)  # what a run that does nothing leaves behind: its journal, package lists
_LAB = """\
all:
  vars: {lab_subnet: 172.28.64.0/25, lab_inner_subnet: 172.28.64.128/25}
  hosts:
    real:
      ansible_host: 172.28.64.11
      lab_release: bookworm
      lab_gpus: {model: t4, count: 2}
      lab_real_modules: true
"""


@dataclass
class Site:
    """The lab with its one host, and how fleet is called for the driver of that host."""

    lab: Lab
    fleet: Fleet
    inventory: Path

    def provision(self, *words: str) -> Finished:
        """``fleet provision --tags driver``."""
        return self.fleet(
            "provision", str(self.inventory), "--tags", "driver", *words, deadline=BUILD_DEADLINE_S
        )

    def run(self, script: str) -> str:
        """What a shell on the host prints, by another way than fleet's."""
        return faults.shell(self.lab, HOST, script, deadline=600)

    def report(self) -> dict[str, Any]:
        """The newest report, which must be a valid one."""
        report = self.fleet.reports()[HOST]
        assert validate(report, "report") == []
        return report


@pytest.fixture(scope="module")
def site(own_lab: LabFactory, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A host with Debian's kernel, GPUs on its bus, nothing of a driver, and all else up to date."""
    lab = own_lab("distribution-driver", _LAB)
    # fleet refuses to upgrade what it was not asked to; what building needs may depend on a newer perl-base.
    faults.shell(
        lab, HOST, "DEBIAN_FRONTEND=noninteractive apt-get upgrade -qy >/dev/null 2>&1", deadline=600
    )
    folder = tmp_path_factory.mktemp("site")
    inventory = write_inventory(
        folder / "site.yaml", lab, list(lab.definition.hosts), nvidia_driver_source="distribution"
    )
    return Site(lab, Fleet(folder), inventory)


def test_without_the_components_it_is_refused_naming_them_and_nothing_is_done(site: Site) -> None:
    site.run(f"mv {COMPONENTS} {HIDDEN}; apt-get update -q >/dev/null")
    before = snapshot(site.lab, HOST)
    for words in (("--check",), ()):
        done = site.provision(*words)
        assert done.code == 1, done.said
        assert "components_missing" in done.said
        assert "contrib, non-free and non-free-firmware" in site.report()["reason"]
    different = before.differences(snapshot(site.lab, HOST))
    assert [one for one in different if not any(path in one for path in OWN)] == []
    site.run(f"mv {HIDDEN} {COMPONENTS}; apt-get update -q >/dev/null")


def test_the_driver_is_built_and_its_modules_fail_to_load_with_the_true_reason(site: Site) -> None:
    candidate = site.run("apt-cache policy nvidia-kernel-dkms | sed -n 's/^ *Candidate: //p'").strip()
    version = candidate.partition("-")[0]
    assert re.fullmatch(r"\d{3}(\.\d+)+", version)

    foreseen = site.provision("--check")
    assert foreseen.code == 0, foreseen.said
    assert site.run("cat /var/lib/dkms/nvidia-current/*/source/dkms.conf 2>/dev/null || true") == ""
    expected = {step["id"].rpartition(".")[2]: step["status"] for step in site.report()["steps"]}
    certain = ("modprobe", "boot_modules", "packages", "unattended_upgrades")
    assert {part for part, status in expected.items() if status == "would_change"} == set(certain)
    unknown = ("initramfs", "modules", "persistence")
    assert {part for part, status in expected.items() if status == "known_after_apply"} == set(unknown)

    done = site.provision()
    assert done.code == 1, done.said
    what_is_installed_is_whole(site, version)
    report = site.report()
    reason = the_end_is_honest(site, report, version)

    built = site.run("stat -c '%n %Y %i' /lib/modules/*/updates/dkms/*")
    transactions = site.run("grep -c ^Start-Date /var/log/apt/history.log")
    again = site.provision()
    assert again.code == 1, again.said
    assert site.run("stat -c '%n %Y %i' /lib/modules/*/updates/dkms/*") == built
    assert site.run("grep -c ^Start-Date /var/log/apt/history.log") == transactions
    second = site.report()
    assert the_end_is_honest(site, second, version) == reason
    assert second["counts"].get("changed", 0) == 0


def what_is_installed_is_whole(site: Site, version: str) -> None:
    """dpkg, dkms, apt's history, the holds and the initramfs, each by its own word."""
    kernel = site.run("uname -r").strip()
    assert harness.dpkg_is_clean(site.lab, HOST)
    assert site.run("dkms status").strip() == f"nvidia-current/{version}, {kernel}, x86_64: installed"
    for name in ("nvidia-current", "nvidia-current-uvm"):
        module = f"/lib/modules/{kernel}/updates/dkms/{name}.ko"
        assert site.run(f"modinfo -F version {module}; modinfo -F vermagic {module}").split()[:2] == [
            version,
            kernel,
        ]
    (install,) = [
        line
        for line in site.run("cat /var/log/apt/history.log").splitlines()
        if line.startswith("Install:") and "nvidia-kernel-dkms:" in line
    ]
    for name in (f"linux-headers-{kernel}", "dkms", "libnvidia-ml1", "libcuda1", "nvidia-smi"):
        assert f" {name}:" in install
    held = set(site.run("apt-mark showhold").split())
    assert {"nvidia-kernel-dkms", "libnvidia-ml1", "libcuda1", "nvidia-smi"} <= held
    assert not {name for name in held if name.startswith("linux-") or name == "dkms"}
    assert "etc/modprobe.d/fleet-nvidia.conf" in site.run(f"lsinitramfs /boot/initrd.img-{kernel}").split()
    smi = faults.execute(site.lab, HOST, "nvidia-smi", check=False)
    assert (smi.returncode, "couldn't communicate with the NVIDIA driver" in smi.stdout) == (9, True)


def the_end_is_honest(site: Site, report: dict[str, Any], version: str) -> str:
    """Failed at loading the modules, with what modprobe says; the versions each as they are. The reason."""
    kernel = site.run("uname -r").strip()
    assert (report["status"], report["simulated"]) == ("failed", True)
    statuses = {step["id"].rpartition(".")[2]: step["status"] for step in report["steps"]}
    assert statuses["modules"] == "failed"
    assert statuses["persistence"] == "not_reached"
    assert {statuses[part] for part in ("packages", "modprobe", "initramfs")} <= {"ok", "changed"}
    refused = faults.execute(site.lab, HOST, "modprobe", "nvidia", check=False)
    (said,) = re.findall(r"Module nvidia-current not found in directory \S+", refused.stderr)
    reason = str(report["reason"])
    assert said in reason
    assert f"not the {kernel} that this host shows" in reason
    assert "boot " + kernel in report["remedy"]
    facts = report["facts"]
    assert [gpu["driver"] for gpu in facts["gpus"]] == [None, None]
    driver = facts["driver"]
    assert driver["loaded"] is None
    assert driver["library_version"] == version
    (only,) = driver["kernels"]
    assert (only["release"], only["headers"]) == (kernel, True)
    (module,) = only["modules"]
    assert (module["version"], module["flavour"]) == (version, "proprietary")
    (build,) = driver["dkms"]
    assert (build["module"], build["version"], build["kernel"]) == ("nvidia-current", version, kernel)
    assert (build["state"], build["remark"]) == ("installed", None)
    assert driver["nouveau_blocked"] is True
    return reason
