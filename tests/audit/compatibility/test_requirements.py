"""NVIDIA_REQUIRE_*: expressions as nvidia-container-cli reads them, and who evaluates them on a host."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.requirements import Properties, Unreadable, holds
from fleet.audit.compatibility.starting import way
from fleet.audit.compatibility.subject import Subject, subject_of
from fleet.audit.compatibility.verdict import judge
from fleet.audit.findings import Finding
from fleet.catalogue.catalogue import load
from fleet.catalogue.images import Image
from tests.facts import healthy_gpu_facts

T4 = Properties(cuda="12.4", driver="550.163.01", arch="7.5", brand="tesla")
BY_RUNTIME = {"engine.version": "28.5.2", "engine.default_runtime": "nvidia"}


@pytest.mark.parametrize(
    ("expression", "true"),
    [
        ("", True),
        ("cuda>=12.4", True),
        ("cuda>=12.8", False),
        ("cuda>=12", True),
        ("cuda=12.4.0", True),
        ("cuda!=12.4", False),
        ("cuda>12.4", False),
        ("cuda<=12.4", True),
        ("cuda>=9.10", True),
        ("driver>=550,driver<551", True),
        ("driver>=470,driver<471", False),
        ("driver<550", False),
        ("cuda>=12.8 brand=tesla,driver>=550,driver<551", True),
        ("cuda>=12.8 brand=geforce,driver>=550,driver<551", False),
        ("cuda>=12.8  brand=Tesla,,driver>=550", True),
        ("brand!=geforce,arch>=7.0", True),
        ("CUDA>=12.4", True),
        ("arch>=8.0", False),
        ("cuda>=12.4 nonsense", True),
        ("cuda>=12.8,nonsense cuda>=12", True),
    ],
)
def test_spaces_are_alternatives_and_commas_must_all_hold(expression: str, true: bool) -> None:
    assert holds(expression, T4) is true


@pytest.mark.parametrize(
    "expression",
    [
        "nonsense",
        "cuda",
        "cuda>=",
        ">=12",
        "cuda=>12",
        "cuda>=12.x",
        "brand<tesla",
        "memory>=16",
        "cuda>=12.8 x",
    ],
)
def test_what_nobody_can_evaluate_is_an_error_where_it_is_reached(expression: str) -> None:
    with pytest.raises(Unreadable):
        holds(expression, T4)


def test_what_depends_on_something_unknown_is_unknown() -> None:
    nobody = replace(T4, brand=None)
    assert holds("cuda>=12.8 brand=tesla,driver>=550", nobody) is None
    assert holds("cuda>=12.8 brand=tesla,driver>=560", nobody) is False
    assert holds("cuda>=12.4 brand=tesla", nobody) is True
    assert holds("cuda>=12.4", replace(T4, cuda=None)) is None


def required(image: Image, **question: Any) -> list[Finding]:
    subject = Subject.from_question(**{"toolkit": "1.20.0", **question})
    found = judge(subject, image, Options(on=date(2026, 11, 30))).findings
    return [one for one in found if one.id in ("audit.image.require_cuda", "audit.cdi.requirements")]


def own(**facts: Any) -> Image:
    image = load().images.look_up("pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime")
    assert isinstance(image, Image)
    return replace(image, **facts)


def test_the_hook_refuses_and_the_way_out_is_named() -> None:
    (refused,) = required(own(require_cuda="driver>=590"), gpu="T4", driver="580.95.05", docker="28.5.2")
    assert refused.severity.value == "error"
    assert "driver>=590" in refused.what
    assert "NVIDIA_DISABLE_REQUIRE=1" in refused.remedy


def test_every_variable_must_hold_and_each_is_read_in_full() -> None:
    question = {"gpu": "T4", "driver": "580.95.05", "docker": "28.5.2"}
    assert required(own(require_cuda="cuda>=12.6", require=("arch>=7.0",)), **question) == []
    assert len(required(own(require_cuda="cuda>=12.6", require=("arch>=8.0",)), **question)) == 1
    (broken,) = required(own(require_cuda="cuda>=12.6,rubbish"), **question)
    assert "'rubbish', which cannot be evaluated" in broken.what


def test_where_the_brand_decides_it_is_not_known_which_it_is() -> None:
    image = own(require_cuda="cuda>=99 brand=tesla")
    (one,) = required(image, gpu="A100-SXM4-80GB", driver="580.95.05", docker="28.5.2")
    assert (one.severity.value, "depends on the brand of A100" in one.what) == ("unknown", True)
    (sure,) = required(image, gpu="RTX 4090", driver="580.95.05", docker="28.5.2")
    assert sure.severity.value == "error"


def test_each_gpu_of_a_host_must_meet_it() -> None:
    (one,) = required(
        own(require_cuda="arch>=8.0"), gpu=["A100-SXM4-80GB", "T4"], driver="580.95.05", docker="28.5.2"
    )
    assert "T4" in one.what


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"engine.version": "28.5.2"}, "hook"),
        ({"engine.version": "29.1.5", "engine.cdi": True}, "hook"),
        ({"engine.version": "29.2.0", "engine.cdi": True}, "cdi"),
        ({"engine.version": "29.2.0", "engine.cdi": False}, "hook"),
        ({"engine.version": "29.2.0", "container_toolkit.cdi.specifications": []}, "hook"),
        ({"engine.version": "28.5.2", "container_toolkit.runtime_hook": None}, None),
        ({"engine.version": "28.5.2", "container_toolkit.mode": "cdi"}, None),
        (BY_RUNTIME, "cdi"),
        ({**BY_RUNTIME, "container_toolkit.version": "1.17.8"}, "hook"),
        ({**BY_RUNTIME, "container_toolkit.mode": "legacy"}, "hook"),
        ({**BY_RUNTIME, "container_toolkit.mode": "csv"}, None),
        ({"container_toolkit.version": None}, None),
        ({"engine.present": False}, None),
    ],
)  # fmt: skip
def test_what_brings_gpus_into_a_container(changes: dict[str, Any], kind: str | None) -> None:
    found = way(subject_of(healthy_gpu_facts(changes)))
    assert (found.kind if found else None) == kind


def test_dockers_own_containerd_is_told_from_the_distributions() -> None:
    def containerd(**installed: str) -> Any:
        facts = healthy_gpu_facts(
            {"packages.installed": {k.replace("_", "."): v for k, v in installed.items()}}
        )
        return subject_of(facts).containerd

    upstream = containerd(containerd_io="2.3.4-1~ubuntu.24.04~noble")
    assert (upstream.version.text, upstream.distribution) == ("2.3.4", False)
    assert containerd(containerd="1.7.12-0ubuntu4.1").distribution
    assert containerd() is None
