"""Symbolic links."""

from __future__ import annotations

import os

import pytest

from fleet.agent.resources.base import StepFailed
from fleet.agent.resources.link import RESOURCE
from tests.agent.resources.fakes import FakeHost, converge


def test_a_link_is_made_moved_and_removed(host: FakeHost) -> None:
    converge(host, RESOURCE, {"path": "/current", "target": "/opt/1"})
    found = converge(host, RESOURCE, {"path": "/current", "target": "/opt/2"})
    assert found == [{"path": "target", "before": "/opt/1", "after": "/opt/2"}]
    assert os.readlink(host.folder / "current") == "/opt/2"
    converge(host, RESOURCE, {"path": "/current", "state": "absent"})
    assert os.listdir(host.folder) == []


def test_a_file_is_never_replaced_by_a_link(host: FakeHost) -> None:
    host.write("/current", "data")
    with pytest.raises(StepFailed, match="is there and is not a link"):
        converge(host, RESOURCE, {"path": "/current", "target": "/opt/1"})
    assert host.text("/current") == "data"


def test_a_missing_directory_is_an_error_with_a_remedy(host: FakeHost) -> None:
    with pytest.raises(StepFailed, match="cannot make the link") as caught:
        converge(host, RESOURCE, {"path": "/no/current", "target": "/opt/1"})
    assert "directory task" in str(caught.value.remedy)
