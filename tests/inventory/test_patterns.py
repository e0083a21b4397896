"""What a limit names, against sets computed by hand and by a plain reference."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.core.errors import InputError
from fleet.inventory.patterns import split

TEXT = """\
    all:
      hosts: {lone: , "2001:db8::7": }
      children:
        gpu:
          children:
            a100: {hosts: {"a[1:3]": }}
            h100: {hosts: {"h[1:4]": }}
        drained: {hosts: {a2: , h4: }}
        empty:
    """
GROUPS = {
    "gpu": {"a1", "a2", "a3", "h1", "h2", "h3", "h4"},
    "a100": {"a1", "a2", "a3"},
    "h100": {"h1", "h2", "h3", "h4"},
    "drained": {"a2", "h4"},
    "a2": {"a2"},
    "lone": {"lone"},
    "h*": {"h1", "h2", "h3", "h4"},
}
EVERYBODY = GROUPS["gpu"] | {"lone", "2001:db8::7"}


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        (None, "lone 2001:db8::7 a1 a2 a3 h1 h2 h3 h4"),
        ("all", "lone 2001:db8::7 a1 a2 a3 h1 h2 h3 h4"),
        ("*", "lone 2001:db8::7 a1 a2 a3 h1 h2 h3 h4"),
        ("h3,a1", "a1 h3"),
        ("gpu:&drained", "a2 h4"),
        ("gpu:!drained:!h1", "a1 a3 h2 h3"),
        ("!drained,gpu", "a1 a3 h1 h2 h3"),
        ("!gpu", "lone 2001:db8::7"),
        ("a?", "a1 a2 a3"),
        ("*100", "a1 a2 a3 h1 h2 h3 h4"),
        ("h[2-3]", "h2 h3"),  # nothing is called h: a glob
        ("h[2:4]", "h2 h3 h4"),  # or a range of hosts
        ("[ah]1", "a1 h1"),
        ("~(a|h)[12]$", "a1 a2 h1 h2"),
        ("gpu[0]", "a1"),
        ("gpu[-1]", "h4"),
        ("h100[1:2]", "h2 h3"),
        ("h100[2:]", "h3 h4"),
        ("2001:db8::7", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("lone,2001:db8::7", "lone 2001:db8::7"),
        ("gpu:!nobody*", "a1 a2 a3 h1 h2 h3 h4"),
        ("gpu:!empty", "a1 a2 a3 h1 h2 h3 h4"),
    ],
)
def test_limits(load, limit, names):
    inventory = load(TEXT)
    assert [host.name for host in inventory.select(limit)] == names.split()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "", "&", "!"]), st.sampled_from(sorted(GROUPS))),
        min_size=1,
        max_size=5,
    )
)
def test_parts_unite_then_narrow_then_take_away_in_any_order(load, parts):
    inventory = load(TEXT)
    plain = [GROUPS[name] for sign, name in parts if sign == ""]
    expected = set().union(*plain) if plain else set(EVERYBODY)
    for sign, name in parts:
        if sign == "&":
            expected &= GROUPS[name]
    for sign, name in parts:
        if sign == "!":
            expected -= GROUPS[name]
    limit = ":".join(sign + name for sign, name in parts)
    if expected:
        assert {host.name for host in inventory.select(limit)} == expected
    else:
        with pytest.raises(InputError, match="matches no host"):
            inventory.select(limit)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("h10", '"h10" is neither a host nor a group'),
        ("h10", "did you mean h1"),
        ("gpu:!drainde", "did you mean drained"),
        ("a1,h9", '"h9" is neither'),
        ("x*", '"x*" matches no host and no group'),
        ("empty", 'the pattern "empty" matches no host'),
        ("gpu[7]", "gpu has 7, counted from 0"),
        ("~(", "not a regular expression"),
        (",", "is empty"),
        ("@nowhere", "cannot be read"),
    ],
)
def test_what_names_nothing_is_an_error(load, limit, words):
    with pytest.raises(InputError) as caught:
        load(TEXT).select(limit)
    assert words in str(caught.value)


def test_a_file_holds_one_pattern_a_line(load, write):
    write("retry.txt", "# failed\r\nh1\r\n\r\na100:!a2\r\n")
    assert [host.name for host in load(TEXT).select("@retry.txt")] == ["a1", "a3", "h1"]
    assert [host.name for host in load(TEXT).select("lone,@retry.txt")] == ["lone", "a1", "a3", "h1"]


def test_splitting_keeps_brackets_and_addresses_whole():
    assert split("a[0:2]:b,c") == ["a[0:2]:b", "c"]
    assert split("a[0:2]:&b") == ["a[0:2]", "&b"]
    assert split("fe80::1") == ["fe80::1"]
    assert split("~a:b") == ["~a:b"]
