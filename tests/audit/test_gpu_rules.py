"""Is there a driver for these GPUs, would the kernel take it, is there room, who is in the way?"""

from __future__ import annotations

from typing import Any

import pytest

from fleet.audit.findings import Finding, Severity
from fleet.audit.rules import evaluate
from tests.facts import healthy_gpu_facts

H100, T4, L40S, RTX_5090, GTX_1080_TI, K80 = "2330", "1eb8", "26b9", "2b85", "1b06", "102d"
UNLOADED = {"driver.loaded": None}
OWN_BOOT = {"path": "/boot", "mount": "/boot", "free_bytes": 90_000_000, "free_inodes": 60_000}
JOB = {
    "pid": 40335, "command": "python", "uid": 1000, "user": "anna", "container_id": "0123456789ab",
    "unit": None, "devices": ["/dev/nvidia0"], "kind": "work",
}  # fmt: skip


def gpu(device: str, number: int = 0) -> dict[str, Any]:
    """A GPU as facts list it, with nothing bound to it."""
    return {
        "address": f"0000:{16 + number:02x}:00.0", "vendor_id": "10de", "device_id": device,
        "subsystem_vendor_id": "10de", "subsystem_id": "1234", "class": "0302", "driver": None,
        "numa_node": 0, "uuid": None, "name": None, "minor": None,
    }  # fmt: skip


def host(*devices: str, **changes: Any) -> dict[str, Any]:
    """A host with these GPUs and no driver loaded; changes by dotted path with ``__`` for a dot."""
    gpus = [gpu(device, number) for number, device in enumerate(devices)]
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return healthy_gpu_facts({"gpus": gpus, "nvswitches": [], **UNLOADED, **dotted})


def findings(facts: dict[str, Any], **driver: Any) -> list[Finding]:
    return evaluate("preflight", facts, {"driver": driver} if driver else {})


def ids(facts: dict[str, Any], **driver: Any) -> list[str]:
    return [finding.id for finding in findings(facts, **driver)]


@pytest.mark.parametrize("path", ["gpus", "driver"])
def test_unknown_gpus_or_driver_stop_a_host_that_is_to_get_one(path: str) -> None:
    facts = healthy_gpu_facts({path: None, f"{path}_reason": "error"})
    assert [(one.id, one.severity) for one in findings(facts, source="nvidia")] == [
        ("preflight.gpus", Severity.ERROR)
    ]
    assert findings(facts) == []


class TestBranch:
    @pytest.mark.parametrize(
        ("device", "driver", "fine"),
        [
            (H100, {"version": "580.159.03"}, True),
            (H100, {"branch": "535"}, True),
            (H100, {"branch": "510"}, False),
            (RTX_5090, {"branch": "550"}, False),
            (RTX_5090, {"version": "580.159.03"}, True),
            (GTX_1080_TI, {"version": "580.159.03"}, True),
            (GTX_1080_TI, {"version": "590.48.01"}, False),
            (K80, {"branch": "470"}, True),
            (K80, {"branch": "535"}, False),
            (T4, {"branch": "auto"}, True),
            (T4, {"version": "2:580.159.03-1"}, True),
        ],
    )
    def test_which_branch_serves_which_gpu(self, device: str, driver: dict[str, str], fine: bool) -> None:
        refused = [one for one in findings(host(device), source="nvidia", **driver) if one.blocks]
        assert [one.id for one in refused] == ([] if fine else ["preflight.gpu_branch"])

    def test_the_remedy_names_a_branch_that_serves_every_gpu(self) -> None:
        (finding,) = findings(host(GTX_1080_TI, T4), source="nvidia", version="590.48.01")
        assert "580 is the last branch for Pascal" in finding.what
        assert finding.remedy == 'set nvidia_driver_branch: "580"'

    def test_a_value_nobody_verified_is_called_so(self) -> None:
        (finding,) = findings(host(T4), source="nvidia", branch="390")
        assert "not verified: first_branch" in finding.what

    def test_a_card_the_branch_does_not_list_is_a_warning(self) -> None:
        (finding,) = findings(host(L40S), source="nvidia", version="525.60.13")
        assert (finding.id, finding.severity) == ("preflight.gpu_branch", Severity.WARNING)
        assert "is not listed for 525.60.13; NVIDIA supports it from 535.104.05 on" in finding.what

    def test_a_gpu_outside_the_catalogue_is_said_and_not_refused(self) -> None:
        (finding,) = findings(host("0fff"), source="nvidia", version="580.159.03")
        assert (finding.id, finding.severity) == ("preflight.gpu_branch", Severity.WARNING)
        assert "10de:0fff (0000:10:00.0) is not in the catalogue" in finding.what

    def test_a_preinstalled_driver_is_judged_by_what_is_loaded(self) -> None:
        loaded = {"version": "590.48.01", "flavour": "open", "architecture": "x86_64"}
        facts = host(GTX_1080_TI, driver__loaded=loaded)
        refused = [one for one in findings(facts, source="preinstalled") if one.id == "preflight.gpu_branch"]
        assert [one.remedy for one in refused] == [
            'set nvidia_driver_source: nvidia and nvidia_driver_branch: "580"'
        ]

    def test_several_of_a_kind_are_one_finding(self) -> None:
        (finding,) = findings(host(K80, K80, K80), source="nvidia", branch="535")
        assert "(0000:10:00.0 and 2 more)" in finding.what


