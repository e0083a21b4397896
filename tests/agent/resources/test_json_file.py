"""JSON files: merged, never rewritten for their looks, never touched when they do not parse."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.agent.resources.base import MASK, StepFailed
from fleet.agent.resources.json_file import RESOURCE, changes, indent_of, merged, parse, same
from tests.agent.resources.fakes import FakeHost, converge, differences

PATH = "/daemon.json"
SITE = """{
  "data-root": "/mnt/disk1/engine",
  "registry-mirrors": ["https://mirror.example.org"],
  "runtimes": {
    "other": {"path": "/opt/other"},
    "nvidia": {"path": "/opt/older/runtime", "runtimeArgs": ["--verbose"]}
  },
  "x-site": {"team": "physics"}
}
"""
RUNTIME = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}}


def test_only_the_named_keys_change_and_order_and_indent_stay(host: FakeHost) -> None:
    real = host.write(PATH, SITE, 0o640)
    if os.geteuid() == 0:
        os.chown(real, 4711, 4712)
    owner = real.stat().st_uid, real.stat().st_gid
    found = converge(host, RESOURCE, {"path": PATH, "merge": RUNTIME})
    assert found == [
        {
            "path": "runtimes.nvidia.path",
            "before": "/opt/older/runtime",
            "after": "nvidia-container-runtime",
        },
        {"path": "runtimes.nvidia.runtimeArgs", "before": ["--verbose"], "after": []},
    ]
    after = json.loads(real.read_text())
    wanted = json.loads(SITE)
    wanted["runtimes"]["nvidia"] = RUNTIME["runtimes"]["nvidia"]
    assert list(after.items()) == list(wanted.items())
    assert real.read_text().splitlines()[1] == '  "data-root": "/mnt/disk1/engine",'
    assert real.stat().st_mode & 0o777 == 0o640
    assert (real.stat().st_uid, real.stat().st_gid) == owner
    assert [path.read_text() for path in host.folder.glob("*.bak")] == [SITE]


def test_whoever_reads_it_meanwhile_sees_the_old_file_or_the_new_one_whole(host: FakeHost) -> None:
    real = host.write(PATH, SITE)
    seen = []

    def watched(event: str, details: tuple[object, ...]) -> None:
        if watching and event in ("open", "os.rename", "os.chmod", "os.chown", "os.remove"):
            watching.clear()
            seen.append(real.read_text())
            watching.add(True)

    watching = {True}
    sys.addaudithook(watched)
    try:
        converge(host, RESOURCE, {"path": PATH, "merge": RUNTIME})
    finally:
        watching.clear()
    assert set(seen) == {SITE, real.read_text()}


def test_a_file_that_means_the_same_is_not_touched(host: FakeHost) -> None:
    real = host.write(PATH, '{"b":1,"a":{"c":[1,2]}}')
    before = real.stat()
    assert converge(host, RESOURCE, {"path": PATH, "merge": {"a": {"c": [1, 2]}, "b": 1}}) == []
    assert real.stat() == before


@pytest.mark.parametrize("empty", [None, "", "\n", "  \n\t"])
def test_no_file_and_an_empty_file_are_an_empty_object(host: FakeHost, empty: str | None) -> None:
    if empty is not None:
        host.write(PATH, empty)
    converge(host, RESOURCE, {"path": PATH, "merge": {"live-restore": True}})
    assert host.text(PATH) == '{\n    "live-restore": true\n}\n'


def test_keys_are_removed_by_dotted_path_or_by_list(host: FakeHost) -> None:
    host.write(PATH, '{"a": {"b": 1, "c": 2}, "auths": {"registry.example.org:5000": {}}}')
    args = {"path": PATH, "remove": ["a.b", "none.at.all", ["auths", "registry.example.org:5000"]]}
    found = converge(host, RESOURCE, args)
    assert [entry["path"] for entry in found] == ["a.b", 'auths."registry.example.org:5000"']
    assert json.loads(host.text(PATH)) == {"a": {"c": 2}, "auths": {}}


def test_removing_from_no_file_makes_none(host: FakeHost) -> None:
    assert converge(host, RESOURCE, {"path": PATH, "remove": ["a"]}) == []
    assert not (host.folder / "daemon.json").exists()


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{\n  "a": true,\n  "b": true,}\n', "3:12", "a comma before the closing bracket"),
        ('{\n  "a": [1, 2,\n  ]}\n', "2:13", "a comma before the closing bracket"),
        ("<!DOCTYPE html>\n<html></html>\n", "1:1", "is not JSON: it begins with '<!DOCTYPE html>"),
        ('{"a": 1}\n{"b": 2}\n', "2:1", "a second value begins here"),
        ('{\n  // mirrors\n  "a": 1\n}\n', "2:3", "comments are not JSON"),
        ('{\n  "a": 1 # one\n}\n', "2:10", "comments are not JSON"),
        ('{\n  \u201ca\u201d: 1\n}\n', "2:3", "straight double quotes"),
        ("{'a': 1}", "1:2", "straight double quotes"),
        ('{"a": 1', "1:8", "the file ends in the middle"),
        ('[{"a": 1}]', "1:1", "holds an array where an object in braces is needed"),
        ('\n "a"', "2:2", "holds a string"),
        ("\ufeff{}", "1:1", "begins with a byte order mark"),
        ('{"a": NaN}', "1:7", "is not JSON: NaN is not a number of JSON"),
        ('{"a": 1e999}', "1:7", "is not JSON: 1e999 is not a number"),
        ('{"a": 1,\n "b": {"c": 2}, "a": 3}', "2:17", 'is not JSON: the key "a" is here a second time'),
        ("[" * 100_000, "1:100000", "is not JSON: nested too deeply"),
        ('{"a":' * 100_000, "1:499996", "is not JSON: nested too deeply"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_parse_is_told_by_place_and_left_alone(
    host: FakeHost, text: str, place: str, words: str
) -> None:
    real = host.write(PATH, text)
    with pytest.raises(StepFailed) as caught:
        converge(host, RESOURCE, {"path": PATH, "merge": {"a": 1}})
    assert words in caught.value.what
    assert caught.value.what.startswith(f"/daemon.json:{place}: ")
    assert caught.value.remedy
    assert real.read_bytes() == text.encode()


def test_bytes_that_are_not_utf8_are_told_by_place() -> None:
    with pytest.raises(StepFailed, match=r"/x:2:7: is not UTF-8 text"):
        parse("/x", b'{\n "a": \xff}')


def test_secrets_are_merged_and_masked(host: FakeHost) -> None:
    host.write(PATH, '{"auth": "old", "proxy": "plain", "user": "me"}')
    merge = {"auth": {"$secret": "token"}, "proxy": {"http": {"$secret": "token"}}, "user": "you"}
    found = converge(host, RESOURCE, {"path": PATH, "merge": merge})
    assert json.loads(host.text(PATH))["proxy"] == {"http": "hunter2hunter2"}
    assert found == [
        {"path": "auth", "before": MASK, "after": MASK},
        {"path": "proxy", "before": MASK, "after": MASK},
        {"path": "user", "before": "me", "after": "you"},
    ]


def test_one_is_not_true_and_numbers_keep_their_kind(host: FakeHost) -> None:
    host.write(PATH, '{"a": 1, "b": 1.0}')
    found = differences(host, RESOURCE, {"path": PATH, "merge": {"a": True, "b": 1}})
    assert [entry["path"] for entry in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "indent"), [("{}", 4), ('{\n\t"a": 1\n}', "\t"), ('{\n   "a": 1}', 3), ("{\n\n}", 4)]
)
def test_indent(text: str, indent: int | str) -> None:
    assert indent_of(text) == indent


KEYS = st.sampled_from(["a", "b", "c.d"])
PLAIN = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x"])
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


@settings(max_examples=300, deadline=None)
@given(OBJECTS, OBJECTS, st.lists(st.sampled_from(["a", "a.b", "b.a.c"]), max_size=2))
def test_merging_twice_is_merging_once(document: Any, merge: Any, remove: list[str]) -> None:
    once = merged(document, merge, remove)
    assert same(merged(once, merge, remove), once)
    assert changes(once, once, ()) == []
    assert bool(changes(document, once, ())) != same(document, once)


@settings(max_examples=200, deadline=None)
@given(OBJECTS, OBJECTS)
def test_keys_not_named_are_kept_in_their_order(document: Any, merge: Any) -> None:
    result = merged(document, merge, [])
    assert list(result)[: len(document)] == list(document)
    for key in set(document) - set(merge):
        assert same(result[key], document[key])
