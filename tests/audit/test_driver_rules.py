"""Do the driver's parts agree, does it survive the next boot, and may the package manager touch it?"""

from __future__ import annotations

from typing import Any

import pytest

from fleet.audit.driver import holds
from fleet.audit.findings import Finding
from fleet.audit.rules import evaluate
from tests.facts import healthy_gpu_facts

PREINSTALLED, NVIDIA = {"source": "preinstalled"}, {"source": "nvidia", "branch": "580"}
RUNNING = healthy_gpu_facts()["driver"]["kernels"][0]
NEW_KERNEL = "6.1.0-31-amd64"
CHANGED_BY = {
    "command": "/usr/bin/unattended-upgrade",
    "at": "2026-11-24T06:50:54",
    "packages": [{"name": "libnvidia-ml1", "before": "580.159.03-1", "after": "580.159.04-1"}],
}
REPLACED = {
    "driver.library_version": "580.159.04",
    "driver.kernels.0.modules.0.version": "580.159.04",
    "driver.changed_by": CHANGED_BY,
}
INSTALLED = {
    "libnvidia-compute-550": "550.163.01-0ubuntu0.24.04.2",
    "libnvidia-compute-580": "580.159.03-0ubuntu1",
    "linux-modules-nvidia-580-open-6.1.0-28-amd64": "6.1.0-28.28+1",
    "linux-modules-nvidia-535-5.15.0-100-generic": "5.15.0-100.110",
    "nvidia-settings": "610.43.02-1",
    "nvidia-container-toolkit": "1.18.2-1",
}
BROKEN = {
    "nvidia-dkms-580-open": "half-configured",
    "nvidia-driver-580-open": "unpacked",
    "nvidia-settings": "half-installed, reinst-required",
}
MIXED = {
    "packages.installed": INSTALLED,
    "packages.states": BROKEN,
    "packages.held": ["libnvidia-compute-550", "nvidia-fabricmanager-550", "vim"],
}
HELD = {"packages.held": ["libcuda1", "docker.io", "vim"]}


def findings(changes: dict[str, Any], driver: dict[str, Any] | None = None, **wanted: Any) -> list[Finding]:
    return evaluate("preflight", healthy_gpu_facts(changes), {"driver": driver or {}, **wanted})


def only(rule: str, changes: dict[str, Any], driver: dict[str, Any] | None = None, **wanted: Any) -> Finding:
    """The one finding of a rule; others may have fired beside it."""
    (found,) = [one for one in findings(changes, driver, **wanted) if one.id == f"preflight.{rule}"]
    return found


def next_kernel(**changes: Any) -> dict[str, Any]:
    """Facts of a host whose next kernel is another one, without module or headers unless changed."""
    new = {**RUNNING, "release": NEW_KERNEL, "running": False, "next": True, "headers": False, "modules": []}
    return {"driver.kernels": [{**RUNNING, "next": False}, {**new, **changes}]}


class TestVersions:
    def test_all_three_versions_and_the_cause_are_said(self) -> None:
        finding = only("driver_versions", REPLACED, PREINSTALLED)
        assert "loaded 580.159.03, on disk 580.159.04, library 580.159.04" in finding.what
        assert "changed by /usr/bin/unattended-upgrade at 2026-11-24T06:50:54" in finding.what
        assert finding.blocks

    def test_a_reboot_heals_where_the_next_kernels_module_is_the_librarys(self) -> None:
        finding = only("driver_versions", REPLACED, PREINSTALLED)
        assert finding.remedy == "systemctl reboot"
        assert finding.what.endswith("; a reboot heals it")
        assert (finding.observed["reboot_heals"], finding.observed["in_use"]) == (True, False)

    def test_a_reboot_does_not_heal_where_the_module_on_disk_is_the_old_one(self) -> None:
        facts = {**REPLACED, "driver.kernels.0.modules.0.version": "580.159.03"}
        finding = only("driver_versions", facts, PREINSTALLED)
        assert finding.what.endswith("; a reboot alone does not heal it")
        assert not finding.observed["reboot_heals"]
        remedy = finding.remedy
        assert "a reboot alone does not help" in remedy
        assert remedy.startswith(
            "dkms install nvidia/580.159.04 -k 6.1.0-28-amd64 --force && systemctl reboot"
        )

    def test_whoever_is_still_running_is_named(self) -> None:
        job = {
            "pid": 1496,
            "command": "python3",
            "user": "alice",
            "devices": ["/dev/nvidia0"],
            "kind": "work",
        }
        finding = only("driver_versions", {**REPLACED, "driver.holders": [job]}, PREINSTALLED)
        assert "after these are done: python3 (pid 1496, user alice) uses GPU 0" in finding.remedy
        assert finding.observed["in_use"]
        unknown = only("driver_versions", {**REPLACED, "driver.holders": None}, PREINSTALLED)
        assert unknown.observed["in_use"], "unknown is not free"

    def test_a_pin_that_is_not_what_is_installed_is_said(self) -> None:
        pinned = {"source": "nvidia", "version": "580.159.03"}
        finding = only("driver_versions", REPLACED, pinned)
        assert "wanted is 580.159.03" in finding.what
        assert not finding.blocks  # the driver task puts it right

    def test_no_driver_loaded_is_no_disagreement(self) -> None:
        assert findings({"driver.loaded": None}, NVIDIA) == []