class TestFlavour:
    @pytest.mark.parametrize(
        ("device", "modules", "branch", "fine"),
        [
            (H100, "open", "580", True),
            (H100, "proprietary", "580", True),
            (RTX_5090, "proprietary", "580", False),
            (GTX_1080_TI, "open", "580", False),
            (T4, "open", "580", True),
            (T4, "open", "470", False),
            (RTX_5090, "auto", "580", True),
        ],
    )
    def test_which_flavour_runs_which_gpu(self, device: str, modules: str, branch: str, fine: bool) -> None:
        found = ids(host(device), source="nvidia", modules=modules, branch=branch)
        assert found == ([] if fine else ["preflight.gpu_flavour"])


class TestMixedGpus:
    @pytest.mark.parametrize("driver", [{}, {"version": "580.159.03"}, {"modules": "open"}])
    def test_no_flavour_for_both(self, driver: dict[str, str]) -> None:
        (finding,) = findings(host(GTX_1080_TI, RTX_5090), source="nvidia", **driver)
        assert finding.id == "preflight.mixed_gpus"
        assert "GTX 1080 Ti (0000:10:00.0) takes up to branch 580, proprietary modules only" in finding.what
        assert "RTX 5090 (0000:11:00.0) takes branch 570 and newer, open modules only" in finding.what

    def test_no_branch_for_both(self) -> None:
        (finding,) = findings(host(H100, K80), source="nvidia")
        assert (finding.id, finding.blocks) == ("preflight.mixed_gpus", True)

    def test_cards_that_go_together(self) -> None:
        assert ids(host(H100, T4, RTX_5090), source="nvidia") == []
        assert ids(host(GTX_1080_TI, H100), source="nvidia", branch="580") == []

    def test_a_card_that_belongs_to_a_virtual_machine_does_not_count(self) -> None:
        handed_on = {"gpus.1.driver": "vfio-pci"}
        facts = healthy_gpu_facts(
            {"gpus": [gpu(GTX_1080_TI), gpu(RTX_5090, 1)], "nvswitches": [], **UNLOADED, **handed_on}
        )
        assert ids(facts, source="nvidia") == []

    def test_it_is_nobodys_business_without_a_driver_wanted(self) -> None:
        assert ids(host(GTX_1080_TI, RTX_5090)) == []


