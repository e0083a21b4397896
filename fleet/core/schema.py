"""The published schemas (``schemas/*.schema.json``): listing them, and holding documents against them.

Writers are strict: what fleet writes must validate as it stands. Readers are tolerant within a major:
fields they do not know are ignored, and a document of an older major is first lifted by
:data:`UPCASTS`. jsonschema-rs says yes or no (0.06 ms for a report); only for a document that fails is
jsonschema loaded to put the errors into words.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fleet.core.data import data_dir
from fleet.core.errors import InputError

Json = dict[str, Any]
Upcast = Callable[[Json], Json]

#: (schema name, major) -> what lifts a document of that major to the next one. Empty while every
#: schema is at its first major; an entry is added in the commit that raises a major, and stays.
UPCASTS: Mapping[tuple[str, int], Upcast] = {}

_MARK = re.compile(r"^fleet\.(?P<name>[a-z_-]+)/(?P<major>[0-9]+)$")
_SUFFIX = ".schema.json"

#: Where the schemas' ``$id`` places them: a name, not an address (``.invalid`` never resolves).
BASE = "https://fleet.invalid/schemas/"
_READER_IGNORES = frozenset({"additionalProperties", "unevaluatedProperties"})


@dataclass(frozen=True)
class Fault:
    """One place where a document is not as its schema wants it.

    ``path`` holds the keys and indexes that lead to it, outermost first; ``message`` is in words.
    ``at_key``: it is the last key itself that should not be there, and not its value.
    """

    path: tuple[str | int, ...]
    message: str
    at_key: bool = False

    def __str__(self) -> str:
        return f"{json_path(self.path)}: {self.message}"


def json_path(path: Sequence[str | int]) -> str:
    """``$.steps[3].status``."""
    words = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "$" + "".join(words)


def names(folder: Path | None = None) -> list[str]:
    """The names of the published schemas, sorted."""
    found = (folder or data_dir("schemas")).glob(f"*{_SUFFIX}")
    return sorted(path.name[: -len(_SUFFIX)] for path in found)


def load(name: str, folder: Path | None = None) -> Json:
    """The schema called ``name``. Raises InputError with near names when there is none."""
    known = names(folder)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"there is no schema {name}{hint}", remedy="fleet schema list")
    path = (folder or data_dir("schemas")) / f"{name}{_SUFFIX}"
    schema: Json = json.loads(path.read_text(encoding="utf-8"))
    return schema


def major(schema: Json) -> int:
    """The major a schema describes: the number in the ``schema`` field it asks for, else 1."""
    mark = schema.get("properties", {}).get("schema", {}).get("const", "")
    match = _MARK.match(mark)
    return int(match["major"]) if match else 1


def named_by(document: Any) -> tuple[str, int]:
    """(name, major) from a document's ``schema`` field. Raises InputError when it has none."""
    mark = document.get("schema") if isinstance(document, dict) else None
    match = _MARK.match(mark) if isinstance(mark, str) else None
    if match is None:
        raise InputError(
            'the document does not say which schema it follows: no "schema": "fleet.NAME/MAJOR" at its top',
            remedy="name it: fleet schema check --schema NAME FILE (names: fleet schema list)",
        )
    return match["name"], int(match["major"])


def faults(document: Any, name: str, *, tolerant: bool = False, folder: Path | None = None) -> list[Fault]:
    """Everything wrong with ``document`` by schema ``name``; empty when it is valid.

    ``tolerant`` is how readers check: unknown fields are no fault.
    """
    if _fast(name, folder).is_valid(document):
        return []
    found = _slow(name, folder).iter_errors(document)
    picked = (leaf for error in found for leaf in _leaves(error))
    wanted = (error for error in picked if not (tolerant and error.validator in _READER_IGNORES))
    result = dict.fromkeys(fault for error in wanted for fault in _faults(error))
    if not result and not tolerant:
        return [Fault((), f"does not follow schema {name} (one validator refuses it and one does not)")]
    return sorted(result, key=lambda fault: [str(part).zfill(9) for part in fault.path])


def readable(document: Any, name: str, *, folder: Path | None = None) -> bool:
    """Whether a reader can take ``document``: what is there is of the kinds that schema ``name`` has.

    Fields may be missing, as in what an older fleet wrote, or be unknown, as in what a newer one did.
    """
    return bool(_reader(name, folder).is_valid(document))


def validate(document: Any, name: str) -> list[str]:
    """What is wrong with ``document`` by schema ``name``, one line each; empty when it is valid."""
    return [str(fault) for fault in faults(document, name)]