class TestMixedBranches:
    def test_branches_broken_packages_hold_and_both_sources_are_named(self) -> None:
        finding = only("mixed_branches", MIXED, PREINSTALLED)
        assert finding.observed == {"branches": [550, 580], "states": BROKEN}
        assert "550 and 580 are mixed" in finding.what
        assert "nvidia-settings (half-installed, reinst-required)" in finding.what
        assert "on hold: libnvidia-compute-550, nvidia-fabricmanager-550;" in finding.what
        assert "linux-modules-nvidia-580-open-6.1.0-28-amd64 and nvidia-dkms-580-open" in finding.what
        assert finding.remedy == (
            "dpkg --configure -a && apt-get purge --allow-change-held-packages libnvidia-compute-550"
        )

    def test_an_interrupted_transaction_of_fleets_own_does_not_stop_its_resume(self) -> None:
        assert not only("mixed_branches", MIXED, NVIDIA).blocks

    def test_names_without_a_branch_are_told_by_their_version(self) -> None:
        installed = {"libcuda1": "580.159.03-1", "libnvidia-ml1": "535.261.03-1~deb12u1"}
        assert "535 and 580" in only("mixed_branches", {"packages.installed": installed}).what

    def test_a_package_that_only_leads_to_the_next_branch_is_of_that_branch(self) -> None:
        installed = {
            "nvidia-driver-545": "580.159.03-0ubuntu1",
            "libnvidia-compute-580": "580.159.03-0ubuntu1",
        }
        found = findings({"packages.installed": installed, "packages.held": list(installed)})
        assert found == []


class TestFabricManager:
    def test_full_versions_are_compared(self) -> None:
        facts = {"driver.fabric_manager": {"version": "580.126.09", "active": False}}
        finding = only("fabric_manager", facts, PREINSTALLED)
        assert "fabric manager 580.126.09 beside driver 580.159.03" in finding.what
        assert finding.blocks
        assert finding.remedy == (
            "apt-get install --allow-change-held-packages 'nvidia-fabricmanager=580.159.03*'"
            " 'libnvidia-nscq=580.159.03*' && systemctl enable --now nvidia-fabricmanager"
        )

    def test_one_that_runs_is_not_restarted_under_a_loaded_driver(self) -> None:
        facts = {"driver.fabric_manager": {"version": "580.159.04", "active": True}, "packages.held": []}
        remedy = only("fabric_manager", facts, PREINSTALLED).remedy
        assert "--allow-downgrades" in remedy
        assert remedy.endswith("&& systemctl reboot")

    @pytest.mark.parametrize(
        ("manager", "words"),
        [
            ({"version": None, "active": False}, "there is no fabric manager"),
            ({"version": "580.159.03", "active": False}, "is not running"),
        ],
    )
    def test_absent_or_stopped(self, manager: dict[str, Any], words: str) -> None:
        assert words in only("fabric_manager", {"driver.fabric_manager": manager}, NVIDIA).what

    def test_without_nvswitches_none_is_wanted(self) -> None:
        facts = {"nvswitches": [], "driver.fabric_manager": {"version": None, "active": False}}
        assert findings(facts, PREINSTALLED) == []

    def test_a_bare_host_lacks_nothing_yet(self) -> None:
        bare = {"driver.loaded": None, "driver.fabric_manager": {"version": None, "active": False}}
        assert findings(bare, NVIDIA) == []