class TestSecureBoot:
    def state(self, **changes: Any) -> dict[str, Any]:
        key = {"signing_key": "/var/lib/dkms/mok.pub", "signing_key_enrolled": False}
        enforced = {"enforcing": True, "detail": "SecureBoot enabled", "enrolment_pending": False, **key}
        return {"secure_boot": {**enforced, **changes}}

    def test_no_key_is_made_and_imported(self) -> None:
        (finding,) = findings(host(H100, **self.state(signing_key=None)), source="nvidia")
        assert finding.id == "preflight.secure_boot_key"
        assert "openssl req -new -x509" in finding.remedy
        assert "mokutil --import /var/lib/dkms/mok.pub" in finding.remedy

    def test_ubuntu_has_a_key_of_its_own(self) -> None:
        facts = host(H100, **self.state(signing_key=None), os__id="ubuntu", os__version_id="22.04")
        (finding,) = findings(facts, source="nvidia")
        assert finding.remedy.startswith("update-secureboot-policy --new-key && mokutil --import ")

    def test_an_import_that_waits_needs_the_console(self) -> None:
        (finding,) = findings(host(H100, **self.state(enrolment_pending=True)), source="distribution")
        assert finding.blocks
        assert "needs console on next boot" in finding.what

    @pytest.mark.parametrize("changes", [{"enforcing": None}, {"signing_key_enrolled": None}])
    def test_unknown_fails_closed_where_a_driver_is_to_be_built(self, changes: dict[str, None]) -> None:
        facts = host(H100, **self.state(**changes))
        (finding,) = findings(facts, source="nvidia")
        assert (finding.observed, finding.blocks) == (None, True)
        assert ("efivarfs" if "enforcing" in changes else "mokutil --test-key") in finding.remedy
        assert ids(facts, source="preinstalled") == []
        assert ids(facts) == []

    def test_an_enrolled_key_is_enough(self) -> None:
        assert ids(host(H100, **self.state(signing_key_enrolled=True)), source="nvidia") == []
        assert ids(host(H100, **self.state(enforcing=False)), source="nvidia") == []

    def test_a_driver_that_is_loaded_was_taken(self) -> None:
        facts = healthy_gpu_facts({f"secure_boot.{k}": v for k, v in self.state()["secure_boot"].items()})
        assert ids(facts, source="nvidia", version="580.159.03") == []

    def test_a_request_that_waits_is_never_unnoticed(self) -> None:
        (finding,) = findings(healthy_gpu_facts({"secure_boot.enrolment_pending": True}))
        assert (finding.id, finding.severity) == ("preflight.secure_boot_key", Severity.WARNING)


class TestRoom:
    def test_a_driver_that_is_there_needs_none(self) -> None:
        full = {"paths.boot": OWN_BOOT, "disks.0.free_bytes": 1_000_000_000}
        assert ids(healthy_gpu_facts(full), source="nvidia", branch="580") == []
        assert ids(healthy_gpu_facts({**full, **UNLOADED})) == []

    def test_what_lies_together_counts_together(self) -> None:
        disks = [{"mount": mount, "free_bytes": 2_600_000_000} for mount in ("/", "/var")]
        assert ids(host(H100, disks=disks), source="nvidia") == []
        (finding,) = findings(host(H100, disks=disks[:1]), source="nvidia")
        assert (
            "/ has 2.6 GB free; a driver needs 4.5 GB in /usr, /var/lib/dkms, /var/cache/apt" in finding.what
        )

    def test_unknown_room_fails_closed(self) -> None:
        unknown = {"disks": [], "paths__boot": {"path": "/boot", "mount": "/boot", "free_bytes": None}}
        found = findings(host(H100, **unknown), source="nvidia")
        assert {one.id for one in found} == {"preflight.boot_room", "preflight.driver_room"}
        assert all(one.observed is None and one.blocks for one in found)

    def test_a_full_root_is_told_apart_from_a_full_store(self) -> None:
        disks = [
            {"mount": "/", "free_bytes": 100_000_000, "free_inodes": 1_000_000},
            {"mount": "/var/lib/docker", "free_bytes": 900_000_000_000, "free_inodes": 1_000_000},
        ]
        missing = {"disks": disks, "engine.responding": False}
        (finding,) = evaluate("preflight", healthy_gpu_facts(missing), {})
        assert (finding.id, finding.blocks) == ("preflight.root_full", True)

    def test_a_converged_host_stays_so_however_full_it_is(self) -> None:
        (finding,) = evaluate("preflight", healthy_gpu_facts({"disks.0.free_bytes": 100_000_000}), {})
        assert (finding.id, finding.blocks) == ("preflight.root_full", False)


