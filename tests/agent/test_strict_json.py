"""No NaN, no Infinity, no number too large, no key twice, no bottomless nesting: what Python would let pass is not JSON
here, and no other reader is used."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import fleet
from fleet.agent import protocol, strict_json


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{"loss": NaN}', 9, "NaN is not a number of JSON"),
        ('{"a": "NaN", "b": [1, Infinity]}', 22, "Infinity is not a number of JSON"),
        ('{"a\\"NaN": -Infinity}', 11, "-Infinity is not a number of JSON"),
        ('{"seen": 1.5, "max": 1e999}', 21, "1e999 is not a number of JSON"),
        ("-1e400", 0, "-1e400 is not a number of JSON"),
        ('{"gbps": nan, "max": 1e999}', 9, "Expecting value"),
        ('["1e999", 2e308]', 10, "2e308 is not a number of JSON"),
    ],
)
def test_what_is_no_number_is_refused_where_it_stands(text: str, place: int, words: str) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        strict_json.loads(text)
    assert (caught.value.pos, caught.value.msg) == (place, words)


def test_the_line_and_column_are_those_of_the_word() -> None:
    with pytest.raises(json.JSONDecodeError, match=r"line 3 column 6 \(char 15\)"):
        strict_json.loads('{"a": 1,\n\n"b": NaN}')


@pytest.mark.parametrize(
    "document",
    [
        {"comment": "NaN seen in warm-up", "tflops": None, "gbps": 1980.4, "count": 10**400},
        ["Infinity", -0.0, 1e308, "1e999", {"NaN": True}],
        None,
    ],
)
def test_everything_else_is_read_as_it_is(document: object) -> None:
    assert strict_json.loads(json.dumps(document)) == document


@pytest.mark.parametrize(
    ("text", "place", "key"),
    [
        ('{"a": 1, "a": 1}', 9, "a"),
        ('{"a": {"b": 1, "c": 2}, "d": [{"b": 1}, {"b": 2, "b": 3}]}', 49, "b"),
        ('{"x": "\\"a\\": 1", "a": ["a", "a"], "\\u0061": 2}', 35, "a"),
        ('{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}', 23, "c"),
    ],
)
def test_a_key_that_is_here_twice_is_refused_where_it_comes_again(text: str, place: int, key: str) -> None:
    with pytest.raises(strict_json.Refused) as caught:
        strict_json.loads(text)
    assert (caught.value.pos, caught.value.msg) == (place, f'the key "{key}" is here a second time')


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[" * 100_000, 99_999),
        ('{"a":' * 100_000, 499_995),
        ("[1, " + "[" * 100_000 + "]" * 100_001, 100_003),
    ],
)
def test_bottomless_nesting_is_refused_as_all_else_is(text: str, place: int) -> None:
    with pytest.raises(strict_json.Refused) as caught:
        strict_json.loads(text)
    assert (caught.value.pos, caught.value.msg) == (place, "nested too deeply")


def test_a_reader_that_names_what_is_no_number_gets_it_and_nothing_else() -> None:
    assert str(strict_json.loads("[NaN, 1e999, -Infinity]", any_number=True)) == "[nan, inf, -inf]"
    for text in ('{"a": NaN, "a": 1}', "[" * 100_000):
        with pytest.raises(strict_json.Refused):
            strict_json.loads(text, any_number=True)


def test_a_file_is_read_as_strictly(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1e999}')
    with pytest.raises(strict_json.Refused):
        strict_json.load(str(tmp_path / "a.json"))
    (tmp_path / "b.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ValueError, match="utf-8"):
        strict_json.load(str(tmp_path / "b.json"))


#: Who reads with Python's own reader, since fleet itself wrote it with one that writes nothing else, or packed it.
OWN = {
    "agent/gpu_probe/child.py",  # the parent's options
    "agent/gpu_probe/sampler.py",  # the child's lines
    "agent/strict_json.py",
    "core/schema.py",  # fleet's schemas
    "lab/engine.py",  # Docker's answers about labs
    "lab/images.py",
    "lab/simulation/hardware.py",  # its models and schema; a hardware file is read strictly
    "lab/simulation/torch_image/__init__.py",  # its builds
    "lab/simulation/torch_image/torch_stand_in.py",  # runs in the image, without fleet
    "lab/snapshot.py",
    "store/spool.py",
    "store/statements.py",
}


def test_no_other_reader_of_json_is_in_use() -> None:
    root = Path(fleet.__file__).parent
    loose = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("load", "loads")
                and isinstance(node.value, ast.Name)
                and node.value.id == "json"
            ):
                loose.add(path.relative_to(root).as_posix())
    assert loose == OWN


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("NaN", r"not JSON: NaN is not a number of JSON: line 1 column 26 \(char 25\)"),
        ("1e999", "not JSON: 1e999 is not a number of JSON"),
        ('{"a": 1, "a": 2}', 'not JSON: the key "a" is here a second time'),
        ("[" * 100_000, "not JSON: nested too deeply"),
    ],
)
def test_a_message_of_a_host_is_read_so(value: str, words: str) -> None:
    with pytest.raises(protocol.FramingError, match=words):
        protocol.decode(f'{{"type": "x", "value":   {value}}}\n'.encode())
