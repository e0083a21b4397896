"""What is said of a name of an image: known, impossible, not held, or no name at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.catalogue.catalogue import load
from fleet.catalogue.images import Image, Images, NoSuchTag, NotInCatalogue, asked
from fleet.core.errors import InputError

FACTS = Path(__file__).parents[3] / "shared/facts/torch_builds.yaml"
DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def images() -> Images:
    return load().images


def test_an_official_tag_has_the_code_of_its_build(images: Images) -> None:
    found = images.find("pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime")
    assert (found.torch, found.cuda, found.variant) == ("2.7.0", "12.8", "cu128")
    assert found.arch_list == ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
    assert (found.ptx, found.cudnn, found.flavour) == ("12.0", "9.7.1.26", "runtime")
    assert (found.origin, found.verified, found.digest) == ("catalogue", True, None)


def test_runtime_declares_no_requirement_and_devel_brings_the_compat_package(images: Images) -> None:
    runtime = images.find("pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime")
    devel = images.find("pytorch/pytorch:2.7.0-cuda12.8-cudnn9-devel")
    assert (runtime.require_cuda, runtime.compat_package) == ("", False)
    assert (devel.aarch64, runtime.aarch64, devel.compat_package) == ("absent", "cpu", True)
    assert (devel.require_cuda or "").split()[:2] == ["cuda>=12.8", "brand=unknown,driver>=470,driver<471"]
    assert images.find("pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel").require_cuda is None
    newest = images.find("pytorch/pytorch:2.14.1-cuda13.0-cudnn9-devel")
    assert newest.compat_package is None


@pytest.mark.parametrize("prefix", ["", "docker.io/", "index.docker.io/"])
def test_docker_hub_by_any_name(images: Images, prefix: str) -> None:
    found = images.find(f"{prefix}pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel")
    assert found.reference == "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel"


def test_another_registry_and_a_digest_are_kept(images: Images) -> None:
    name = f"ghcr.io/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel@{DIGEST}"
    found = images.find(name)
    assert (found.reference, found.digest, found.torch) == (name, DIGEST, "2.6.0")
    assert not found.moves


@pytest.mark.parametrize(
    ("tag", "reason", "proposal"),
    [
        ("2.7.0-cuda11.8-cudnn8-runtime", "cudnn_suffix", "2.7.0-cuda11.8-cudnn9-runtime"),
        ("2.7.0-cuda11.8-cudnn8-devel", "cudnn_suffix", "2.7.0-cuda11.8-cudnn9-devel"),
        ("2.4.0-cuda12.1-cudnn8-runtime", "cudnn_suffix", "2.4.0-cuda12.1-cudnn9-runtime"),
        ("2.3.1-cuda11.8-cudnn9-runtime", "cudnn_suffix", "2.3.1-cuda11.8-cudnn8-runtime"),
        ("2.9.0-cuda12.4-cudnn8-runtime", "cudnn_suffix", "2.9.0-cuda12.6-cudnn9-runtime"),
        ("2.16.0-cuda13.2-cudnn8-runtime", "cudnn_suffix", None),
        ("2.8.0-cuda12.4-cudnn9-devel", "cuda_never_built", "2.8.0-cuda12.8-cudnn9-devel"),
        ("2.10.0-cuda11.8-cudnn9-runtime", "cuda_never_built", "2.10.0-cuda12.6-cudnn9-runtime"),
        ("2.10.0-cuda12.9-cudnn9-runtime", "cuda_never_built", "2.10.0-cuda12.8-cudnn9-runtime"),
        ("2.10.0-cuda13.2-cudnn9-runtime", "cuda_never_built", "2.10.0-cuda13.0-cudnn9-runtime"),
        ("2.7.0-cuda12.8.1-cudnn9-runtime", "spelling", "2.7.0-cuda12.8-cudnn9-runtime"),
        ("2.7.0-cuda12.8-cudnn9.7-runtime", "spelling", "2.7.0-cuda12.8-cudnn9-runtime"),
        ("2.7-cuda12.8-cudnn9-runtime", "spelling", "2.7.1-cuda12.8-cudnn9-runtime"),
        ("2.7.0-cuda12.8-cudnn9-base", "spelling", "2.7.0-cuda12.8-cudnn9-runtime"),
    ],
)
def test_a_spelling_that_cannot_exist(images: Images, tag: str, reason: str, proposal: str | None) -> None:
    for prefix in ("pytorch/pytorch", "ghcr.io/pytorch/pytorch"):
        found = images.look_up(f"{prefix}:{tag}")
        assert isinstance(found, NoSuchTag)
        assert found.reason == reason
        assert found.proposal == (f"{prefix}:{proposal}" if proposal else None)
        assert found.why


def test_every_proposal_is_held(images: Images) -> None:
    for torch in images.builds.releases():
        for cuda in ("10.2", "11.8", "12.0", "12.4", "12.8", "13.3"):
            for cudnn in ("8", "9"):
                found = images.look_up(f"pytorch/pytorch:{torch}-cuda{cuda}-cudnn{cudnn}-runtime")
                if isinstance(found, NoSuchTag) and found.proposal is not None:
                    assert images.find(found.proposal).torch == torch


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("pytorch/pytorch:2.4.1-cuda11.8-cudnn9-runtime", "pytorch/pytorch:2.4.1-cuda12.1-cudnn9-runtime"),
        ("pytorch/pytorch:2.7.9-cuda12.8-cudnn9-devel", "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel"),
        ("pytorch/pytorch:2.16.0-cuda13.2-cudnn10-devel", "pytorch/pytorch:2.15.0-cuda13.2-cudnn9-devel"),
        ("pytorch/pytorch:latest", "pytorch/pytorch:2.14.1-cuda13.2-cudnn9-runtime"),
        ("pytorch/pytorch", "pytorch/pytorch:2.14.1-cuda13.2-cudnn9-runtime"),
        (f"pytorch/pytorch@{DIGEST}", "pytorch/pytorch:2.14.1-cuda13.2-cudnn9-runtime"),
        ("nvcr.io/nvidia/pytorch:26.08-py3", "nvcr.io/nvidia/pytorch:26.03-py3"),
    ],
)
def test_what_may_exist_is_not_called_missing(images: Images, name: str, nearest: str) -> None:
    found = images.look_up(name)
    assert isinstance(found, NotInCatalogue)
    assert found.nearest[0] == nearest


def test_latest_moves_and_a_digest_does_not(images: Images) -> None:
    for name, moves in (("pytorch/pytorch", True), (f"pytorch/pytorch@{DIGEST}", False), ("a/b:1", False)):
        found = images.look_up(name)
        assert isinstance(found, NotInCatalogue)
        assert found.moves is moves
    assert images.look_up("pytorch/pytorch") == images.look_up("docker.io/pytorch/pytorch:latest")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "py torch",
        "PyTorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime",
        "pytorch/pytorch:",
        "pytorch/pytorch:-x",
        "pytorch/pytorch@sha256:12",
        "pytorch/pytorch@",
        "pytorch//pytorch",
        "https://pytorch/pytorch",
        "pytorch/pytorch:2..7-cuda12.8-cudnn9-runtime",
        "pytorch/pytorch:2.7.0-cuda12.x-cudnn9-runtime",
        "pytorch/pytorch:two-cuda12.8-cudnn9-runtime",
        "pytorch/pytorch:2.7.0-cuda12.8-cudnn-runtime",
    ],
)
def test_what_is_no_name_is_bad_input(images: Images, name: str) -> None:
    with pytest.raises(InputError):
        images.look_up(name)


def test_find_says_what_is_wrong_and_what_is_right(images: Images) -> None:
    with pytest.raises(
        InputError, match=r"cuDNN 9.*did you mean pytorch/pytorch:2\.7\.0-cuda11\.8-cudnn9-run"
    ):
        images.find("pytorch/pytorch:2.7.0-cuda11.8-cudnn8-runtime")


def test_conda_images_have_code_for_6_1_and_perhaps_ptx(images: Images) -> None:
    old = images.find("pytorch/pytorch:2.5.1-cuda11.8-cudnn9-runtime")
    assert old.arch_list == ("3.7", "5.0", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "9.0")
    assert (old.ptx, old.unverified) == ("3.7", ("ptx",))
    assert images.find("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime").verified


def test_a_tag_that_nobody_was_seen_to_use_says_so(images: Images) -> None:
    assert images.find("pytorch/pytorch:2.1.2-cuda12.1-cudnn8-runtime").unverified == ("tag",)
    assert images.find("pytorch/pytorch:2.15.0-cuda13.2-cudnn9-runtime").unverified == (
        "tag", "arch_list", "ptx", "cudnn",
    )  # fmt: skip


def test_nvidias_images_say_no_more_than_is_known(images: Images) -> None:
    found = images.find("nvcr.io/nvidia/pytorch:25.08-py3")
    assert (found.origin, found.cuda, found.cuda_release, found.arch_list) == ("ngc", "13.0", "13.0.0", None)
    assert (found.nccl, found.verified, found.compat_package) == ("2.27.7", True, True)
    assert images.find("nvcr.io/nvidia/pytorch:24.06-py3").unverified == ("torch", "cuda")


def test_images_can_be_keys_of_a_cache(images: Images) -> None:
    again = load().images.find("pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime")
    assert len({*images.all, again}) == len(images.all)


@pytest.fixture(scope="module")
def facts() -> Any:
    if not FACTS.exists():
        pytest.skip("no ../shared here")
    return yaml.safe_load(FACTS.read_text(encoding="utf-8"))


def test_every_tag_of_the_facts_is_here_and_as_sure(images: Images, facts: Any) -> None:
    wanted = {row[flavour]: row for row in facts["docker_tags"]["tags"] for flavour in ("runtime", "devel")}
    held = {one.reference: one for one in images.all if one.origin == "catalogue"}
    assert set(held) == set(wanted)
    for name, row in wanted.items():
        assert (held[name].torch, held[name].cuda) == (row["version"], row["cuda"])
        assert ("tag" not in held[name].unverified) is row["verified"], name


def test_every_image_of_nvidias_in_the_facts_is_here(images: Images, facts: Any) -> None:
    wanted = {row["image"]: row for row in facts["ngc_images"]}
    held = {one.reference: one for one in images.all if one.origin == "ngc"}
    assert set(held) == set(wanted)
    for name, row in wanted.items():
        assert held[name].torch == row["torch"]
        assert held[name].verified is row["verified"], name
        first = load().cuda.first_of(held[name].cuda or "")
        assert first is not None
        assert str(first.native_driver) == row["min_driver_native"], name


def test_an_image_that_was_asked_of_itself() -> None:
    found = asked(f"lab/train:3@{DIGEST}", "inspected", "asked on host gpu-1", torch="2.7.0", cuda="12.8")
    assert isinstance(found, Image)
    assert (found.digest, found.torch, found.provenance.source("torch")) == (
        DIGEST,
        "2.7.0",
        "asked on host gpu-1",
    )
    with pytest.raises(InputError):
        asked("Lab/Train", "given", "said")
