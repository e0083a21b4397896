"""What every resource shares: the table of kinds, provides, failures."""

from __future__ import annotations

import pytest

from fleet.agent import resources
from fleet.agent.process import Result
from fleet.agent.resources.base import Provides, Resource, StepCancelled, StepFailed, expect

OWN = (
    "command", "directory", "file", "group", "json_file", "kernel_module", "line", "link", "reboot",
    "service", "sysctl", "systemd_unit", "user",
)  # fmt: skip


@pytest.mark.parametrize("kind", OWN)
def test_every_kind_loads_and_knows_its_name(kind: str) -> None:
    resource = resources.load(kind)
    assert resource.kind == kind
    assert resources.load(kind) is resource


@pytest.mark.parametrize("kind", ["nosuch", "base", "..protocol", ""])
def test_a_plan_can_name_nothing_else(kind: str) -> None:
    with pytest.raises(resources.UnknownKind, match="this agent has no resource"):
        resources.load(kind)


def test_tests_can_put_in_a_kind_of_their_own() -> None:
    fake = Resource()
    resources.register("fake", fake)
    assert resources.load("fake") is fake
    resources.unregister("fake")
    with pytest.raises(resources.UnknownKind):
        resources.load("fake")


def test_provides_is_sets_by_category() -> None:
    one = Provides(packages=["b", "a"], files=[])
    one.merge(Provides(packages=["c"], engine=True))
    assert list(one) == [("engine", "docker"), ("packages", "a"), ("packages", "b"), ("packages", "c")]
    assert one.contains("packages", "a")
    assert one.contains("engine", "docker")
    assert not one.contains("units", "a")
    assert list(one.common(Provides(packages=["a", "x"], units=["c"]))) == [("packages", "a")]
    assert not Provides(files=[])
    with pytest.raises(TypeError):
        Provides(package=["typo"])


def test_expect_tells_success_failure_and_cancelling_apart() -> None:
    assert expect(Result(2), "asking", codes=(0, 2)).exit_code == 2
    with pytest.raises(StepFailed, match="asking failed: exit code 1: b / c / d") as caught:
        expect(Result(1, "out", "a\nb\nc\nd\n"), "asking", "try again")
    assert (caught.value.remedy, caught.value.exit_code, caught.value.stdout) == ("try again", 1, "out")
    with pytest.raises(StepFailed, match="stopped at its deadline"):
        expect(Result(0, timed_out=True), "asking")
    with pytest.raises(StepCancelled):
        expect(Result(0, cancelled=True), "asking")
