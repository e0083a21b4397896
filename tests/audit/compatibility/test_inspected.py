"""What a container check found in an image makes it known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.audit.compatibility.inspected import (
    CHECK as FROM_CHECK,
)
from fleet.audit.compatibility.inspected import (
    CONFIGURATION,
    NO_CUDA,
    NO_TORCH,
    SILENT,
    Learnt,
    against,
    code,
    cudnn_version,
    image_of,
    inspected,
)
from fleet.catalogue.catalogue import load
from fleet.catalogue.images import Image
from fleet.catalogue.references import Reference

DIGEST = "sha256:" + "a1" * 32
CHECK: dict[str, Any] = {
    "passed": True,
    "reference": "registry.example.net/ml/train:7",
    "digest": DIGEST,
    "versions": {
        "python": "3.11.9",
        "torch": "2.7.0+cu128",
        "cuda": "12.8",
        "cudnn": 90701,
        "nccl": "2.26.2",
        "arch_list": ["sm_75", "sm_90a", "sm_120", "compute_120"],
    },
}


def test_torch_cuda_and_code_are_those_that_torch_named() -> None:
    image = inspected({"container_check": CHECK})
    assert image is not None
    assert (image.origin, image.torch, image.cuda) == ("inspected", "2.7.0", "12.8")
    assert (image.arch_list, image.ptx, image.cudnn) == (("7.5", "9.0a", "12.0"), "12.0", "9.7.1")
    assert image.reference == f"registry.example.net/ml/train:7@{DIGEST}"
    assert image.digest == DIGEST


@pytest.mark.parametrize(
    "check",
    [
        None,
        {**CHECK, "digest": None},
        {**CHECK, "versions": {}},
        {**CHECK, "versions": {**CHECK["versions"], "arch_list": None}},
    ],
)
def test_a_check_that_does_not_tell_makes_nothing_known(check: Any) -> None:
    assert inspected({"container_check": check}) is None


def test_flags_and_numbers() -> None:
    assert code(["sm_70", "compute_70", "compute_90", "else"]) == (("7.0",), "9.0")
    assert code([]) == ((), None)
    assert [cudnn_version(one) for one in (8902, 91900, 0, None)] == ["8.9.2", "9.19.0", None, None]


def versions(**changes: Any) -> dict[str, Any]:
    return {"container_check": {**CHECK, "versions": {**CHECK["versions"], **changes}}}


def test_a_torch_without_cuda_has_no_code_for_any_gpu_and_says_so() -> None:
    image = inspected(versions(torch="2.7.0+cpu", cuda=None, cudnn=None, nccl=None, arch_list=None))
    assert image is not None
    assert (image.torch, image.cuda, image.arch_list, image.note) == ("2.7.0", None, (), NO_CUDA)


def test_an_image_without_torch_says_so_and_nothing_else() -> None:
    image = inspected(versions(torch=None, cuda=None, arch_list=None))
    assert image is not None
    assert (image.torch, image.cuda, image.arch_list, image.note) == (None, None, None, NO_TORCH)


# -- what several sources told ----------------------------------------------------------------------

NAMED = Reference.parse("registry.example.net/ml/train:7")
CONFIGURED = Learnt(
    CONFIGURATION,
    "registry.example.net",
    {
        "torch": "2.7.0", "cuda": "12.4", "cudnn": "9.1.0.70", "require_cuda": "cuda>=12.4", "flavour": "devel",
        "unverified": ["cuda", "cudnn"],
    },
)  # fmt: skip
CHECKED = Learnt(FROM_CHECK, "gpu01", {"torch": "2.7.0", "cuda": "12.8", "arch_list": ["9.0"], "ptx": None})


def test_a_configuration_alone_leaves_the_rest_not_known() -> None:
    image = image_of(NAMED, DIGEST, [CONFIGURED])
    assert (image.origin, image.digest, image.torch, image.cuda) == ("inspected", DIGEST, "2.7.0", "12.4")
    assert (image.arch_list, image.ptx, image.nccl, image.glibc) == (None, None, None, None)
    assert image.unverified == ("cuda", "cudnn")
    assert image.provenance.source("cuda") == "the image's own configuration, by registry.example.net"


@pytest.mark.parametrize("order", [[CONFIGURED, CHECKED], [CHECKED, CONFIGURED]])
def test_torchs_own_word_goes_before_the_configuration(order: list[Learnt]) -> None:
    image = image_of(NAMED, DIGEST, order)
    assert (image.cuda, image.arch_list, image.require_cuda, image.flavour) == (
        "12.8",
        ("9.0",),
        "cuda>=12.4",
        "devel",
    )
    # The system's cuDNN is not what this torch computes with, and torch did not say what is.
    assert (image.cudnn, image.unverified) == (None, ())
    assert image.provenance.source("cuda").endswith("gpu01")
    assert image.provenance.source("require_cuda").endswith("registry.example.net")


def test_a_configuration_that_is_silent_is_told() -> None:
    silent = Learnt(CONFIGURATION, "registry.example.net", {"require_cuda": "", "unverified": []})
    assert image_of(NAMED, DIGEST, [silent]).note == SILENT
    torchless = Learnt(FROM_CHECK, "gpu01", {"python": "3.12.1", "note": NO_TORCH})
    assert image_of(NAMED, DIGEST, [silent, torchless]).note == NO_TORCH


def test_images_are_hashable_whatever_json_made_of_them() -> None:
    assert (
        len({image_of(NAMED, DIGEST, [CONFIGURED, CHECKED]), image_of(NAMED, DIGEST, [CHECKED, CONFIGURED])})
        == 1
    )


# -- against the catalogue --------------------------------------------------------------------------


def held(reference: str = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-devel") -> Image:
    return load().images.find(reference)


def found(**facts: Any) -> Image:
    return image_of(NAMED, DIGEST, [Learnt(CONFIGURATION, "a registry", {"unverified": [], **facts})])


def test_what_the_catalogue_does_not_say_is_filled_in() -> None:
    image = against(held(), found(torch="2.7.0", cuda="12.8", require_cuda="cuda>=12.8", cudnn="9.8.0.87"))
    assert (image.origin, image.differs) == ("catalogue", ())
    assert (image.require_cuda, image.cudnn, image.arch_list) == (
        "cuda>=12.8",
        held().cudnn,
        held().arch_list,
    )


def test_an_image_that_is_another_takes_nothing_from_the_catalogues_torch() -> None:
    image = against(held(), found(torch="2.6.0", cuda="12.8"))
    assert image.differs == (("torch", "2.7.0", "2.6.0"),)
    assert (image.origin, image.torch, image.cuda) == ("inspected", "2.6.0", "12.8")
    assert (image.arch_list, image.ptx, image.cudnn, image.nccl, image.variant) == (
        None,
        None,
        None,
        None,
        None,
    )
    assert image.flavour == "devel"


def test_the_same_in_other_words_is_no_difference() -> None:
    ngc = held("nvcr.io/nvidia/pytorch:24.04-py3")
    assert ngc.torch != "2.3.0a0"
    assert against(ngc, found(torch="2.3.0a0", cuda="12.4")).differs == ()
    said = versions(arch_list=["sm_120", "sm_100", "sm_90a", "sm_86", "sm_80", "sm_75", "compute_120"])
    checked = inspected(said)
    assert checked is not None
    assert against(held(), checked).differs == ()


def test_code_that_is_another_is_a_difference() -> None:
    checked = inspected(versions(arch_list=["sm_90"]))
    assert checked is not None
    image = against(held(), checked)
    assert image.differs == (("arch_list", "7.5 8.0 8.6 9.0 10.0 12.0", "9.0"), ("ptx", "12.0", "none"))
    assert (image.arch_list, image.ptx) == (("9.0",), None)


def test_a_requirement_that_the_catalogue_does_not_know_of_is_a_difference_and_holds() -> None:
    runtime = held("pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime")
    assert runtime.require_cuda == ""
    assert against(runtime, found(torch="2.7.0", require_cuda="")).differs == ()
    image = against(runtime, found(torch="2.7.0", require_cuda="cuda>=12.8 brand=tesla,driver>=535"))
    assert image.differs == (("require_cuda", "none", "cuda>=12.8"),)
    assert image.require_cuda == "cuda>=12.8 brand=tesla,driver>=535"
    assert image.arch_list == runtime.arch_list


def test_what_torch_itself_says_the_same_of_is_verified() -> None:
    doubtful = replace(held(), unverified=("tag", "arch_list", "ptx", "cudnn"))
    said = versions(
        arch_list=["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"], cudnn=None
    )
    checked = inspected(said)
    assert checked is not None
    assert against(doubtful, checked).unverified == ("cudnn",)
    # A configuration says nothing of code, and of cuDNN not torch's.
    configured = found(torch="2.7.0", cudnn="9.8.0.87", unverified=["cudnn"])
    assert against(doubtful, configured).unverified == ("arch_list", "ptx", "cudnn")


def test_a_digest_of_the_sites_catalogue_is_held_to() -> None:
    pinned = replace(held(), digest="sha256:" + "b" * 64)
    assert against(pinned, found(torch="2.7.0")).differs == (("digest", pinned.digest, DIGEST),)
