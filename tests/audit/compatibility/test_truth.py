"""What the audit says of every row of the truth table."""

from __future__ import annotations

import pytest

from fleet.audit.compatibility.registry import ALL
from fleet.core.errors import InputError
from tests.audit.compatibility.asking import ask
from tests.truth import Row, rows, severities


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_the_audit_says_what_is_true(row: Row) -> None:
    said = ask(row.asked)
    assert (said.status, said.rules) == (row.verdict, severities(row)), [one.what for one in said.findings]
    if row.informs is not None:
        assert said.informs == row.informs


def test_every_rule_is_in_the_table() -> None:
    table = {rule for row in rows() for rule in (*row.rules, *(row.informs or ()))}
    assert {rule.id for rule in ALL} == table


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu": "RTX 9999"}, "did you mean rtx5090"),
        ({"gpu": "A100"}, "did you mean a100-sxm4-40gb or a100-sxm4-80gb"),
        ({"driver": "newest"}, "not a driver version"),
        ({"driver": "580.1.2.3"}, "not a driver version"),
        ({"modules": "free"}, "open or proprietary"),
        ({"os": "ubuntu-24.10"}, "did you mean ubuntu-24.04"),
        ({"docker": "newest"}, "not a version of Docker"),
        ({"toolkit": "newest"}, "not a version of the container toolkit"),
        ({"image": "Pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"}, "lower case"),
        ({"image": "pytorch/pytorch:2.x-cuda12.8-cudnn9-runtime"}, "'2.x' is not a version"),
        ({"image": "pytorch pytorch"}, "not the name of an image"),
    ],
)
def test_a_name_or_version_that_is_none_is_bad_input(changes: dict[str, str], words: str) -> None:
    """Never a row: a question that is misspelled has no answer, but suggestions."""
    question = {"gpu": "T4", "driver": "580.178.04", "image": "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"}
    with pytest.raises(InputError) as error:
        ask({**question, **changes})
    assert words in str(error.value)


def test_a_gpu_is_found_by_the_name_it_is_sold_under_by_nvml_and_by_pci_id() -> None:
    question = {"driver": "580.178.04", "image": "pytorch/pytorch:2.7.0-cuda11.8-cudnn9-runtime"}
    said = {
        name: ask({"gpu": name, **question}).rules
        for name in (
            "RTX 5090",
            "GeForce RTX 5090",
            "NVIDIA GeForce RTX 5090",
            "rtx5090",
            "10de:2b85",
            "2b85",
        )
    }
    assert set(map(repr, said.values())) == {"{'audit.image.arch': 'error'}"}