class TestUsers:
    def test_a_job_on_a_host_that_is_as_wanted_is_no_finding(self) -> None:
        facts = healthy_gpu_facts({"driver.holders": [JOB]})
        assert ids(facts, source="nvidia", version="580.159.03") == []
        assert ids(facts, source="preinstalled") == []
        assert ids(facts) == []

    def test_a_job_under_another_driver_is_named_and_does_not_stop_the_rest(self) -> None:
        facts = healthy_gpu_facts({"driver.holders": [JOB]})
        (finding,) = findings(facts, source="nvidia", branch="590")
        assert (finding.id, finding.severity) == ("preflight.gpu_users", Severity.WARNING)
        assert "python (pid 40335, user anna, container 0123456789ab) uses GPU 0" in finding.what
        assert finding.what.endswith("; replacing driver 580.159.03 by branch 590 waits for leave")

    def test_another_flavour_of_the_same_version_is_a_change_too(self) -> None:
        facts = healthy_gpu_facts({"driver.holders": [JOB]})
        (finding,) = findings(facts, source="nvidia", version="580.159.03", modules="proprietary")
        assert "by 580.159.03 with proprietary modules" in finding.what

    def test_unknown_users_are_not_none(self) -> None:
        (finding,) = findings(healthy_gpu_facts({"driver.holders": None}), source="nvidia", branch="590")
        assert "who uses the GPUs is not known" in finding.what

    @pytest.mark.parametrize("changes", [{"engine.cgroup_driver": "cgroupfs"}, {"engine.gpu_containers": []}])
    def test_containers_are_safe_without_systemd_or_gpus(self, changes: dict[str, Any]) -> None:
        running = {"engine.gpu_containers": [{"id": "1", "name": "train-17"}]}
        assert ids(healthy_gpu_facts({**running, **changes})) == []


class TestWhatMayStay:
    """The driver task leaves a driver alone that serves; gpu_users fires where it does not."""

    @pytest.mark.parametrize(
        ("device", "loaded", "flavour", "stays"),
        [
            (H100, "580.159.03", "open", True),
            (H100, "535.183.06", "proprietary", True),
            (GTX_1080_TI, "590.48.01", "proprietary", False),
            (RTX_5090, "570.211.01", "proprietary", False),
            (RTX_5090, "570.211.01", "open", True),
            ("0fff", "580.159.03", "open", True),
        ],
    )
    def test_where_neither_version_nor_branch_is_named(
        self, device: str, loaded: str, flavour: str, stays: bool
    ) -> None:
        there = {"version": loaded, "flavour": flavour, "architecture": "x86_64"}
        facts = host(device, driver__holders=[JOB])
        facts["driver"]["loaded"] = there
        assert ("preflight.gpu_users" not in ids(facts, source="nvidia", branch="auto")) is stays


class TestClusters:
    @pytest.mark.parametrize("manager", ["slurmd", "kubelet", "gpu_operator"])
    @pytest.mark.parametrize(
        ("changes", "wanted"),
        [
            ({"engine.present": False, "engine.responding": False}, {}),
            ({"packages.installed": {}}, {}),
            ({}, {"image_digest": "sha256:" + "a" * 64}),
            ({}, {"driver": {"source": "nvidia", "version": "580.159.04"}}),
            ({}, {"driver": {"source": "nvidia", "modules": "proprietary"}}),
            ({"driver.library_version": "580.159.04"}, {"driver": {"source": "nvidia"}}),
            ({}, {"container_toolkit": {"version": "1.19.1"}}),
            ({"container_toolkit.version": None}, {"container_toolkit": {"version": None, "mode": "auto"}}),
        ],
    )
    def test_a_cluster_managers_host_that_lacks_something_waits_for_leave(
        self, manager: str, changes: dict[str, Any], wanted: dict[str, Any]
    ) -> None:
        found = evaluate("preflight", healthy_gpu_facts({f"{manager}.active": True, **changes}), wanted)
        (finding,) = [one for one in found if one.id == f"preflight.{manager}"]
        assert (finding.blocks, finding.needs_leave) == (True, True)

    @pytest.mark.parametrize("manager", ["slurmd", "kubelet", "gpu_operator"])
    def test_one_that_has_everything_stays_converged(self, manager: str) -> None:
        wanted = {
            "source": "distribution",
            "driver": {"source": "nvidia", "version": "580.159.03-1", "modules": "open"},
            "container_toolkit": {"version": "1.18.2-1"},
        }
        (finding,) = evaluate("preflight", healthy_gpu_facts({f"{manager}.active": True}), wanted)
        assert (finding.id, finding.severity) == (f"preflight.{manager}", Severity.INFO)
