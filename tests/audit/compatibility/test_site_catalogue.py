"""A site's own catalogue reaches every rule, remedy and best image, and the shipped one is judged by as before."""

from __future__ import annotations

import ast
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from fleet.audit import compatibility
from fleet.audit.compatibility.best_image import best
from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.remedy import smallest
from fleet.audit.compatibility.subject import Program, Subject, subject_of
from fleet.audit.compatibility.verdict import Verdict, judge
from fleet.audit.compatibility.whatif import Change, changed
from fleet.catalogue.catalogue import Catalogue, load
from fleet.catalogue.versions import release
from fleet.cli.main import main
from fleet.core.errors import InputError
from tests.facts import healthy_gpu_facts

OPTIONS = Options(on=date(2026, 11, 30))
CU130 = "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime"
OWN = "registry.lab.example/train:1@sha256:" + "0" * 64

FILES = {
    "gpus": """
sources: {lab: measured in the lab}
gpus:
  - id: prototype
    name: Prototype
    nvml_name: NVIDIA Prototype
    pci: ["abcd"]
    architecture: hopper
    compute_capability: "9.0"
    segment: datacenter
    form_factor: PCIe
    first_listed: "640.10.01"
    open_kernel_modules: required
    source: lab
    verified: true
""",
    "drivers": """
sources: {lab: given to the lab}
branches:
  - id: "640"
    type: long_term
    first_release: "2026-11-20"
    end_of_life: "2031-01"
    latest: "640.20.02"
    max_cuda: "13.6"
    kernel_modules: [open]
    versions: ["640.10.01", "640.20.02"]
    security_fixes:
      - {version: "640.20.02", date: "2026-11-25", bulletin: "9999", cves: 2, max_cvss: 7.8}
    source: lab
    verified: true
""",
    "cuda": """
sources: {lab: given to the lab}
toolkits:
  - {id: "13.6.0", native_driver: "640.20.02", native_basis: table, branch: 640, source: lab, verified: true}
""",
    "images": """
sources: {lab: built in the lab}
images:
  - id: registry.lab.example/train:1
    origin: given
    cuda: "13.6"
    arch_list: ["9.0"]
    require_cuda: cuda>=13.6
    source: lab
    verified: true
""",
    "docker": """
sources: {lab: found in the lab}
floors:
  - {id: engine, version: "29.9.9", source: lab, verified: true}
""",
    "container_toolkit": """
sources: {lab: found in the lab}
floors:
  - {id: container_toolkit, version: "1.99.9", source: lab, verified: true}
""",
    "advisories": """
sources: {lab: found in the lab}
advisories:
  - {id: CVE-2026-99991, component: engine, fixed_in: ["29.9.9"], source: lab, verified: true}
  - {id: CVE-2026-99992, component: runc, fixed_in: ["1.9.9"], source: lab, verified: true}
  - {id: CVE-2026-99993, component: containerd, fixed_in: ["2.9.9"], source: lab, verified: true}
  - {id: CVE-2026-99994, component: container_toolkit, fixed_in: ["1.99.9"], source: lab, verified: true}
""",
}


def write(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Catalogue:
    return load(write(tmp_path))


def said(found: Verdict) -> dict[str, str]:
    return {one.id: one.what for one in found.findings}


def prototype(site: Catalogue, driver: str, **more: str) -> Subject:
    return Subject.from_question(gpu="Prototype", driver=driver, catalogue=site, **more)


def test_its_gpus_branches_and_cuda_are_judged_by(site: Catalogue) -> None:
    image = site.images.look_up(OWN)
    assert said(judge(prototype(site, "640.20.02"), image, OPTIONS)) == {}
    older = said(judge(prototype(site, "640.10.01"), image, OPTIONS))
    assert "native is 640.20.02" in older["audit.driver.minor_version"]
    assert "9999" in older["audit.driver.security"]
    early = said(judge(prototype(site, "620.70.06"), image, OPTIONS))
    assert "NVIDIA supports it from 640.10.01 on" in early["audit.driver.floor_gpu"]
    with pytest.raises(InputError):
        Subject.from_question(gpu="Prototype", driver="640.20.02")
    with pytest.raises(InputError, match="branch 640 comes with open ones alone"):
        prototype(site, "640.20.02", modules="proprietary")


def test_its_gpus_are_known_in_facts(site: Catalogue) -> None:
    facts = healthy_gpu_facts({"gpus.0.device_id": "abcd"})
    assert "Prototype" in [gpu.name for gpu in subject_of(facts, site).products]
    assert "audit.gpu.not_in_catalogue" in said(judge(subject_of(facts), None, OPTIONS))
    assert "audit.gpu.not_in_catalogue" not in said(judge(subject_of(facts, site), None, OPTIONS))


def test_its_requirements_and_advisories_are_judged_by(site: Catalogue) -> None:
    subject = replace(
        prototype(site, "640.20.02", docker="29.1.5", toolkit="1.20.0", runc="1.4.3"),
        containerd=Program(release("2.3.5"), "2.3.5"),
    )
    found = said(judge(subject, site.images.look_up(OWN), OPTIONS))
    names = {
        "audit.docker.security": "99991", "audit.runc.security": "99992", "audit.containerd.security": "99993",
        "audit.toolkit.security": "99994",
    }  # fmt: skip
    assert all(f"CVE-2026-{number}" in found[rule] for rule, number in names.items()), found
    assert "audit.image.require_cuda" not in found
    older = replace(subject, driver=site.drivers.version("620.70.06"))
    assert "cuda>=13.6" in said(judge(older, site.images.look_up(OWN), OPTIONS))["audit.image.require_cuda"]


def test_remedy_what_if_and_best_image_are_of_it(site: Catalogue) -> None:
    subject = prototype(site, "620.70.06")
    remedy = smallest(subject, site.images.look_up(OWN), OPTIONS)
    assert remedy is not None
    assert [step.to for step in remedy.steps] == ["640.20.02"]
    after, image = changed(subject, None, Change.parse([f"driver=640.20.02,image={OWN}"], site))
    assert said(judge(after, image, OPTIONS)) == {}
    chosen = best({"lab": prototype(site, "640.20.02")}, OPTIONS)
    assert chosen.one is not None


def test_a_verdict_by_one_catalogue_is_not_that_by_another(site: Catalogue) -> None:
    image = load().images.look_up(CU130)
    shipped, own = (
        Subject.from_question(gpu="T4", driver="640.20.02", catalogue=one) for one in (load(), site)
    )
    assert shipped != own
    assert "audit.driver.branch_not_in_catalogue" in said(judge(shipped, image, OPTIONS))
    assert "audit.driver.branch_not_in_catalogue" not in said(judge(own, image, OPTIONS))
    again = Subject.from_question(gpu="T4", driver="640.20.02", catalogue=site)
    assert judge(again, image, OPTIONS) is judge(own, image, OPTIONS)


def test_the_command_asks_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "--gpu", "Prototype", "--driver", "640.20.02", "--image", OWN]
    assert main([*words, "--catalogue", str(write(tmp_path))]) == 0
    assert "Prototype, driver 640.20.02: runs" in capsys.readouterr().out
    assert main(words) == 2


def test_no_rule_loads_a_catalogue_of_its_own() -> None:
    """Where a catalogue is loaded all the same it is for a caller that gives none."""
    loading = set()
    for file in Path(str(compatibility.__file__)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "fleet.catalogue.catalogue":
                loading |= {file.name for alias in node.names if alias.name == "load"}
    assert loading == {"subject.py", "whatif.py", "best_image.py"}