def upcast(
    document: Json, upcasts: Mapping[tuple[str, int], Upcast] = UPCASTS, *, folder: Path | None = None
) -> Json:
    """``document`` in the major this fleet knows; the one given is never changed (callers keep the raw).

    Raises InputError for a newer major, or an older one there is no way up from.
    """
    name, have = named_by(document)
    want = major(load(name, folder))
    if have > want:
        raise InputError(
            f"the document is fleet.{name}/{have}; this fleet knows fleet.{name}/{want}",
            remedy="read it with the fleet that wrote it, or a newer one",
        )
    lifted = document
    for step in range(have, want):
        if (name, step) not in upcasts:
            raise InputError(f"there is no way from fleet.{name}/{step} to fleet.{name}/{step + 1}")
        lifted = upcasts[name, step](copy.deepcopy(lifted))
        lifted["schema"] = f"fleet.{name}/{step + 1}"
    return lifted


@cache
def _fast(name: str, folder: Path | None) -> Any:
    import jsonschema_rs

    registry = jsonschema_rs.Registry(_resources(folder))
    return jsonschema_rs.validator_for(load(name, folder), registry=registry)


@cache
def _reader(name: str, folder: Path | None) -> Any:
    import jsonschema_rs

    loose = [(uri, _loosened(schema)) for uri, schema in _resources(folder)]
    return jsonschema_rs.validator_for(_loosened(load(name, folder)), registry=jsonschema_rs.Registry(loose))


def _loosened(schema: Any) -> Any:
    """A schema that asks for no field and refuses none. A property that is called like a keyword is left alone."""
    if isinstance(schema, list):
        return [_loosened(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: value
        for key, value in schema.items()
        if key != "required" and not (key in _READER_IGNORES and value is False)
    }
    named = {"properties", "$defs", "patternProperties"}
    return {
        key: {name: _loosened(one) for name, one in value.items()} if key in named else _loosened(value)
        for key, value in kept.items()
    }


@cache
def _slow(name: str, folder: Path | None) -> Any:
    import jsonschema
    import referencing

    contents = [(uri, referencing.Resource.from_contents(schema)) for uri, schema in _resources(folder)]
    registry: referencing.Registry[Any] = referencing.Registry().with_resources(contents)
    return jsonschema.Draft202012Validator(load(name, folder), registry=registry)


def _resources(folder: Path | None) -> list[tuple[str, Json]]:
    """Every published schema at its place, so that one may ``$ref`` another by file name."""
    return [(f"{BASE}{name}{_SUFFIX}", load(name, folder)) for name in names(folder)]


def _leaves(error: Any) -> Iterable[Any]:
    """``error``, or for a failed choice (anyOf, oneOf) the errors of the branch that came nearest."""
    if error.validator not in ("anyOf", "oneOf") or not error.context:
        return [error]
    branches: dict[int, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    deepest = {number: max(len(one.path) for one in inner) for number, inner in branches.items()}
    best = max(deepest, key=lambda number: (deepest[number], -len(branches[number])))
    if deepest[best] == 0:
        return [error]
    return [leaf for inner in branches[best] for leaf in _leaves(inner)]


def _faults(error: Any) -> list[Fault]:
    """One validation error as faults: one, or one for each key that is not known."""
    path = tuple(error.absolute_path)
    if error.validator == "additionalProperties" and error.validator_value is False:
        unknown = _unknown_keys(error.instance, error.schema)
        return [Fault((*path, key), words, at_key=True) for key, words in unknown]
    return [Fault(path, _words(error))]


def _words(error: Any) -> str:
    """One validation error as a person would say it."""
    rule, wanted, value = error.validator, error.validator_value, error.instance
    if rule == "required":
        missing = [name for name in wanted if name not in value]
        return "missing: " + ", ".join(missing)
    if rule == "type":
        kinds = wanted if isinstance(wanted, list) else [wanted]
        return f"must be {' or '.join(kinds)}, not {_shown(value)}"
    if rule == "enum":
        return f"must be one of {', '.join(map(_shown, wanted))}, not {_shown(value)}"
    if rule == "const":
        return f"must be {_shown(wanted)}, not {_shown(value)}"
    if rule == "pattern":
        return f"{_shown(value)} does not match {wanted}"
    if rule in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        side = "least" if "inimum" in rule else "most"
        return f"must be at {side} {wanted}, not {_shown(value)}"
    if rule in ("anyOf", "oneOf"):
        return f"{_shown(value)} fits none of the forms allowed here"
    message: str = error.message
    return message if len(message) <= 200 else f"{message[:200]}…"


def _unknown_keys(value: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    known = list(schema.get("properties", {}))
    patterns = schema.get("patternProperties", {})
    for key in value:
        if key in known or any(re.search(pattern, key) for pattern in patterns):
            continue
        near = difflib.get_close_matches(key, known, n=1)
        yield key, f"is not known here; did you mean {near[0]}?" if near else "is not known here"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"
