"""Nobody may have begun to work on a GPU between the plan and the packages."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.agent.resources.base import Silent, StepPending
from fleet.agent.resources.gpus_unused import RESOURCE
from tests.agent.driver.conftest import GpuHost
from tests.agent.driver.test_nvidia_modules import DAEMON, LEAVE, SCREEN, TRAINING
from tests.agent.resources.fakes import differences

ARGS: dict[str, Any] = {"purpose": "to replace driver 550.163.01 by 580.159.03", "remedy": LEAVE}


@pytest.mark.parametrize("users", [[], [DAEMON]])
def test_services_and_nobody_are_in_nobodys_way(host: GpuHost, users: list[dict[str, Any]]) -> None:
    host.users = list(users)
    assert differences(host, RESOURCE, ARGS) == []


@pytest.mark.parametrize("user", [TRAINING, SCREEN])
def test_who_works_there_is_named_with_the_command_that_goes_on(host: GpuHost, user: dict[str, Any]) -> None:
    host.users = [dict(user), dict(DAEMON)]
    found = differences(host, RESOURCE, ARGS)
    assert [entry["path"] for entry in found] == ["GPUs"]
    with pytest.raises(
        StepPending, match=rf"needs leave to replace .*{user['command']} \(pid {user['pid']}"
    ) as said:
        RESOURCE.apply(host, ARGS, found, Silent())
    assert said.value.remedy == LEAVE


def test_who_has_gone_meanwhile_holds_nothing_back(host: GpuHost) -> None:
    host.users = [dict(TRAINING)]
    found = differences(host, RESOURCE, ARGS)
    host.users = []
    assert RESOURCE.apply(host, ARGS, found, Silent()) == {"changed": False}
