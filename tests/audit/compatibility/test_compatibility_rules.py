"""Every rule of the compatibility audit fires on its known-bad sample; a healthy host runs a fitting image."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.registry import ALL
from fleet.audit.compatibility.rule import FITTING, Asked, AuditRule, Case
from fleet.audit.compatibility.subject import Subject, subject_of
from fleet.audit.compatibility.verdict import Verdict, judge
from fleet.audit.findings import Severity
from fleet.catalogue.catalogue import load
from fleet.catalogue.images import Image
from fleet.core.errors import InputError
from tests.facts import healthy_facts, healthy_gpu_facts, rented_facts

ON = date(2026, 11, 30)
#: Deleting a rule, or renaming one, must be a decision seen here. E: error, U: unknown, W: warning, I: information.
EXPECTED = {
    "audit.driver.absent": "E",
    "audit.driver.floor_cuda": "E",
    "audit.driver.minor_version": "W",
    "audit.driver.forward_compatibility": "W",
    "audit.driver.floor_gpu": "E",
    "audit.driver.ceiling": "E",
    "audit.driver.modules_required_open": "E",
    "audit.driver.modules_impossible_open": "E",
    "audit.driver.branch_not_in_catalogue": "U",
    "audit.driver.end_of_life": "W",
    "audit.driver.security": "W",
    "audit.driver.split": "E",
    "audit.driver.split_holds": "W",
    "audit.driver.next_kernel": "W",
    "audit.driver.operator": "W",
    "audit.image.arch": "E",
    "audit.image.ptx": "W",
    "audit.image.ptx_jit": "E",
    "audit.image.no_such_tag": "E",
    "audit.image.not_in_catalogue": "U",
    "audit.image.no_digest": "W",
    "audit.image.latest": "W",
    "audit.image.cudnn_gpu": "E",
    "audit.image.not_verified": "I",
    "audit.image.differs": "W",
    "audit.toolkit.absent": "E",
    "audit.toolkit.security": "W",
    "audit.toolkit.legacy": "W",
    "audit.toolkit.engine": "E",
    "audit.cdi.requirements": "W",
    "audit.cdi.stale": "E",
    "audit.docker.absent": "E",
    "audit.docker.floor": "E",
    "audit.docker.end_of_life": "W",
    "audit.docker.security": "W",
    "audit.runc.security": "W",
    "audit.containerd.security": "W",
    "audit.image.require_cuda": "E",
    "audit.containers.other": "W",
    "audit.os.end_of_life": "W",
    "audit.os.glibc": "E",
    "audit.fabric_manager.version": "E",
    "audit.fabric_manager.absent": "E",
    "audit.peermem": "W",
    "audit.acs": "W",
    "audit.mixed.host": "W",
    "audit.mixed.job": "W",
    "audit.mixed.impossible": "E",
    "audit.memory.model": "W",
    "audit.gpu.not_in_catalogue": "U",
    "audit.facts.unknown": "U",
}
DIGEST = "@sha256:" + "0" * 64
CU118 = "pytorch/pytorch:2.7.0-cuda11.8-cudnn9-runtime" + DIGEST
CU126 = "pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime" + DIGEST
CU128 = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime" + DIGEST
CU130 = "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime" + DIGEST


def looked_up(reference: str, changes: Mapping[str, Any] | None = None) -> Asked:
    image = load().images.look_up(reference)
    return replace(image, **changes) if changes and isinstance(image, Image) else image


def verdict(image: str | None = None, options: Options | None = None, **question: Any) -> Verdict:
    subject = Subject.from_question(**question)
    return judge(subject, looked_up(image) if image else None, options or Options(on=ON))


def ids(found: Verdict) -> list[str]:
    """Every id but of information."""
    return [one.id for one in found.findings if one.severity is not Severity.INFO]


def bad_case(rule: AuditRule) -> Case:
    bad = rule.known_bad
    return Case(
        subject_of(healthy_gpu_facts(bad.facts)),
        looked_up(bad.image, bad.changes),
        replace(bad.options, on=ON),
    )


def test_exactly_these_rules_are_there() -> None:
    letters = {Severity.ERROR: "E", Severity.UNKNOWN: "U", Severity.WARNING: "W", Severity.INFO: "I"}
    assert {rule.id: letters[rule.severity] for rule in ALL} == EXPECTED
    assert len(ALL) == len(EXPECTED)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_fires_on_its_known_bad_sample(rule: AuditRule) -> None:
    fired = rule.evaluate(bad_case(rule))
    assert fired
    assert {finding.id for finding in fired} == {rule.id}
    assert fired[0].severity is rule.severity
    for finding in fired:
        assert all((finding.what, finding.limit_source, finding.remedy)), finding
        assert "  " not in finding.what
        json.dumps(finding.as_json(), allow_nan=False)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_leaving_a_rule_out_changes_the_verdict_of_its_sample(rule: AuditRule) -> None:
    case = bad_case(rule)
    without = tuple(one for one in ALL if one is not rule)
    whole = judge(case.subject, case.asked, case.options)
    assert rule.id in {one.id for one in whole.findings}
    assert judge(case.subject, case.asked, case.options, without) != whole


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_says_what_is_right_in_a_sentence(rule: AuditRule) -> None:
    assert rule.holds.endswith((".", "``."))
    assert len(rule.holds) < 200


#: What is not of today on the healthy host of the tests.
DATED = {"audit.toolkit.security"}


def test_a_healthy_host_runs_a_fitting_image() -> None:
    found = judge(subject_of(healthy_gpu_facts()), looked_up(FITTING), Options(on=ON))
    assert found.status == "runs_with_warnings"
    assert set(ids(found)) == DATED


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_silent_on_a_host_without_gpus_unless_it_is_of_the_image_or_engine(rule: AuditRule) -> None:
    case = Case(subject_of(healthy_facts()), looked_up(FITTING), Options(on=ON))
    assert [one for one in rule.evaluate(case) if one.severity is not Severity.INFO] == []


def test_what_was_not_asked_is_silent_and_what_could_not_be_read_is_unknown() -> None:
    assert ids(verdict(FITTING, gpu="H100 PCIe", driver="580.159.03")) == []
    for path in ("driver", "engine", "container_toolkit", "gpus"):
        facts = healthy_gpu_facts({path: None, f"{path}_reason": "permission"})
        found = judge(subject_of(facts), looked_up(FITTING), Options(on=ON))
        assert found.status == "unknown", path
        (finding,) = [one for one in found.findings if one.id == "audit.facts.unknown"]
        assert "reading it was not permitted" in finding.what


def test_unknown_may_be_allowed() -> None:
    question = {"gpu": "H100 PCIe", "driver": "605.10"}
    assert verdict(CU130, **question).status == "unknown"
    assert verdict(CU130, Options(allow_unknown=True, on=ON), **question).status == "runs_with_warnings"


@pytest.mark.parametrize(
    ("image", "gpu", "driver", "expected"),
    [
        (CU118, "GTX 1080 Ti", "580.159.03", []),
        (CU126, "GTX 1080 Ti", "580.159.03", []),
        (CU128, "GTX 1080 Ti", "580.159.03", ["audit.image.arch"]),
        (CU130, "GTX 1080 Ti", "595.71.05", [
            "audit.driver.ceiling", "audit.image.arch", "audit.image.cudnn_gpu",
        ]),
        (CU126, "RTX 5090", "580.159.03", ["audit.image.arch"]),
        (CU128, "RTX 5090", "580.159.03", []),
        (CU128, "T4", "535.309.01", ["audit.driver.end_of_life", "audit.driver.minor_version"]),
        (CU130, "T4", "535.309.01", ["audit.driver.floor_cuda", "audit.driver.end_of_life"]),
        (CU118, "K80", "470.256.02", [
            "audit.image.cudnn_gpu", "audit.driver.end_of_life", "audit.driver.minor_version", "audit.driver.security",
        ]),
        (CU118, "L40S", "525.147.05", [
            "audit.driver.floor_gpu", "audit.driver.end_of_life", "audit.driver.security",
        ]),
    ],
)  # fmt: skip
def test_questions(image: str, gpu: str, driver: str, expected: list[str]) -> None:
    assert ids(verdict(image, gpu=gpu, driver=driver)) == expected


def test_native_is_the_first_driver_of_the_minor() -> None:
    """An update of the toolkit (12.8.1) came with a newer driver, but driver API and PTX are those of the minor."""
    assert "audit.driver.minor_version" not in ids(verdict(CU128, gpu="T4", driver="570.86.15"))


@pytest.mark.parametrize(
    ("gpu", "driver", "flavour", "toolkit", "forward"),
    [
        ("A100-PCIE-40GB", "570.211.01", "devel", None, True),
        ("A100-PCIE-40GB", "570.211.01", "devel", "1.17.5", True),
        ("A100-PCIE-40GB", "570.211.01", "devel", "1.17.4", False),
        ("A100-PCIE-40GB", "570.211.01", "devel", "none", False),
        ("A100-PCIE-40GB", "570.211.01", "runtime", None, False),
        ("A100-PCIE-40GB", "550.163.01", "devel", None, False),
        ("RTX 4090", "570.211.01", "devel", None, False),
    ],
)
def test_forward_compatibility(
    gpu: str, driver: str, flavour: str, toolkit: str | None, forward: bool
) -> None:
    found = ids(verdict(CU130.replace("runtime", flavour), gpu=gpu, driver=driver, toolkit=toolkit))
    assert ("audit.driver.forward_compatibility" in found) is forward
    assert ("audit.driver.floor_cuda" in found) is not forward


def test_a_gpu_that_needs_ptx_needs_a_native_driver() -> None:
    newer = looked_up(CU128, {"arch_list": ("8.0",), "ptx": "8.0"})
    for driver, expected in (
        ("570.211.01", "audit.image.ptx"),
        ("550.163.01", "audit.image.ptx_jit"),
        ("515.105.01", "audit.driver.floor_cuda"),
    ):
        found = judge(Subject.from_question("H100 PCIe", driver), newer, Options(on=ON))
        three = {"audit.image.ptx", "audit.image.ptx_jit", "audit.driver.floor_cuda", "audit.image.arch"}
        assert three & set(ids(found)) == {expected}
    old = judge(Subject.from_question("V100-SXM2-16GB", "570.211.01"), newer, Options(on=ON))
    assert "audit.image.arch" in ids(old)


def test_ptx_that_nobody_verified_is_no_promise() -> None:
    """The conda builds for CUDA 11.8 may have PTX that a new GPU could try: that it runs is not known."""
    found = verdict("pytorch/pytorch:2.5.1-cuda11.8-cudnn9-runtime", gpu="RTX 5090", driver="580.159.03")
    (finding,) = [one for one in found.findings if one.id == "audit.image.ptx"]
    assert (finding.severity, found.status) == (Severity.UNKNOWN, "unknown")


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_findings_that_hosts_share_cannot_be_changed(rule: AuditRule) -> None:
    for finding in rule.evaluate(bad_case(rule)):
        assert isinstance(hash(finding), int)
        assert json.loads(json.dumps(finding.as_json())) == finding.as_json()


def test_every_weakness_is_named_by_its_number() -> None:
    found = verdict(gpu="T4", driver="580.178.04", docker="24.0.9", toolkit="1.17.4", runc="1.1.11")
    observed = " ".join(str(one.observed) for one in found.findings)
    for number in ("CVE-2024-41110", "CVE-2026-34040", "CVE-2025-23266", "CVE-2024-21626", "CVE-2025-31133"):
        assert number in observed


def test_a_cudnn_between_two_that_are_known_serves_what_both_serve() -> None:
    """With which release from 8.6 to 8.8 Kepler went was not found."""
    image = "pytorch/pytorch:2.3.1-cuda11.8-cudnn8-runtime" + DIGEST
    assert verdict(image, gpu="K80", driver="470.256.02").status == "unknown"
    assert ids(verdict(image, gpu="GTX 1080 Ti", driver="580.178.04")) == []


def test_modules_that_nobody_named_are_those_that_the_gpu_takes() -> None:
    assert ids(verdict(gpu="RTX 5090", driver="580.159.03")) == []
    assert ids(verdict(gpu="RTX 5090", driver="580.159.03", modules="proprietary")) == [
        "audit.driver.modules_required_open"
    ]
    assert ids(verdict(gpu="GTX 1080 Ti", driver="580.159.03")) == []
    assert ids(verdict(gpu="GTX 1080 Ti", driver="580.159.03", modules="open")) == [
        "audit.driver.modules_impossible_open"
    ]


def test_a_host_whose_gpus_no_driver_serves_is_refused_in_one_sentence() -> None:
    found = verdict(gpu=["GTX 1080 Ti", "RTX 5090"], driver="580.159.03")
    (finding,) = [one for one in found.findings if one.id == "audit.mixed.impossible"]
    assert finding.what.startswith("no driver serves all GPUs of this host: GeForce GTX 1080 Ti takes")
    assert found.status == "does_not_run"


@pytest.mark.parametrize(
    ("docker", "expected"),
    [
        ("29.7.2", []),
        ("29.2.0", ["audit.docker.security"]),
        ("24.0.9", ["audit.docker.end_of_life", "audit.docker.security"]),
        ("19.03.15", ["audit.docker.end_of_life", "audit.docker.security"]),
        ("18.09.9", ["audit.docker.floor", "audit.docker.end_of_life", "audit.docker.security"]),
        ("25.0.17", []),
        ("20.10.24+dfsg1", []),
    ],
)
def test_the_engine(docker: str, expected: list[str]) -> None:
    assert ids(verdict(gpu="T4", driver="580.159.03", docker=docker)) == expected


def test_the_long_term_branch_of_the_engine_ends() -> None:
    later = Options(on=date(2026, 12, 5))
    found = ids(verdict(None, later, gpu="T4", driver="580.159.03", docker="25.0.17"))
    assert found == ["audit.docker.end_of_life", "audit.docker.security"]


@pytest.mark.parametrize(
    ("docker", "toolkit", "hook", "severity"),
    [
        ("29.7.2", "1.20.0", None, None),
        ("24.0.9", "1.18.2", None, None),
        ("24.0.9", "1.19.1", None, Severity.WARNING),
        ("25.0.17", "1.19.1", None, Severity.WARNING),
        ("24.0.9", "1.18.2", False, Severity.ERROR),
        ("25.0.17", "1.19.1", False, Severity.ERROR),
        ("25.0.17", "1.18.2", False, None),
        ("29.7.2", "1.20.0", False, None),
    ],
)
def test_toolkit_against_engine(
    docker: str, toolkit: str, hook: bool | None, severity: Severity | None
) -> None:
    found = verdict(gpu="T4", driver="580.159.03", docker=docker, toolkit=toolkit, hook=hook)
    of_rule = [one.severity for one in found.findings if one.id == "audit.toolkit.engine"]
    assert of_rule == ([severity] if severity else [])


def test_runc_that_only_others_than_docker_are_weak_by_is_fine() -> None:
    assert ids(verdict(gpu="T4", driver="580.159.03", runc="1.4.2")) == []
    assert ids(verdict(gpu="T4", driver="580.159.03", runc="1.1.12")) == ["audit.runc.security"]
    assert ids(verdict(gpu="T4", driver="580.159.03", runc="1.1.5+ds1-1+deb12u1")) == []


@pytest.mark.parametrize(
    "question",
    [
        {"gpu": "RTX 9999"},
        {"driver": "580"},
        {"driver": "five"},
        {"docker": "new"},
        {"toolkit": "x1"},
        {"os": "ubuntu 99.04"},
        {"modules": "closed"},
        {"colour": "green"},
    ],
)
def test_what_is_no_name_or_version_is_bad_input(question: dict[str, str]) -> None:
    with pytest.raises(InputError):
        Subject.from_question(**question)


def test_hosts_that_are_alike_are_one_subject_and_judged_once() -> None:
    """The hosts' own names, numbers and jobs are not in it."""
    other = healthy_gpu_facts({"identity.hostname": "gpu02", "gpus.0.uuid": "GPU-1", "uptime_s": 1.0})
    assert subject_of(other) == subject_of(healthy_gpu_facts())
    first = judge(subject_of(healthy_gpu_facts()), looked_up(FITTING), Options(on=ON))
    assert judge(subject_of(other), looked_up(FITTING), Options(on=ON)) is first


def test_a_driver_that_is_exchanged_takes_its_parts_along() -> None:
    subject = subject_of(healthy_gpu_facts()).with_driver(load().drivers.branch(580).latest)  # type: ignore[union-attr]
    assert set(ids(judge(subject, looked_up(FITTING), Options(on=ON)))) == DATED


def test_a_rented_container_is_judged_too() -> None:
    found = judge(subject_of(rented_facts()), looked_up(FITTING), Options(on=ON))
    assert "audit.toolkit.absent" in ids(found)
    inside = judge(subject_of(rented_facts()), looked_up(FITTING), Options(on=ON, where="host"))
    assert not any(one.startswith(("audit.toolkit", "audit.docker", "audit.cdi")) for one in ids(inside))
