"""The few words that a recap says of a host."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.report.summary import facts_summary
from fleet.report.view import HostView, StepView


def host(facts: dict[str, Any] | None, **steps: str) -> HostView:
    view = HostView("gpu01")
    view.facts = facts
    for number, (module, status) in enumerate(steps.items()):
        step = StepView(f"{number}.{module}.main", module, 1)
        step.status = status
        view.steps[step.id] = step
    return view


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        (None, []),
        ([], []),
        ([{"name": "NVIDIA H100 80GB HBM3"}] * 8, ["8× H100 80GB HBM3"]),
        ([{"name": "NVIDIA A30"}, {"name": "NVIDIA L4"}, {"name": "NVIDIA L4"}], ["1× A30", "2× L4"]),
        ([{"name": None}, {"name": None}], ["2 GPUs"]),
        ([{"name": "Tesla T4"}, {"name": None}], ["1× Tesla T4", "1 GPU"]),
    ],
)
def test_gpus_are_counted_by_model(gpus: Any, words: list[str]) -> None:
    assert facts_summary(host({"gpus": gpus})) == words


def test_the_loaded_driver_is_said_with_its_flavour() -> None:
    loaded = {"version": "580.159.03", "flavour": "open"}
    assert facts_summary(host({"driver": {"loaded": loaded}})) == ["driver 580.159.03 open"]
    assert facts_summary(host({"driver": {"loaded": None}})) == []
    assert facts_summary(host({"driver": {"loaded": {**loaded, "flavour": None}}})) == ["driver 580.159.03"]


def test_a_check_that_did_not_pass_is_not_called_ok() -> None:
    assert facts_summary(host({}, image="ok", container_check="changed")) == [
        "image ok",
        "container check ok",
    ]
    assert facts_summary(host({}, image="ok", container_check="failed")) == ["image ok"]
