"""Published schemas: valid themselves, refusing with words, tolerant to read, lifted from older majors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.core import schema as schemas
from fleet.core.errors import InputError
from tests.facts import healthy_facts

PET = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://fleet.invalid/schemas/pet.schema.json",
    "type": "object",
    "additionalProperties": False,
    "required": ["schema", "name"],
    "properties": {
        "schema": {"const": "fleet.pet/3"},
        "name": {"type": "string"},
        "home": {"$ref": "home.schema.json"},
        "food": {
            "anyOf": [{"type": "string"}, {"type": "object", "properties": {"grams": {"type": "integer"}}}]
        },
    },
}
HOME = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://fleet.invalid/schemas/home.schema.json",
    "type": "object",
    "additionalProperties": False,
    "properties": {"rooms": {"type": "integer", "minimum": 1}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, schema in (("pet", PET), ("home", HOME)):
        (tmp_path / f"{name}.schema.json").write_text(json.dumps(schema))
    return tmp_path


def pet(**changes: Any) -> dict[str, Any]:
    return {"schema": "fleet.pet/3", "name": "Rex", **changes}


def faults(folder: Path, document: Any, **named: Any) -> list[str]:
    return [str(fault) for fault in schemas.faults(document, "pet", folder=folder, **named)]


@pytest.mark.parametrize("name", schemas.names())
def test_every_published_schema_is_a_valid_one_with_id_and_title(name: str) -> None:
    import jsonschema

    schema = schemas.load(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].endswith(f"/{name}.schema.json")
    assert schema["title"]


def test_a_valid_document_has_no_faults_and_loads_no_slow_validator(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fleet.core import schema\n"
        "document = {'schema': 'fleet.pet/3', 'name': 'Rex', 'home': {'rooms': 2}}\n"
        "assert schema.faults(document, 'pet', folder=Path(sys.argv[1])) == []\n"
        "assert 'jsonschema' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (pet(name=3), ["$.name: must be string, not 3"]),
        ({"schema": "fleet.pet/3"}, ["$: missing: name"]),
        (pet(nmae="x"), ["$.nmae: is not known here; did you mean name?"]),
        (pet(home={"rooms": 0}), ["$.home.rooms: must be at least 1, not 0"]),
        (pet(food={"grams": "many"}), ['$.food.grams: must be integer, not "many"']),
        (pet(food=3), ["$.food: 3 fits none of the forms allowed here"]),
        ({"schema": "fleet.pet/4", "name": "x"}, ['$.schema: must be "fleet.pet/3", not "fleet.pet/4"']),
        ([], ["$: must be object, not []"]),
    ],
)
def test_faults_say_where_and_what_in_words(folder: Path, document: Any, words: list[str]) -> None:
    assert faults(folder, document) == words


def test_readers_ignore_what_they_do_not_know_and_nothing_else(folder: Path) -> None:
    assert faults(folder, pet(later=1, home={"garden": True}), tolerant=True) == []
    assert faults(folder, pet(later=1, name=3), tolerant=True) == ["$.name: must be string, not 3"]


def test_an_older_major_is_lifted_step_by_step_and_the_raw_is_kept(folder: Path) -> None:
    def first(document: dict[str, Any]) -> dict[str, Any]:
        return {"name": document["called"]}

    def second(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "name": document["name"].title()}

    raw = {"schema": "fleet.pet/1", "called": "rex"}
    lifted = schemas.upcast(raw, {("pet", 1): first, ("pet", 2): second}, folder=folder)
    assert lifted == {"schema": "fleet.pet/3", "name": "Rex"}
    assert raw == {"schema": "fleet.pet/1", "called": "rex"}
    assert faults(folder, lifted) == []


def test_the_current_major_is_left_alone(folder: Path) -> None:
    document = pet()
    assert schemas.upcast(document, folder=folder) is document


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"schema": "fleet.pet/4"}, "this fleet knows fleet.pet/3"),
        ({"schema": "fleet.pet/2"}, "no way from fleet.pet/2"),
        ({"schema": "fleet.pte/1"}, "there is no schema pte; did you mean pet"),
        ({"schema": "pet"}, "does not say which schema"),
        ([], "does not say which schema"),
    ],
)
def test_what_cannot_be_lifted_is_bad_input(folder: Path, document: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        schemas.upcast(document, folder=folder)


def test_every_upcast_ends_at_the_published_major() -> None:
    for name, major in schemas.UPCASTS:
        assert major < schemas.major(schemas.load(name))


def test_a_reader_takes_what_an_older_or_newer_fleet_wrote_and_no_nonsense() -> None:
    facts = healthy_facts()
    assert schemas.readable(facts, "facts")
    del facts["os"], facts["engine"]["version"]
    assert schemas.validate(facts, "facts")
    assert schemas.readable(facts | {"new": 1}, "facts")
    assert not schemas.readable(facts | {"gpus": "eight"}, "facts")
    assert not schemas.readable(healthy_facts({"packages.installed": {"runc": 7}}), "facts")
