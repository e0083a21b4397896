"""The best image of a fleet: one for all, else as few as may be, and who gets none."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.audit.compatibility.best_image import best, candidates
from fleet.audit.compatibility.options import Options
from fleet.audit.compatibility.subject import Subject
from fleet.audit.compatibility.verdict import judge
from fleet.catalogue.catalogue import load

OPTIONS = Options()


def host(gpu: Any, driver: str = "580.159.03", **more: Any) -> Subject:
    return Subject.from_question(gpu=gpu, driver=driver, **more)


def test_one_image_for_all_is_the_newest_that_runs_everywhere() -> None:
    fleet = {"a": host("T4"), "b": host("RTX 5090"), "c": host("H100 PCIe", "570.172.08")}
    found = best(fleet, OPTIONS)
    assert found.one is not None
    assert found.groups == ((found.one, ("a", "b", "c")),)
    assert all(
        judge(one, found.one, OPTIONS).status in ("runs", "runs_with_warnings") for one in fleet.values()
    )
    newer = [
        one
        for one in load().images.all
        if one.torch and one.origin == "catalogue" and one.flavour == "runtime"
    ]
    for image in newer:
        if _key(image) > _key(found.one):
            assert not all(
                judge(one, image, OPTIONS).status in ("runs", "runs_with_warnings") for one in fleet.values()
            )


@pytest.mark.parametrize("where", ["container", "host"])
@pytest.mark.parametrize(
    "gpu", ["GTX 1080 Ti", "V100-PCIE-16GB", "T4", "A100-SXM4-80GB", "RTX 4090", "RTX 5090"]
)
@pytest.mark.parametrize("driver", ["515.105.01", "535.183.06", "570.172.08", "580.159.03", "620.70.06"])
def test_nothing_newer_with_code_for_the_gpu_runs(gpu: str, driver: str, where: Any) -> None:
    """Held against every image of the catalogue, one by one."""
    subject, options = host(gpu, driver, os="debian-12"), Options(where=where)
    chosen = best({"a": subject}, options).one
    verdicts = {image: judge(subject, image, options) for image in candidates("runtime", load())}
    running = [image for image, one in verdicts.items() if one.status in ("runs", "runs_with_warnings")]
    coded = [
        image for image in running if "audit.image.ptx" not in {one.id for one in verdicts[image].findings}
    ]
    assert chosen == next(iter(coded or running), None)


def _key(image: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    from fleet.catalogue.versions import release

    return release(image.torch).numbers, release(image.cuda).numbers


def test_pascal_and_blackwell_get_an_image_each_and_both_in_one_host_is_refused() -> None:
    fleet = {
        "old": host("GTX 1080 Ti"),
        "new": host("RTX 5090"),
        "both": host(["GTX 1080 Ti", "RTX 5090"]),
    }
    found = best(fleet, OPTIONS)
    assert found.one is None
    assert [names for _, names in found.groups] == [("new",), ("old",)]
    (new, _), (old, _) = found.groups
    assert "12.0" in (new.arch_list or ())
    assert "6.1" in (old.arch_list or ()) or "6.0" in (old.arch_list or ())
    assert list(found.refused) == ["both"]
    sentence = found.refused["both"]
    assert "1080 Ti" in sentence
    assert "5090" in sentence
    assert "\n" not in sentence


def test_an_image_that_only_ptx_makes_run_is_not_chosen_where_another_has_code() -> None:
    image = best({"new": host("RTX 5090")}, OPTIONS).one
    assert image is not None
    assert "12.0" in (image.arch_list or ())


def test_hosts_of_a_kind_are_judged_once_and_all_of_them_are_named() -> None:
    fleet = {f"gpu{number:04}": host("T4") for number in range(500)} | {
        "old": host("GTX 1080 Ti", "470.256.02")
    }
    found = best(fleet, OPTIONS)
    assert sum(len(names) for _, names in found.groups) == 501


def test_development_images_where_these_are_asked_for() -> None:
    image = best({"a": host("T4")}, OPTIONS, flavour="devel").one
    assert image is not None
    assert image.reference.endswith("-devel")
