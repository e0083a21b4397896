"""The smallest change: that it is enough, that nothing smaller is, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.remedy import Remedy, smallest
from fleet.audit.compatibility.subject import Subject, subject_of
from fleet.audit.compatibility.verdict import judge
from fleet.audit.compatibility.whatif import changed
from fleet.audit.findings import Severity
from fleet.catalogue.catalogue import load
from tests.facts import health_facts, healthy_gpu_facts

CU128 = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"
OPTIONS = Options()


def remedy(subject: Subject, image: str = CU128, options: Options = OPTIONS) -> Remedy | None:
    return smallest(subject, load().images.look_up(image), options)


def ask(gpu: Any, driver: str | None = None, image: str = CU128, **more: Any) -> Remedy | None:
    return remedy(Subject.from_question(gpu=gpu, driver=driver, **more), image)


def words(found: Remedy | None) -> list[str]:
    assert found is not None
    return [step.words for step in found.steps]


def test_what_runs_needs_no_change() -> None:
    assert ask("RTX 5090", "580.159.03") is None


def test_another_image_comes_before_another_driver() -> None:
    assert words(ask("GTX 1080 Ti", "580.159.03")) == ["image 2.7.0-cuda12.6-cudnn9-runtime"]
    found = ask("GTX 1080 Ti", "580.159.03")
    assert found is not None
    assert found.clears == ("audit.image.arch",)


def test_the_right_tag_is_the_remedy_for_one_that_cannot_exist() -> None:
    assert words(ask("T4", "580.159.03", CU128.replace("cudnn9", "cudnn8"))) == [
        "image 2.7.0-cuda12.8-cudnn9-runtime"
    ]


def test_a_driver_is_changed_where_no_image_helps_to_one_that_serves_every_gpu() -> None:
    """Blackwell needs 570; of what serves it, a branch with long term support is taken, the newest."""
    found = ask("RTX 5090", "550.90.07")
    (step,) = words(found)
    lasting = [one for one in load().drivers.all if one.type == "long_term"]
    newest = lasting[-1]
    assert step == f"driver {newest.latest} (long term support branch until {newest.end_of_life})"
    assert newest.security_floor is None or newest.latest >= newest.security_floor.version


def test_its_own_branch_comes_before_another() -> None:
    facts = health_facts(
        "h100", {"driver.library_version": "580.126.09", "driver.loaded.version": "580.126.09"}
    )
    found = remedy(subject_of(facts))
    assert found is not None
    assert str(found.change.driver).startswith("580.")


def test_no_driver_is_installed_where_there_is_one_to_install() -> None:
    found = ask("GTX 1080 Ti", "none", CU128.replace("12.8", "12.6"))
    (step,) = words(found)
    assert step.startswith("driver 580.")
    assert step.endswith(", proprietary kernel modules")


def test_two_changes_where_one_is_not_enough() -> None:
    """The image has no code for the GPU, and Docker is missing besides; then the container toolkit, too."""
    found = ask("GTX 1080 Ti", "580.159.03", docker="none")
    assert sorted(dict(found.change.items()) if found else ()) == ["docker", "image"]
    assert words(found)[0].startswith("install docker ")
    found = ask("GTX 1080 Ti", "580.159.03", docker="none", toolkit="none")
    assert sorted(dict(found.change.items()) if found else ()) == ["docker", "image", "toolkit"]


def test_a_fabric_manager_left_behind_is_brought_to_the_driver() -> None:
    subject = subject_of(healthy_gpu_facts({"driver.fabric_manager.version": "570.211.01"}))
    assert words(remedy(subject)) == ["nvidia-fabricmanager 580.159.03"]


def test_a_specification_left_behind_is_written_anew() -> None:
    old = {"container_toolkit.cdi.specifications.0.driver_version": "570.211.01"}
    subject = subject_of(healthy_gpu_facts(old))
    bad = {one.id for one in judge(subject, None).findings if one.severity is Severity.ERROR}
    assert bad == {"audit.cdi.stale"}
    assert words(remedy(subject)) == ["nvidia-ctk cdi generate for driver 580.159.03"]


def test_there_is_none_for_gpus_that_no_driver_serves_together() -> None:
    assert ask(["GTX 1080 Ti", "RTX 5090"], "580.159.03") is None


def test_what_comes_with_a_change_is_told() -> None:
    """CUDA 11.8 on driver 515 runs by minor-version compatibility only."""
    found = ask("T4", "515.105.01")
    assert words(found) == ["image 2.7.0-cuda11.8-cudnn9-runtime"]
    assert found is not None
    assert [one.id for one in found.would_break] == ["audit.driver.minor_version"]
    assert found.clears == ("audit.driver.floor_cuda",)


GPUS = ("GTX 1080 Ti", "T4", "V100-PCIE-16GB", "A100-SXM4-80GB", "RTX 4090", "RTX 5090", "K80")
DRIVERS = ("none", "470.256.02", "515.105.01", "535.183.06", "570.172.08", "595.45.04")


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("driver", DRIVERS)
def test_every_remedy_is_enough_and_every_part_of_it_is_needed(gpu: str, driver: str) -> None:
    subject, image = Subject.from_question(gpu=gpu, driver=driver), load().images.look_up(CU128)
    found = smallest(subject, image, OPTIONS)
    before = judge(subject, image, OPTIONS)
    if before.status in ("runs", "runs_with_warnings"):
        assert found is None
        return
    if found is None:
        return
    assert judge(*changed(subject, image, found.change), OPTIONS).status in ("runs", "runs_with_warnings")
    assert set(found.clears) <= {one.id for one in before.findings}
    for name, _ in found.change.items():
        without = replace(found.change, **{name: None})
        assert judge(*changed(subject, image, without), OPTIONS).status in ("does_not_run", "unknown")
