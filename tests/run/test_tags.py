"""A tag that names nothing must not look like a run that found everything well."""

from __future__ import annotations

import pytest

from fleet.core.errors import InputError
from fleet.playbook.load import load_playbook
from fleet.run.launch import refuse_unknown_tags
from fleet.run.request import RunRequest


def refusal(*tags: str, skip: tuple[str, ...] = ()) -> InputError | None:
    request = RunRequest("lab.yaml", "provision", tags=tags, skip_tags=skip)
    try:
        refuse_unknown_tags(load_playbook("provision"), request)
    except InputError as error:
        return error
    return None


@pytest.mark.parametrize("tags", [(), ("docker",), ("image", "all"), ("untagged",), ("tagged",), ("always",)])
def test_tags_that_tasks_have_and_the_special_ones_pass(tags: tuple[str, ...]) -> None:
    assert refusal(*tags) is None
    assert refusal(skip=tags) is None


def test_a_slip_names_the_tags_there_are() -> None:
    error = refusal("dokcer", "image", skip=("imgae",))
    assert error is not None
    assert [problem.message for problem in error.problems] == [
        "--tags: no task has the tag dokcer",
        "--skip-tags: no task has the tag imgae",
    ]
    assert error.remedy == "tags of provision: agent, benchmark, check, docker, driver, image"
