"""File: contents, attributes, backups, validation; secrets are never shown."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest

from fleet.agent import files
from fleet.agent.host import Host
from fleet.agent.process import Result
from fleet.agent.protocol import KNOWN_AFTER_APPLY, WOULD_CHANGE
from fleet.agent.resources.base import MASK, Provides, Silent, StepFailed
from fleet.agent.resources.file import RESOURCE
from tests.agent.resources.fakes import FakeHost, converge, differences

PATH = "/etc/app.conf"


@pytest.fixture
def etc(host: FakeHost) -> FakeHost:
    (host.folder / "etc").mkdir()
    return host


def test_a_missing_file_is_made_with_contents_and_mode(etc: FakeHost) -> None:
    found = converge(etc, RESOURCE, {"path": PATH, "content": "a = 1\n", "mode": "0640"})
    assert [entry["path"] for entry in found] == ["state", "content"]
    assert etc.text(PATH) == "a = 1\n"
    assert (etc.folder / "etc/app.conf").stat().st_mode & 0o7777 == 0o640


def test_changed_contents_keep_the_mode_that_was_there(etc: FakeHost) -> None:
    real = etc.write(PATH, "a = 1\nb = 2\n", 0o604)
    found = converge(etc, RESOURCE, {"path": PATH, "content": "a = 1\nb = 3\n"})
    assert "-b = 2\n+b = 3\n" in found[0]["unified"]
    assert real.stat().st_mode & 0o7777 == 0o604


@pytest.mark.parametrize("mode", ["0644", "644", "00644"])
def test_modes_are_compared_as_numbers(etc: FakeHost, mode: str) -> None:
    etc.write(PATH, "x", 0o644)
    assert differences(etc, RESOURCE, {"path": PATH, "mode": mode}) == []


def test_only_the_mode_differs_and_the_inode_stays(etc: FakeHost) -> None:
    real = etc.write(PATH, "x", 0o644)
    inode = real.stat().st_ino
    found = converge(etc, RESOURCE, {"path": PATH, "content": "x", "mode": "0600"})
    assert found == [{"path": "mode", "before": "0644", "after": "0600"}]
    assert real.stat().st_ino == inode


def test_a_symbolic_link_stays_and_its_target_is_written(etc: FakeHost) -> None:
    real = etc.write("/etc/real.conf", "old")
    (etc.folder / "etc/app.conf").symlink_to("real.conf")
    converge(etc, RESOURCE, {"path": PATH, "content": "new"})
    assert real.read_text() == "new"
    assert (etc.folder / "etc/app.conf").is_symlink()


def test_removing_a_link_leaves_its_target(etc: FakeHost) -> None:
    real = etc.write("/etc/real.conf", "old")
    (etc.folder / "etc/app.conf").symlink_to("real.conf")
    converge(etc, RESOURCE, {"path": PATH, "state": "absent"})
    assert real.exists()
    assert not (etc.folder / "etc/app.conf").is_symlink()


def test_contents_may_be_bytes(etc: FakeHost) -> None:
    data = bytes(range(256))
    found = converge(etc, RESOURCE, {"path": PATH, "content_base64": base64.b64encode(data).decode()})
    assert (etc.folder / "etc/app.conf").read_bytes() == data
    assert "unified" not in found[1]


@pytest.mark.parametrize(
    "extra", [{"content": {"$secret": "token"}}, {"content": "plain", "show_diff": False}]
)
def test_what_must_not_be_shown_is_masked(etc: FakeHost, extra: dict[str, Any]) -> None:
    etc.write(PATH, "an older secret")
    found = converge(etc, RESOURCE, {"path": PATH, **extra})
    assert found == [{"path": "content", "before": MASK, "after": MASK}]


def test_a_new_secret_file_is_for_its_owner_alone(etc: FakeHost) -> None:
    converge(etc, RESOURCE, {"path": PATH, "content": {"$secret": "token"}})
    assert etc.text(PATH) == "hunter2hunter2"
    assert (etc.folder / "etc/app.conf").stat().st_mode & 0o7777 == 0o600


def test_a_secret_that_was_not_sent_is_named(etc: FakeHost) -> None:
    with pytest.raises(StepFailed, match="the secret other has not been sent"):
        RESOURCE.read(etc, {"path": PATH, "content": {"$secret": "other"}})


def test_one_backup_per_contents_replaced(etc: FakeHost) -> None:
    etc.write(PATH, "one", 0o600)
    args = {"path": PATH, "content": "two", "backup": True}
    extras = RESOURCE.apply(etc, args, differences(etc, RESOURCE, args), Silent())
    assert extras is not None
    kept = extras["registered"]["backup"]
    assert etc.text(kept) == "one"
    assert (etc.folder / kept.lstrip("/")).stat().st_mode & 0o777 == 0o600
    etc.write(PATH, "one")  # as if the worker had died between backup and rename
    RESOURCE.apply(etc, args, differences(etc, RESOURCE, args), Silent())
    assert len(list((etc.folder / "etc").glob("*.bak"))) == 1


def test_a_refused_file_never_takes_its_place(etc: FakeHost) -> None:
    etc.write(PATH, "good")
    etc.answer = lambda argv, stdin: Result(1, "", f"{argv[-1]}:1: bad\n")
    args = {"path": PATH, "content": "bad", "validate": ["visudo", "-cf", "%s"]}
    with pytest.raises(StepFailed, match=r"was refused by visudo .*: /etc/app.conf:1: bad"):
        converge(etc, RESOURCE, args)
    assert etc.text(PATH) == "good"
    assert sorted(os.listdir(etc.folder / "etc")) == ["app.conf"]


def test_a_valid_file_is_checked_before_it_is_there(etc: FakeHost) -> None:
    seen: list[str] = []

    def answer(argv: list[str], stdin: str | None) -> Result:
        with open(argv[-1]) as file:
            seen.append(file.read())
        assert not (etc.folder / "etc/app.conf").exists()
        return Result(0)

    etc.answer = answer
    converge(etc, RESOURCE, {"path": PATH, "content": "new", "validate": ["check", "%s"]})
    assert seen == ["new"]


def test_a_missing_directory_is_named_with_the_step_that_makes_it(etc: FakeHost) -> None:
    with pytest.raises(StepFailed, match=r"directory of /etc/none/x does not exist") as caught:
        converge(etc, RESOURCE, {"path": "/etc/none/x", "content": ""})
    assert caught.value.remedy == "create /etc/none first, with a directory task"


def test_a_directory_in_its_place_is_refused(etc: FakeHost) -> None:
    with pytest.raises(StepFailed, match="is a directory, not a file"):
        RESOURCE.read(etc, {"path": "/etc", "state": "absent"})


def test_an_unknown_owner_differs_and_cannot_be_given(etc: FakeHost) -> None:
    etc.write(PATH, "x")
    args = {"path": PATH, "owner": "svc"}
    assert [entry["after"] for entry in differences(etc, RESOURCE, args)] == ["svc"]
    with pytest.raises(StepFailed, match="there is no user svc"):
        converge(etc, RESOURCE, args)


def test_owner_by_number_and_by_name_are_the_same(etc: FakeHost) -> None:
    etc.write(PATH, "x")
    etc.write("/etc/passwd", f"me:x:{os.getuid()}:{os.getgid()}::/:/bin/sh\n")
    etc.write("/etc/group", f"us:x:{os.getgid()}:\n")
    for owner, group in (("me", "us"), (str(os.getuid()), os.getgid())):
        assert differences(etc, RESOURCE, {"path": PATH, "owner": owner, "group": group}) == []


def test_without_create_a_missing_file_is_left_missing(etc: FakeHost) -> None:
    assert differences(etc, RESOURCE, {"path": PATH, "content": "x", "create": False}) == []


def test_a_long_difference_is_cut() -> None:
    text = files.unified(PATH, "", "".join(f"{n}\n" for n in range(1000)))
    assert len(text.splitlines()) == files.DIFF_LINES + 1


def test_a_huge_file_is_replaced_and_kept_without_being_read_whole(
    etc: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "READ_LIMIT", 1000)
    monkeypatch.setattr(files, "_CHUNK", 64)
    etc.write(PATH, "x" * 1001)
    found = converge(etc, RESOURCE, {"path": PATH, "content": "small", "backup": True})
    assert found[0]["before"] == "more than 0 MiB"
    assert [path.read_text() for path in (etc.folder / "etc").glob("*.bak")] == ["x" * 1001]


def test_left_over_temporary_files_are_no_obstacle(etc: FakeHost) -> None:
    etc.write("/etc/.app.conf.fleet-new", "half of someth")
    converge(etc, RESOURCE, {"path": PATH, "content": "whole"})
    assert os.listdir(etc.folder / "etc") == ["app.conf"]


def test_a_file_that_is_a_mount_is_overwritten_in_place(
    etc: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = etc.write(PATH, "a long old text", 0o644)

    def busy(source: str, target: str) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "rename", busy)
    converge(etc, RESOURCE, {"path": PATH, "content": "new", "mode": "0600"})
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_removed_file_counts_as_changed(etc: FakeHost) -> None:
    etc.write(PATH, "x")
    assert files.changed_at(etc, "/etc/other") is None
    converge(etc, RESOURCE, {"path": PATH, "state": "absent"})
    signature = files.changed_at(etc, PATH)
    assert signature is not None
    assert signature[1:] == [0, 0]


def test_what_a_check_can_say_of_a_file_to_come() -> None:
    args = {"path": PATH, "owner": "svc"}
    assert list(RESOURCE.requires(args)) == [("directories", "/etc"), ("users", "svc")]
    assert RESOURCE.forecast(args, Provides(directories=["/etc"])) == WOULD_CHANGE
    assert RESOURCE.forecast(args, Provides(users=["svc"])) == KNOWN_AFTER_APPLY
    assert RESOURCE.forecast({**args, "create": False}, Provides(directories=["/etc"])) == KNOWN_AFTER_APPLY


def test_a_validator_really_runs(tmp_path: Any) -> None:
    host = Host(str(tmp_path))
    args = {"path": "/x", "content": "a\n", "validate": ["/bin/grep", "-q", "b", "%s"]}
    with pytest.raises(StepFailed, match="exit code 1"):
        converge(host, RESOURCE, args)
    assert os.listdir(tmp_path) == []
