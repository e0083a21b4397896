"""Which code a build of torch has for which GPU, and which GPUs a cuDNN serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.catalogue.catalogue import load
from fleet.catalogue.torch import TorchBuild, TorchBuilds, variant_of
from fleet.core.errors import InputError

FACTS = Path(__file__).parents[3] / "shared/facts/torch_builds.yaml"


@pytest.fixture(scope="module")
def builds() -> TorchBuilds:
    return load().torch


@pytest.fixture(scope="module")
def facts() -> Any:
    if not FACTS.exists():
        pytest.skip("no ../shared here")
    return yaml.safe_load(FACTS.read_text(encoding="utf-8"))


def build(builds: TorchBuilds, torch: str, variant: str) -> TorchBuild:
    found = builds.find(torch, variant)
    assert found is not None
    return found


def test_the_variants_of_2_7_serve_different_gpus(builds: TorchBuilds) -> None:
    lists = {one.variant: one.arch_list for one in builds.of("2.7.0")}
    assert lists == {
        "cu118": ("3.7", "5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0"),
        "cu126": ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0"),
        "cu128": ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0"),
    }
    assert [build(builds, "2.7.0", one).ptx for one in lists] == [None, None, "12.0"]


@pytest.mark.parametrize(
    ("torch", "has"),
    [("2.7.1", False), ("2.8.0", True), ("2.9.1", True), ("2.10.0", True), ("2.11.0", False)],
)
def test_volta_came_back_to_cu128_and_went_again(builds: TorchBuilds, torch: str, has: bool) -> None:
    assert ("7.0" in build(builds, torch, "cu128").arch_list) is has


def test_a_release_of_a_minor_has_its_own_triton(builds: TorchBuilds) -> None:
    assert build(builds, "2.3.0", "cu121").triton == "2.3.0"
    assert build(builds, "2.3.1", "cu121").triton == "2.3.1"
    assert build(builds, "1.13.1", "cu117").triton is None


def test_what_was_not_read_is_marked(builds: TorchBuilds) -> None:
    assert build(builds, "2.15.0", "cu132").provenance.caveat("arch_list") == "not verified: arch_list"
    assert build(builds, "2.8.0", "cu128").provenance.caveat("arch_list", "ptx") == ""
    unsure = build(builds, "2.8.0", "cu129")
    assert (unsure.ptx, unsure.provenance.caveat("ptx")) == (None, "not verified: ptx")


def test_there_is_no_build_that_nobody_made(builds: TorchBuilds) -> None:
    assert builds.find("2.8.0", "cu124") is None
    assert builds.find("2.16.0", "cu132") is None
    assert builds.of("2.16.0") == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2.7.0+cu128", "2.7-cu128"),
        ("2.7.1-cu118", "2.7-cu118"),
        ("2.7.0", "2.7-cu126"),
        ("2.14", "2.14-cu130"),
    ],
)
def test_a_build_by_the_name_torch_gives_itself(builds: TorchBuilds, text: str, found: str) -> None:
    assert builds.named(text).entry == found


@pytest.mark.parametrize(
    ("text", "hint"), [("2.7.0+cu124", "2.7.0-cu118"), ("2.7.0-cuda12.8", "2.7.0-cu118"), ("newest", "")]
)
def test_an_unknown_build_names_near_ones(builds: TorchBuilds, text: str, hint: str) -> None:
    with pytest.raises(InputError, match=r"there is no build of torch") as caught:
        builds.named(text)
    assert hint in caught.value.what


def test_every_build_of_the_facts_is_here(builds: TorchBuilds, facts: Any) -> None:
    wanted = {(torch, one["variant"]): one for one in facts["builds"] for torch in one["versions"]}
    assert {(one.torch, one.variant) for one in builds.all} == set(wanted)
    for one in builds.all:
        said = wanted[one.torch, one.variant]
        assert list(one.arch_list) == said["arch_list_x86_64"], one.entry
        assert list(one.arch_list_aarch64) == said.get("arch_list_aarch64", []), one.entry
        assert one.cudnn is None or one.cudnn in said["cudnn"], one.entry
        assert one.nccl == (said["nccl"].split()[0] if "nccl" in said else None), one.entry
        assert one.provenance.vouches("arch_list") is said["verified"], one.entry


def test_the_driver_of_every_build_follows_from_its_cuda(builds: TorchBuilds, facts: Any) -> None:
    """The first release of the minor decides: wheels have a later one, whose driver NVIDIA's table puts higher."""
    cuda = load().cuda
    for one in facts["builds"]:
        first = cuda.first_of(one["cuda"])
        assert first is not None
        assert str(first.native_driver) == one["min_driver_native"], one["variant"]
        assert str(first.minor_version_floor) == one["min_driver_minor_version_compat"], one["variant"]


def test_variants_are_named_after_the_minor() -> None:
    assert [variant_of(one) for one in ("11.8", "12.8.1", "13.0")] == ["cu118", "cu128", "cu130"]


@pytest.mark.parametrize(
    ("cudnn", "serves", "not_this"),
    [
        ("8.5.0.96", "3.7", "3.0"),
        ("8.9.2.26", "5.0", "3.7"),
        ("9.1.0.70", "6.1", "3.7"),
        ("9.10.2.21", "7.0", "3.7"),
        ("9.17.1.4", "7.5", "7.0"),
    ],
)
def test_which_gpus_a_cudnn_has_code_for(cudnn: str, serves: str, not_this: str) -> None:
    span = load().cudnn.find(cudnn)
    assert span.serves(serves)
    assert not span.serves(not_this)


def test_a_cudnn_between_two_that_were_read_is_not_guessed() -> None:
    assert load().cudnn.support("8.7.0.84") is None
    with pytest.raises(InputError, match=r"no cuDNN 8\.7\.0\.84 .* has 8\.0 to 8\.5, "):
        load().cudnn.find("8.7.0.84")


def test_the_newest_cudnn_rests_on_an_inference() -> None:
    assert load().cudnn.find("9.11").provenance.caveat("min_compute_capability")
    assert not load().cudnn.find("9.10").provenance.caveat("min_compute_capability")
