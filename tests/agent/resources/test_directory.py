"""Directories: made with their parents, given attributes, removed with care."""

from __future__ import annotations

import pytest

from fleet.agent.protocol import KNOWN_AFTER_APPLY
from fleet.agent.resources.base import Provides, StepFailed
from fleet.agent.resources.directory import RESOURCE
from tests.agent.resources.fakes import FakeHost, converge, differences


def test_parents_are_made_and_the_mode_is_that_of_the_last(host: FakeHost) -> None:
    converge(host, RESOURCE, {"path": "/srv/a/b", "mode": "0700"})
    assert (host.folder / "srv/a").stat().st_mode & 0o777 == 0o755
    assert (host.folder / "srv/a/b").stat().st_mode & 0o777 == 0o700


def test_a_wrong_mode_is_corrected(host: FakeHost) -> None:
    (host.folder / "srv").mkdir(mode=0o755)
    found = converge(host, RESOURCE, {"path": "/srv", "mode": "1777"})
    assert found == [{"path": "mode", "before": "0755", "after": "1777"}]


def test_recursion_gives_files_no_execute_bits_they_had_not(host: FakeHost) -> None:
    plain = host.write("/srv/in/plain", "x", 0o600)
    program = host.write("/srv/in/program", "x", 0o700)
    converge(host, RESOURCE, {"path": "/srv", "mode": "0755", "recurse": True})
    assert plain.stat().st_mode & 0o777 == 0o644
    assert program.stat().st_mode & 0o777 == 0o755


def test_many_differences_below_are_counted(host: FakeHost) -> None:
    for number in range(30):
        host.write(f"/srv/{number}", "x", 0o600)
    (host.folder / "srv").chmod(0o755)
    found = differences(host, RESOURCE, {"path": "/srv", "mode": "0755", "recurse": True})
    assert len(found) == 21
    assert found[-1]["before"] == "10 more differ"


def test_a_tree_is_removed(host: FakeHost) -> None:
    host.write("/srv/data/deep/file", "x")
    converge(host, RESOURCE, {"path": "/srv/data", "state": "absent"})
    assert not (host.folder / "srv/data").exists()


@pytest.mark.parametrize("path", ["/", "/etc", "/usr/", "/etc/."])
def test_the_roots_of_the_system_are_never_removed(host: FakeHost, path: str) -> None:
    (host.folder / "etc").mkdir()
    (host.folder / "usr").mkdir()
    with pytest.raises(StepFailed, match="fleet does not remove"):
        converge(host, RESOURCE, {"path": path, "state": "absent"})


def test_a_file_in_its_place_is_refused(host: FakeHost) -> None:
    host.write("/srv", "x")
    with pytest.raises(StepFailed, match="/srv is a file, not a directory"):
        RESOURCE.read(host, {"path": "/srv"})


def test_an_unknown_owner_stops_before_anything_is_made(host: FakeHost) -> None:
    with pytest.raises(StepFailed, match="there is no user nobodyknows"):
        converge(host, RESOURCE, {"path": "/srv/a", "owner": "nobodyknows"})
    assert not (host.folder / "srv").exists()


def test_sharing_a_parent_with_an_earlier_step_decides_nothing() -> None:
    earlier = RESOURCE.provides({"path": "/srv/a/b"})
    assert RESOURCE.outlook({"path": "/srv/a/c"}, [], earlier) is None
    assert RESOURCE.outlook({"path": "/srv/a"}, [], earlier) == KNOWN_AFTER_APPLY
    assert list(RESOURCE.requires({"path": "/x", "group": "g"})) == [("groups", "g")]
    assert isinstance(earlier, Provides)
