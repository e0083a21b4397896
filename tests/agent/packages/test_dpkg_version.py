"""Version ordering: dpkg's own answers are the reference."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.agent.package_manager.dpkg_version import compare, sort_newest_first, split


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        ("1.0", "1.0-0", 0),
        ("1.0", "0:1.0", 0),
        ("1:0.1", "2.0", 1),
        ("1.0~rc1", "1.0", -1),
        ("1.0~~", "1.0~", -1),
        ("1.0a", "1.0+", -1),
        ("1.10", "1.9", 1),
        ("580.95.05-0ubuntu1", "580.159.04-0ubuntu1", -1),
        ("550.163.01-0ubuntu0.24.04.2", "550.163.01-0ubuntu0.24.04.10", -1),
        ("1.6.20~ds1-1+deb12u3", "1.6.20~ds1-1+deb12u2", 1),
        ("007", "7", 0),
    ],
)
def test_order(left: str, right: str, order: int) -> None:
    assert compare(left, right) == order
    assert compare(right, left) == -order


def test_parts() -> None:
    assert split("2:9.0-1-2+deb") == (2, "9.0-1", "2+deb")
    assert split("9.0") == (0, "9.0", "")
    with pytest.raises(ValueError, match="epoch"):
        split("x:1")


def test_sorting_newest_first_drops_repeats() -> None:
    assert sort_newest_first(["1.9", "1.10~rc1", "1.10", "1.9"]) == ["1.10", "1.10~rc1", "1.9"]


_upstream = st.text(alphabet="0123456789abzAZ.+~-", min_size=0, max_size=8)
_versions = st.builds(
    lambda epoch, rest, revision: f"{epoch}1{rest}{revision}",
    st.sampled_from(["", "0:", "1:", "12:"]),
    _upstream,
    st.builds(lambda text: "-" + text if text else "", st.text("0123456789ab.+~", max_size=5)),
)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="needs dpkg, the reference")
@given(_versions, _versions)
@settings(max_examples=40, deadline=None)
def test_it_agrees_with_dpkg(left: str, right: str) -> None:
    order = compare(left, right)
    relation = {-1: "lt", 0: "eq", 1: "gt"}[order]
    command = ["dpkg", "--compare-versions", left, relation, right]
    code = subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode
    assume(code != 2)  # not a version in dpkg's eyes
    assert code == 0


@given(_versions, _versions, _versions)
def test_it_is_an_order(a: str, b: str, c: str) -> None:
    assert compare(a, a) == 0
    assert compare(a, b) == -compare(b, a)
    if compare(a, b) <= 0 and compare(b, c) <= 0:
        assert compare(a, c) <= 0