class TestHolds:
    def test_an_upgrade_may_replace_what_nobody_holds(self) -> None:
        installed = {
            "libcuda1": "580.159.03-1",
            "unattended-upgrades": "2.9.1+nmu3",
            "nvidia-modprobe": "580.159.03-1",
        }
        finding = only("driver_hold", {"packages.installed": installed, "packages.held": []})
        assert finding.what.startswith("unattended-upgrades may replace the driver")
        assert finding.remedy == "apt-mark hold libcuda1"

    @pytest.mark.parametrize("driver", [PREINSTALLED, {"source": "nvidia", "version": "580.159.03"}])
    def test_what_was_upgraded_under_the_loaded_driver_lacks_its_hold_too(
        self, driver: dict[str, Any]
    ) -> None:
        facts = {**REPLACED, "packages.installed": {"libnvidia-ml1": "580.159.04-1"}, "packages.held": []}
        assert only("driver_hold", facts, driver).remedy == "apt-mark hold libnvidia-ml1"

    def test_nothing_is_said_where_the_driver_task_replaces_and_holds_it(self) -> None:
        assert findings({"packages.held": []}, {"source": "nvidia", "branch": "590"}) == []

    def test_a_hold_of_others_stops_a_driver_that_must_change(self) -> None:
        facts = {**HELD, "packages.held_by_fleet": ["docker.io"]}
        finding = only("foreign_hold", facts, {"source": "nvidia", "branch": "590"})
        assert (finding.observed, finding.blocks) == (["libcuda1"], True)
        assert finding.remedy.endswith("apt-mark unhold libcuda1")

    def test_it_is_only_told_of_where_nothing_changes(self) -> None:
        facts = {**HELD, "packages.held_by_fleet": []}
        finding = only("foreign_hold", facts, NVIDIA)
        assert (finding.observed, finding.blocks) == (["libcuda1", "docker.io"], False)

    def test_a_preinstalled_driver_may_be_held_by_whom_it_may(self) -> None:
        finding = only("foreign_hold", {**HELD, "packages.held_by_fleet": []}, PREINSTALLED)
        assert finding.observed == ["docker.io"]

    def test_the_toolkits_hold(self) -> None:
        facts = {"packages.held": ["libnvidia-container1"], "packages.held_by_fleet": []}
        finding = only("foreign_hold", facts, container_toolkit={"version": "1.19.1"})
        assert (finding.observed, finding.blocks) == (["libnvidia-container1"], True)
        same = only("foreign_hold", facts, container_toolkit={"version": "1.18.2-1"})
        assert not same.blocks

    def test_fleets_own_holds_and_unknown_ones_say_nothing(self) -> None:
        held = healthy_gpu_facts()["packages"]["held"]
        assert findings({"packages.held_by_fleet": held}, {"source": "nvidia", "branch": "590"}) == []
        assert findings({"packages.held_by_fleet": None}, {"source": "nvidia", "branch": "590"}) == []


