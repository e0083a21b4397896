"""What rules know of a host, out of its facts."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.audit.compatibility.fits import code_for
from fleet.audit.compatibility.observe import program, version_within
from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.subject import ABSENT, NOTHING, Program, subject_of
from fleet.audit.compatibility.verdict import judge
from fleet.audit.findings import Severity
from fleet.catalogue.catalogue import load
from fleet.catalogue.versions import driver_version, release
from tests.facts import healthy_facts, healthy_gpu_facts

INSTALLED: dict[str, str] = healthy_gpu_facts()["packages"]["installed"]


def severities(changes: dict[str, Any], rule: str) -> list[Severity]:
    found = judge(subject_of(healthy_gpu_facts(changes)), None, Options())
    return [one.severity for one in found.findings if one.id == rule]


def test_the_healthy_host() -> None:
    subject = subject_of(healthy_gpu_facts())
    (gpus,) = subject.products
    assert (gpus.id, len(gpus.addresses)) == ("h100-sxm5-80gb", 8)
    assert (subject.driver, subject.modules) == (driver_version("580.159.03"), "open")
    assert subject.fabric_manager == subject.disk == subject.library == subject.driver
    assert subject.branches == (580,)
    assert subject.loose == ()
    assert subject.toolkit == release("1.18.2")
    assert subject.cdi == (driver_version("580.159.03"),)
    assert isinstance(subject.engine, Program)
    assert subject.engine.distribution
    assert subject.reasons == ()


def test_a_host_without_gpus_is_not_asked_for_what_goes_with_them() -> None:
    subject = subject_of(healthy_facts())
    assert subject.products == ()
    assert not subject.has_gpus
    assert judge(subject, None, Options()).status == "runs"


def test_gpus_that_belong_to_virtual_machines_are_not_the_hosts() -> None:
    facts = healthy_gpu_facts({f"gpus.{number}.driver": "vfio-pci" for number in range(8)})
    assert subject_of(facts).products == ()


def test_nothing_is_not_the_same_as_not_known() -> None:
    none = {"container_toolkit.version": None}
    assert subject_of(healthy_gpu_facts(none)).toolkit is NOTHING
    unread = {**none, "container_toolkit.version_reason": "error"}
    assert subject_of(healthy_gpu_facts(unread)).toolkit is None
    assert subject_of(healthy_gpu_facts(unread)).why("toolkit") == "reading it failed"
    assert subject_of(healthy_gpu_facts({"driver.loaded": None})).driver is NOTHING
    assert subject_of(healthy_gpu_facts({"driver": None, "driver_reason": "error"})).driver is None
    assert subject_of(healthy_gpu_facts({"engine.present": False})).engine is NOTHING


def test_which_runc_is_inside_containerd_io_is_not_said() -> None:
    docker = {"docker-ce": "5:29.7.2-1~debian.12~bookworm", "containerd.io": "2.2.1-1~debian.12~bookworm"}
    facts = healthy_gpu_facts({"packages.installed": docker, "engine.version": "29.7.2"})
    subject = subject_of(facts)
    assert subject.runc is ABSENT
    assert isinstance(subject.engine, Program)
    assert not subject.engine.distribution


@pytest.mark.parametrize(
    ("text", "version", "distribution"),
    [
        ("29.7.2", "29.7.2", False),
        ("24.0", "24.0.0", False),
        ("20.10.24+dfsg1", "20.10.24", True),
        ("27.5.1-0ubuntu3~24.04.2", "27.5.1", True),
        ("5:27.5.1-1~debian.12~bookworm", "27.5.1", False),
        ("1.1.5+ds1-1+deb12u1", "1.1.5", True),
    ],
)
def test_versions_of_programs(text: str, version: str, distribution: bool) -> None:
    found = program(text)
    assert found is not None
    assert (found.version, found.distribution) == (release(version), distribution)


def test_what_is_no_version() -> None:
    assert version_within("new") is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"driver.library_version": "580.178.04"}, [Severity.ERROR]),
        ({"driver.kernels.0.modules.0.version": "580.178.04"}, [Severity.ERROR]),
        (
            {"packages.installed": {**INSTALLED, "libnvidia-compute-550": "550.163.01-0ubuntu1"}},
            [Severity.WARNING],
        ),
        ({"packages.installed": {"libnvidia-ml1": "570.211.01-1"}}, [Severity.ERROR]),
        ({"driver.library_version": None}, []),
    ],
)
def test_a_split_driver(changes: dict[str, Any], expected: list[Severity]) -> None:
    assert severities(changes, "audit.driver.split") == expected


def test_no_hold_at_all_is_not_a_split_one() -> None:
    assert severities({"packages.held": []}, "audit.driver.split_holds") == []
    assert severities({"packages.held": ["libcuda1"]}, "audit.driver.split_holds") == [Severity.WARNING]


def test_whether_there_are_switches_must_be_known_where_there_may_be() -> None:
    unread = {"nvswitches": None, "nvswitches_reason": "permission"}
    assert severities(unread, "audit.facts.unknown") == [Severity.UNKNOWN]
    h100_pcie = {f"gpus.{number}.device_id": "2331" for number in range(8)}
    subject = subject_of(healthy_gpu_facts({**unread, **h100_pcie}))
    assert [gpu.id for gpu in subject.products] == ["h100-pcie"]
    assert "audit.facts.unknown" not in [one.id for one in judge(subject, None, Options()).findings]


def test_a_stopped_fabric_manager_is_as_good_as_none() -> None:
    assert severities({"driver.fabric_manager.active": False}, "audit.fabric_manager.absent") == [
        Severity.ERROR
    ]


def test_every_gpu_of_a_product_has_its_finding() -> None:
    found = judge(subject_of(healthy_gpu_facts({"driver.loaded.version": "520.61.05"})), None, Options())
    places = [one.gpu for one in found.findings if one.id == "audit.driver.floor_gpu"]
    assert places == [gpu["address"] for gpu in healthy_gpu_facts()["gpus"]]


def test_official_images_have_nothing_for_gpus_on_aarch64_and_their_wheels_have() -> None:
    image = load().images.find("pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime")
    gpu = load().gpus.find("gh200-96")
    assert code_for(image, gpu) == "code"
    assert code_for(image, gpu, "aarch64") == "none"
    assert code_for(image, gpu, "aarch64", wheel=True) == "code"
    arm = subject_of(healthy_gpu_facts({"kernel.architecture": "aarch64"}))
    devel = load().images.find("pytorch/pytorch:2.9.1-cuda13.0-cudnn9-devel")
    said = {
        (one.what.partition(":")[0], one.severity)
        for each in (image, devel)
        for one in judge(arm, each, Options()).findings
        if one.id == "audit.image.arch"
    }
    assert said == {
        ("this image has torch for the CPU alone on aarch64", Severity.ERROR),
        ("this image is for x86-64 alone, and the host is aarch64", Severity.ERROR),
    }
