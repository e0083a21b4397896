"""The positioned YAML reader against PyYAML, and what it refuses."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.errors import InputError
from fleet.core.json_nodes import parse_json
from fleet.core.yaml import Kind, parse_yaml, plain, read_yaml, resolve

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_what_pyyaml_writes_is_read_back(value):
    text = yaml.safe_dump(value, allow_unicode=True)
    document = parse_yaml(text, "x")
    assert document.problems == []
    assert document.root is not None
    assert plain(document.root) == yaml.load(text, Loader=yaml.CSafeLoader)


@given(st.text(st.sampled_from("0123456789_.:+-eExXaAbBnNoOyYsSfFlLuUrR~tT"), max_size=9))
def test_scalars_mean_what_they_mean_to_pyyaml(text):
    kind, value = resolve(text)
    try:
        expected = yaml.safe_load(f"- {text}")[0]
    except (yaml.YAMLError, ValueError):
        return
    if not isinstance(yaml.safe_load(f"- {text}"), list) or isinstance(expected, (dict, list)):
        return
    if kind is Kind.BASE60:
        assert isinstance(expected, (int, float))
    elif expected != expected or expected in (float("inf"), float("-inf")):
        assert kind is Kind.FLOAT
    else:
        assert value == expected or str(expected).startswith(text[:4])  # dates stay text
        assert type(value) is type(expected) or kind is Kind.TEXT


def test_every_node_knows_its_place():
    root = parse_yaml("a:\n  - b: 1\n    c: [x, {d: e}]\n", "f").root
    assert root is not None
    inner = root.children["a"].items[0]
    assert str(inner.children["c"].items[1].children["d"].position) == "f:3:16"
    assert str(inner.key_position("c")) == "f:3:5"
    assert inner.children["b"].text == "1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2\n", "f:2:1: a is here for the second time; the first is on line 1"),
        ("a: {b: 1, b: 2}", "f:1:11: b is here for the second time"),
        ("1: a\n", "the key 1 is read by YAML as the number 1"),
        ("? [a]\n: b\n", "a key must be text, not a list"),
        ("a: [b\n", "this is not YAML"),
        ("a: {{ b }}\n", "a value that starts with {{ needs quotes"),
        ("a: .nan\n", "not a number that can be used"),
        ("a: &x [*x]\n", "the alias *x stands inside itself"),
        ("a: !!set {b}\n", "the tag !!set is not known"),
        ("a: !ruby/x y\n", "the tag !ruby/x is not known"),
        ("a: x\x01y\n", "f:1:5: the control character U+0001"),
        ("a: 1\n--- \nb: 1\n", "f:2:1: a second document"),
        ("<<: 3\n", "<< merges mappings, not the number 3"),
        ("[" * 300 + "]" * 300, "nested more than 100 levels deep"),
        ("[" * 100_000, "f:1:"),
    ],
)
def test_problems(text, words):
    assert any(words in str(problem) for problem in parse_yaml(text, "f").problems)


def test_aliases_that_would_fill_memory_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    (problem,) = parse_yaml("\n".join(lines), "f").problems
    assert "aliases expand to more than" in problem.message


def test_checked_raises_all_problems_by_place():
    document = parse_yaml("b: .inf\na: 1\na: 2\n", "f")
    with pytest.raises(InputError) as caught:
        document.checked()
    assert [problem.position.line for problem in caught.value.problems] == [1, 3]


def test_tags_are_kept_and_their_text_is_text():
    root = parse_yaml("a: !vault 12\nb: !!str 1.10\nc: ! no\n", "f").root
    assert (root.children["a"].tag, root.children["a"].value) == ("!vault", "12")
    assert plain(root) == {"a": "12", "b": "1.10", "c": "no"}
    assert plain(root, lambda node: node.tag) == {"a": "!vault", "b": "1.10", "c": "no"}


def test_a_file_is_named_as_asked(tmp_path):
    (tmp_path / "x.yml").write_text("a: b\n")
    assert read_yaml(tmp_path / "x.yml", "shown.yml").root.position.file == "shown.yml"


@given(VALUES)
def test_json_is_read_as_the_standard_library_reads_it(value):
    for text in (
        json.dumps(value),
        json.dumps(value, indent="\t", ensure_ascii=False),
        json.dumps(value, separators=(",\n", "\n:")),
    ):
        document = parse_json(text, "x")
        assert document.problems == []
        assert document.root is not None
        assert plain(document.root) == value


@given(st.text(st.sampled_from('{}[]":,1-.e+ \n\ttruefalsnl\\'), max_size=14))
def test_what_is_not_json_is_a_problem_and_what_is_one_is_read(text):
    document = parse_json(text, "x")
    try:
        json.loads(text, object_pairs_hook=_no_duplicates)
    except ValueError:
        assert document.problems
    else:
        assert document.problems == []


def _no_duplicates(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("duplicate")
    return dict(pairs)


def test_json_nested_too_deep_is_a_problem():
    assert "levels deep" in str(parse_json("[" * 100_000, "x").problems[0])
