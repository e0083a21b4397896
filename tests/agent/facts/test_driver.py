"""The driver's versions in memory, on disk and in the library are read apart, whatever state they are in."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fleet.agent import facts
from fleet.agent.facts import driver
from fleet.agent.process import Result

from .elf import module
from .test_facts_document import check

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build  (root@builder)\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Thu Oct  6 21:38:55 UTC 2022\n"
COMPILER = "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14) \n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPEN, ("580.159.03", "open", "x86_64")),
        (CLOSED, ("535.309.01", "proprietary", "x86_64")),
        # Without a builder or a date; the compiler's version is not the driver's.
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build\n",
            ("595.71.05", "open", "x86_64"),
        ),
        # The words in another order, and fewer spaces.
        (
            "NVRM version: 610.12 NVIDIA UNIX Open Kernel Module for aarch64 Release Build\n",
            ("610.12", "open", "aarch64"),
        ),
        # Tegra counts its releases differently: no branch of the data centre's drivers.
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  35.4.1  Release Build  (builder@host)\n",
            ("35.4.1", "open", "aarch64"),
        ),
        # Two numbers, as of old branches.
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.74  Mon Sep 13\n",
            ("470.74", "proprietary", "x86_64"),
        ),
    ],
)
def test_the_loaded_driver_in_every_wording(text: str, expected: tuple[str, str, str]) -> None:
    part = driver.parse_version(text + COMPILER)
    assert part == dict(zip(("version", "flavour", "architecture"), expected, strict=True))


def test_a_text_without_a_version_names_no_driver() -> None:
    assert driver.parse_version("NVRM version: NVIDIA UNIX\n" + COMPILER) is None
    assert driver.parse_version("") is None


@pytest.fixture
def machine(host: Any) -> Any:
    """A host that boots one kernel, under systemd, with apt."""
    host.write("/proc/sys/kernel/osrelease", "6.1.0-28-amd64\n")
    host.write("/proc/cmdline", "quiet\n")
    host.write("/boot/vmlinuz-6.1.0-28-amd64", "")
    host.write("/run/systemd/system/x", "")
    host.write("/proc/1/cgroup", "0::/init.scope\n")
    host.write("/sys/module/ext4/initstate", "live\n")
    return host


def load(host: Any, name: str, version: str | None, references: int = 0) -> None:
    host.write(f"/sys/module/{name}/initstate", "live\n")
    host.write(f"/sys/module/{name}/refcnt", f"{references}\n")
    if version:
        host.write(f"/sys/module/{name}/version", f"{version}\n")


def library(host: Any, version: str) -> None:
    host.write(f"{LIBRARIES}/libnvidia-ml.so.{version}", "")
    host.link(f"{LIBRARIES}/libnvidia-ml.so.1", f"libnvidia-ml.so.{version}")


def collect(host: Any) -> dict[str, Any]:
    document = facts.collect(host, ["driver"])
    check(document)
    assert document["errors"] == []
    part: dict[str, Any] = document["driver"]
    return part


def test_a_host_without_the_driver(machine: Any) -> None:
    part = collect(machine)
    assert part["loaded"] is None
    assert part["modules"] == {}
    assert part["library_version"] is None
    assert part["holders"] == []
    assert part["dkms"] == []
    assert part["runfile"] == {"present": False, "version": None, "evidence": None}
    assert part["fabric_manager"] == {"version": None, "active": False}
    assert [(one["release"], one["running"], one["next"]) for one in part["kernels"]] == [
        ("6.1.0-28-amd64", True, True)
    ]


def test_three_versions_after_an_upgrade_under_running_jobs_and_who_did_it(machine: Any) -> None:
    machine.write("/proc/driver/nvidia/version", OPEN + COMPILER)
    load(machine, "nvidia", "580.159.03", 12)
    machine.write(
        "/lib/modules/6.1.0-28-amd64/updates/dkms/nvidia.ko",
        module({"version": "580.165.10", "license": "Dual MIT/GPL"}, signer="DKMS module signing key"),
    )
    library(machine, "580.165.10")
    machine.write(
        "/var/log/apt/history.log",
        "\nStart-Date: 2026-03-24  06:50:54\nCommandline: /usr/bin/unattended-upgrade\n"
        "Upgrade: libnvidia-compute-580:amd64 (580.159.03-0ubuntu1, 580.165.10-0ubuntu1)\n"
        "End-Date: 2026-03-24  06:51:20\n",
    )
    part = collect(machine)
    (kernel,) = part["kernels"]
    (file,) = kernel["modules"]
    versions = (part["loaded"]["version"], file["version"], part["library_version"])
    assert versions == ("580.159.03", "580.165.10", "580.165.10")
    assert (file["flavour"], file["signer"]) == ("open", "DKMS module signing key")
    assert part["changed_by"] == {
        "command": "/usr/bin/unattended-upgrade",
        "at": "2026-03-24T06:50:54",
        "packages": [
            {"name": "libnvidia-compute-580", "before": "580.159.03-0ubuntu1", "after": "580.165.10-0ubuntu1"}
        ],
    }
    library(machine, "580.159.03")
    assert collect(machine)["changed_by"] is None  # nothing to explain


@pytest.mark.parametrize(("taint", "flavour"), [("OE", "open"), ("POE", "proprietary")])
def test_a_module_that_shows_no_version_file_is_known_by_the_kernels_record(
    machine: Any, taint: str, flavour: str
) -> None:
    load(machine, "nvidia", "580.159.03")
    machine.write("/sys/module/nvidia/taint", taint + "\n")
    loaded = collect(machine)["loaded"]
    assert (loaded["version"], loaded["flavour"]) == ("580.159.03", flavour)


def test_the_modules_in_memory_and_their_references(machine: Any) -> None:
    load(machine, "nvidia", "580.159.03", 217)
    load(machine, "nvidia_uvm", "580.159.03", 4)
    load(machine, "nouveau", None, 1)
    load(machine, "nova_core", None)
    machine.write("/sys/module/nvidia_drm/parameters/modeset", "Y\n")  # built in: no module in memory
    modules = collect(machine)["modules"]
    assert sorted(modules) == ["nouveau", "nova_core", "nvidia", "nvidia_uvm"]
    assert modules["nvidia"] == {"version": "580.159.03", "references": 217}
    assert modules["nouveau"] == {"version": None, "version_reason": "not_supported", "references": 1}


def test_the_library_is_found_through_alternatives(machine: Any) -> None:
    machine.write(f"{LIBRARIES}/nvidia/current/libnvidia-ml.so.535.309.01", "")
    machine.link(f"{LIBRARIES}/nvidia/current/libnvidia-ml.so.1", "libnvidia-ml.so.535.309.01")
    machine.link("/etc/alternatives/libnvidia-ml.so.1", f"{LIBRARIES}/nvidia/current/libnvidia-ml.so.1")
    machine.link(f"{LIBRARIES}/libnvidia-ml.so.1", "/etc/alternatives/libnvidia-ml.so.1")
    assert collect(machine)["library_version"] == "535.309.01"


def test_the_library_is_found_where_the_linker_was_told_to_look(machine: Any) -> None:
    machine.write("/etc/ld.so.conf.d/driver.conf", "# ours\n/opt/driver/lib\n")
    machine.write("/opt/driver/lib/libnvidia-ml.so.470.256.02", "")
    machine.link("/opt/driver/lib/libnvidia-ml.so.1", "libnvidia-ml.so.470.256.02")
    assert collect(machine)["library_version"] == "470.256.02"


def test_a_library_whose_name_has_no_full_version_says_why(machine: Any) -> None:
    machine.write(f"{LIBRARIES}/libnvidia-ml.so.1", "")
    part = collect(machine)
    assert (part["library_version"], part["library_version_reason"]) == (None, "not_supported")


def test_the_driver_in_dkms_under_each_of_its_names(machine: Any) -> None:
    for name in ("nvidia-current", "bbswitch"):
        machine.write(f"/usr/src/{name}-1.0/dkms.conf", "")
        machine.link(f"/var/lib/dkms/{name}/1.0/source", f"/usr/src/{name}-1.0")
    machine.link("/var/lib/dkms/lustre/2.15/source", "/usr/src/lustre-2.15")
    part = collect(machine)
    assert [build["module"] for build in part["dkms"]] == ["nvidia-current"]
    assert ["lustre/2.15" in error for error in part["dkms_errors"]] == [True]


@pytest.mark.parametrize(
    ("package", "version", "expected"),
    [
        ("nvidia-fabricmanager", "580.159.03-1", "580.159.03"),
        ("nvidia-fabricmanager-570", "570.211.01-1", "570.211.01"),
        ("nvidia-fabric-manager", "1:570.211.01-1.el9", "570.211.01"),
        ("nvidia-fabricmanager-dev", "580.159.03-1", None),
    ],
)
def test_the_fabric_manager_by_its_package(package: str, version: str, expected: str | None) -> None:
    assert driver.fabric_manager_version({package: version}) == expected


def test_services_are_active_while_their_cgroup_is_there(machine: Any) -> None:
    status = "Package: nvidia-fabricmanager\nStatus: %s\nArchitecture: amd64\nVersion: 580.159.03-1\n"
    machine.write("/var/lib/dpkg/status", status % "install ok installed")
    machine.write("/sys/fs/cgroup/system.slice/nvidia-fabricmanager.service/cgroup.procs", "12\n")
    part = collect(machine)
    assert part["fabric_manager"] == {"version": "580.159.03", "active": True}
    assert part["persistence_daemon"] == {"active": False}
    machine.write("/var/lib/dpkg/status", status % "deinstall ok config-files")
    machine.invalidate()
    assert collect(machine)["fabric_manager"]["version"] is None


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        # A condition on /dev/nvidia* that was not met at boot: neither failed nor well.
        (
            "ActiveState=inactive\nConditionResult=no\nConditionTimestampMonotonic=8123456\n",
            {"active": False, "state": "inactive", "condition": "unmet"},
        ),
        (
            "ActiveState=failed\nConditionResult=yes\nConditionTimestampMonotonic=8123456\n",
            {"active": False, "state": "failed", "condition": "met"},
        ),
        # Never to be started: systemd shows "no" for what it has not looked at.
        (
            "ActiveState=inactive\nConditionResult=no\nConditionTimestampMonotonic=0\n",
            {"active": False, "state": "inactive", "condition": None},
        ),
    ],
)
def test_why_the_persistence_daemon_is_not_active(
    machine: Any, monkeypatch: pytest.MonkeyPatch, shown: str, expected: dict[str, Any]
) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str], **options: Any) -> Result:
        asked.append(argv)
        return Result(0, shown)

    monkeypatch.setattr(machine, "run", run)
    machine.write("/usr/lib/systemd/system/nvidia-persistenced.service", "[Unit]\n")
    assert collect(machine)["persistence_daemon"] == {"active": False}  # no driver is loaded
    load(machine, "nvidia", "580.159.03")
    assert collect(machine)["persistence_daemon"] == expected
    assert [(argv[0], argv[-1]) for argv in asked] == [("systemctl", "nvidia-persistenced.service")]
    machine.write("/sys/fs/cgroup/system.slice/nvidia-persistenced.service/cgroup.procs", "12\n")
    assert collect(machine)["persistence_daemon"] == {"active": True}
    assert len(asked) == 1  # one that is active costs no process


class TestRunFile:
    def test_an_uninstaller_that_no_package_owns(self, machine: Any) -> None:
        machine.write("/usr/bin/nvidia-uninstall", "")
        machine.write(
            "/var/log/nvidia-installer.log", "nvidia-installer log file\ninstaller version: 550.163.01\n"
        )
        part = collect(machine)["runfile"]
        assert part == {"present": True, "version": "550.163.01", "evidence": "/usr/bin/nvidia-uninstall"}

    def test_an_uninstaller_of_a_package_is_none(self, machine: Any) -> None:
        machine.write("/usr/bin/nvidia-uninstall", "")
        machine.write("/var/lib/dpkg/info/nvidia-tools.list", "/.\n/usr/bin/nvidia-uninstall\n")
        assert not collect(machine)["runfile"]["present"]

    def test_a_library_without_an_owner_beside_the_installers_log(self, machine: Any) -> None:
        library(machine, "550.163.01")
        machine.write(
            "/var/lib/nvidia/log", "550.163.01\nNVIDIA Accelerated Graphics Driver for Linux-x86_64\n"
        )
        part = collect(machine)["runfile"]
        assert (part["present"], part["version"]) == (True, "550.163.01")
        assert "no package owns" in part["evidence"]

    def test_a_log_is_no_evidence_once_packages_own_the_library(self, machine: Any) -> None:
        library(machine, "580.159.03")
        machine.write("/var/lib/nvidia/log", "550.163.01\n")
        machine.write(
            "/var/lib/dpkg/info/libnvidia-ml1:amd64.list",
            f"/.\n{LIBRARIES}/libnvidia-ml.so.580.159.03\n",
        )
        assert not collect(machine)["runfile"]["present"]

    def test_a_version_that_was_not_logged_is_null(self, machine: Any) -> None:
        machine.write("/usr/bin/nvidia-uninstall", "")
        part = collect(machine)["runfile"]
        assert (part["version"], part["version_reason"]) == (None, "not_supported")


def test_where_dnf_rules_versions_come_from_the_packages(machine: Any, monkeypatch: Any) -> None:
    from fleet.agent.package_manager import dnf

    installed = {"nvidia-fabricmanager": "580.159.03-1", "nvidia-container-toolkit": "1.18.2-1"}
    monkeypatch.setattr(dnf, "watched", lambda host, names, prefixes: installed)
    machine.write("/usr/bin/dnf", "").chmod(0o755)
    document = facts.collect(machine, ["packages", "driver", "container_toolkit"])
    check(document)
    assert document["driver"]["fabric_manager"]["version"] == "580.159.03"
    assert document["container_toolkit"]["version"] == "1.18.2"


def test_old_files_are_not_taken_for_new_ones(machine: Any) -> None:
    image = machine.write("/boot/initrd.img-6.1.0-28-amd64", "")
    older = machine.write("/etc/modprobe.d/a.conf", "blacklist nouveau\n")
    newer = machine.write("/etc/modprobe.d/b.conf", "blacklist nova-core\n")
    for path, moment in ((older, 100), (image, 200), (newer, 300)):
        os.utime(path, (moment, moment))
    part = collect(machine)
    assert part["nouveau_blocked"]
    assert part["kernels"][0]["initramfs"] == {
        "path": "/boot/initrd.img-6.1.0-28-amd64",
        "exists": True,
        "older_than": ["/etc/modprobe.d/b.conf"],
    }


MOUNTED = "/usr/local/nvidia/lib64"


def test_a_library_mounted_into_a_container_is_found(machine: Any) -> None:
    machine.write(f"{MOUNTED}/libnvidia-ml.so.580.159.04", "")
    machine.link(f"{MOUNTED}/libnvidia-ml.so.1", "libnvidia-ml.so.580.159.04")
    assert collect(machine)["library_version"] == "580.159.04"


def test_a_mounted_library_gives_way_to_one_where_the_linker_looks(machine: Any) -> None:
    machine.link(f"{MOUNTED}/libnvidia-ml.so.1", "libnvidia-ml.so.470.1")
    machine.write(f"{MOUNTED}/libnvidia-ml.so.470.1", "")
    library(machine, "580.159.03")
    assert collect(machine)["library_version"] == "580.159.03"
