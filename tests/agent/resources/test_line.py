"""Lines of text files: the rules of lineinfile, and that a second run finds nothing to do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.agent.resources.base import MASK, StepFailed
from fleet.agent.resources.line import RESOURCE, edited
from tests.agent.resources.fakes import FakeHost, converge

SSHD = "Port 22\n#PermitRootLogin yes\nPermitRootLogin yes\nMatch all\n"


@pytest.mark.parametrize(
    ("text", "line", "args", "wanted"),
    [
        # the last match is replaced, earlier ones stay
        (SSHD, "PermitRootLogin no", {"match": "^#?PermitRootLogin"},
         "Port 22\n#PermitRootLogin yes\nPermitRootLogin no\nMatch all\n"),
        # no match: at the end
        ("a\n", "b", {"match": "^b"}, "a\nb\n"),
        ("", "b", {}, "b\n"),
        # a file without a last line break gets one before the new line, and one after it
        ("a", "b", {}, "a\nb\n"),
        # a match in the last, open line is replaced and stays open
        ("a\nb=1", "b=2", {"match": "^b="}, "a\nb=2"),
        # there word for word: nothing, also where match finds only other lines
        ("x\nb\n", "b", {"match": "^x"}, "x\nb\n"),
        ("a\nb\n", "b", {}, "a\nb\n"),
        # after the last line found, or at the end
        ("[one]\n[two]\nz\n", "k=1", {"insert_after": r"^\["}, "[one]\n[two]\nk=1\nz\n"),
        ("z\n", "k=1", {"insert_after": r"^\["}, "z\nk=1\n"),
        ("z\n", "k=1", {"insert_after": "EOF"}, "z\nk=1\n"),
        ("z\n", "k=1", {"insert_before": "BOF"}, "k=1\nz\n"),
        ("a\nz\n", "k=1", {"insert_before": "^z"}, "a\nk=1\nz\n"),
        # match wins over insert_after
        ("k=0\n[two]\n", "k=1", {"match": "^k=", "insert_after": r"^\["}, "k=1\n[two]\n"),
        # absent: all that match, else all that are it
        ("a\nb\na\n", None, {"match": "^a", "state": "absent"}, "b\n"),
        ("a\nab\na\n", "a", {"state": "absent"}, "ab\n"),
        ("a\nb", "b", {"state": "absent"}, "a\n"),
        ("a\nb", "a", {"state": "absent"}, "b"),
        ("a\n", "b", {"state": "absent"}, "a\n"),
        # line ends of the other world are kept
        ("a\r\nb=1\r\n", "b=2", {"match": "^b="}, "a\r\nb=2\r\n"),
        ("a\r\n", "b", {}, "a\r\nb\r\n"),
        # characters that only some call a line end are none
        ("a\x0cb\n", "b", {}, "a\x0cb\nb\n"),
    ],
)  # fmt: skip
def test_rules(text: str, line: str | None, args: dict[str, Any], wanted: str) -> None:
    assert edited(text, line, args) == wanted


WORDS = st.text("ab=# \r", max_size=6)
TEXTS = st.lists(WORDS, max_size=6).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "\n".join([*lines, ""])])
)
PATTERNS = st.none() | st.sampled_from(["^a", "b$", "^#?a=", "=", "", "^$", "x"])


@settings(max_examples=300, deadline=None)
@given(TEXTS, WORDS, PATTERNS, PATTERNS, st.sampled_from(["present", "absent"]))
def test_a_second_edit_changes_nothing(text: str, line: str, match: Any, after: Any, state: str) -> None:
    args = {"match": match, "insert_after": after, "state": state}
    once = edited(text, line, args)
    assert edited(once, line, args) == once


@settings(max_examples=200, deadline=None)
@given(TEXTS, WORDS, PATTERNS)
def test_a_present_line_is_there_and_at_most_one_other_is_gone(text: str, line: str, match: Any) -> None:
    once = edited(text, line, {"match": match})
    lines = [one.rstrip("\r") for one in once.split("\n")]
    assert line.rstrip("\r\n") in lines
    gone = [one for one in text.split("\n") if one and one not in once.split("\n")]
    assert len(gone) <= 1
    assert all(match is not None and re.search(match, one.rstrip("\r")) for one in gone)


def test_on_a_real_file(host: FakeHost) -> None:
    host.write("/sshd_config", SSHD, 0o600)
    args = {"path": "/sshd_config", "line": "PermitRootLogin no", "match": "^PermitRootLogin", "backup": True}
    found = converge(host, RESOURCE, args)
    assert "-PermitRootLogin yes\n+PermitRootLogin no\n" in found[0]["unified"]
    assert (host.folder / "sshd_config").stat().st_mode & 0o777 == 0o600
    assert [path.read_text() for path in host.folder.glob("*.bak")] == [SSHD]


def test_bytes_that_are_no_text_survive(host: FakeHost) -> None:
    (host.folder / "f").write_bytes(b"\xff\xfe caf\xe9\n")
    converge(host, RESOURCE, {"path": "/f", "line": "new"})
    assert (host.folder / "f").read_bytes() == b"\xff\xfe caf\xe9\nnew\n"


def test_a_missing_file_needs_create(host: FakeHost) -> None:
    args = {"path": "/f", "line": "a"}
    with pytest.raises(StepFailed, match="does not exist"):
        converge(host, RESOURCE, args)
    converge(host, RESOURCE, {**args, "create": True, "mode": "0600"})
    assert host.text("/f") == "a\n"
    assert ("files", "/f") in list(RESOURCE.requires(args))
    assert ("files", "/f") not in list(RESOURCE.requires({**args, "create": True}))


def test_absent_from_a_missing_file_is_as_wanted(host: FakeHost) -> None:
    assert converge(host, RESOURCE, {"path": "/f", "line": "a", "state": "absent"}) == []


def test_a_secret_line_is_not_shown(host: FakeHost) -> None:
    host.write("/f", "password=old\n")
    found = converge(host, RESOURCE, {"path": "/f", "line": {"$secret": "token"}, "match": "^password="})
    assert found == [{"path": "content", "before": MASK, "after": MASK}]
    assert host.text("/f") == "hunter2hunter2\n"


@pytest.mark.parametrize(
    ("line", "args", "message"),
    [("a\nb", {}, "cannot hold line breaks"), ("a", {"match": "("}, "match is not a regular expression"),
     (None, {}, "line is missing")],
)  # fmt: skip
def test_what_makes_no_sense_is_said(line: str | None, args: dict[str, Any], message: str) -> None:
    with pytest.raises(StepFailed, match=message):
        edited("", line, args)