class TestNextBoot:
    @pytest.mark.parametrize(("driver", "stops"), [(PREINSTALLED, True), (NVIDIA, False), ({}, False)])
    def test_no_headers_stop_where_nobody_would_install_them(
        self, driver: dict[str, Any], stops: bool
    ) -> None:
        finding = only("next_kernel", next_kernel(), driver)
        assert finding.blocks is stops
        assert f"{NEW_KERNEL} boots next and has no headers" in finding.what
        assert finding.remedy.endswith(f"apt-get install linux-headers-{NEW_KERNEL}")

    def test_headers_without_a_module_are_a_warning(self) -> None:
        finding = only("next_kernel", next_kernel(headers=True), PREINSTALLED)
        assert (finding.blocks, finding.remedy) == (False, f"dkms autoinstall -k {NEW_KERNEL}")
        assert findings(next_kernel(headers=True), NVIDIA) == []

    def test_a_module_is_enough(self) -> None:
        assert findings(next_kernel(modules=RUNNING["modules"]), PREINSTALLED) == []

    def test_modules_that_would_be_gone(self) -> None:
        missing = ["nvidia_peermem", "nvidia_fs", "mlx5_core", "lustre"]
        ready = {"headers": True, "modules": RUNNING["modules"], "out_of_tree_missing": missing}
        assert only("out_of_tree", next_kernel(**ready), NVIDIA).observed == missing[1:]
        assert only("out_of_tree", next_kernel(**ready), PREINSTALLED).observed == missing

    @pytest.mark.parametrize("bound", ["nouveau", "nova_core"])
    def test_another_driver_on_a_preinstalled_host(self, bound: str) -> None:
        facts = {"gpus.0.driver": bound, "driver.nouveau_blocked": False}
        finding = only("nouveau", facts, PREINSTALLED)
        assert finding.blocks
        assert finding.what.startswith(f"{bound} owns 1 of 8 GPUs (0000:1b:00.0): nothing in /etc/modprobe.d")
        assert "blacklist nova_core" in finding.remedy
        assert findings(facts, NVIDIA) == []  # the driver task forbids it

    def test_another_driver_although_forbidden_names_the_old_initramfs(self) -> None:
        facts = {
            "gpus.0.driver": "nouveau",
            "driver.kernels.0.initramfs.older_than": ["/etc/modprobe.d/nvidia-blacklists-nouveau.conf"],
        }
        finding = only("nouveau", facts, NVIDIA)
        assert "is older than /etc/modprobe.d/nvidia-blacklists-nouveau.conf" in finding.what
        assert finding.remedy == "update-initramfs -u -k 6.1.0-28-amd64 && systemctl reboot"

    def test_the_initramfs_of_the_next_kernel_counts_too(self) -> None:
        old = {
            "path": f"/boot/initrd.img-{NEW_KERNEL}",
            "exists": True,
            "older_than": ["/etc/modprobe.d/n.conf"],
        }
        facts = next_kernel(modules=RUNNING["modules"], initramfs=old)
        assert only("initramfs", facts).remedy == f"update-initramfs -u -k {NEW_KERNEL}"
        assert findings({**facts, "driver.loaded": None}, NVIDIA) == []  # the driver task rebuilds it


class TestRunfile:
    def test_its_own_program_removes_it(self) -> None:
        found = {"present": True, "version": "570.124.06", "evidence": "/usr/bin/nvidia-uninstall"}
        finding = only("runfile_driver", {"driver.runfile": found}, NVIDIA)
        assert finding.blocks
        assert "nvidia-uninstall --silent" in finding.remedy

    def test_without_that_program_the_runfile_does(self) -> None:
        found = {"present": True, "version": "570.124.06", "evidence": "/var/log/nvidia-installer.log"}
        remedy = only("runfile_driver", {"driver.runfile": found}, NVIDIA).remedy
        assert "sh NVIDIA-Linux-x86_64-570.124.06.run --uninstall --silent" in remedy

    def test_without_either_its_installer_does(self) -> None:
        found = {"present": True, "version": "570.124.06", "evidence": "/usr/bin/nvidia-installer"}
        remedy = only("runfile_driver", {"driver.runfile": found}, NVIDIA).remedy
        assert "nvidia-installer --uninstall --silent" in remedy

    def test_a_preinstalled_driver_may_come_from_one(self) -> None:
        found = {"present": True, "version": "580.159.03", "evidence": "/usr/bin/nvidia-uninstall"}
        assert findings({"driver.runfile": found}, PREINSTALLED) == []


def test_a_metapackage_that_is_not_held_cannot_go_alone() -> None:
    """fleet holds the parts; a metapackage of an installation by hand depends on them in their version."""
    facts = healthy_gpu_facts()
    facts["packages"]["installed"].update(
        {"nvidia-driver": "580.159.03-1", "cuda-drivers-580": "580.159.03-1"}
    )
    facts["packages"]["held"] = [*holds({**facts, "packages": {**facts["packages"], "held": []}})[1]]
    assert not {"nvidia-driver", "nvidia-open", "cuda-drivers-580"} & set(facts["packages"]["held"])
    assert holds(facts)[1] == ()
    facts["packages"]["held"].remove("libcuda1")
    assert holds(facts)[1] == ("libcuda1",)
