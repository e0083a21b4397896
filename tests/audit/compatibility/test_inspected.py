"""What a container check found in an image makes it known."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.audit.compatibility.inspected import code, cudnn_version, inspected

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
