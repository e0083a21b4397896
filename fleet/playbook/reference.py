"""The published description of playbooks, made from the modules themselves so that it cannot fall behind.

:func:`playbook_schema` is ``schemas/playbook.schema.json``, for editors; :func:`module_reference` the list
of modules in ``docs/playbooks.md``. Both files are checked by tests/playbook/test_reference.py.
"""

from __future__ import annotations

from typing import Any

from fleet.modules import known_names, load
from fleet.modules.base import Argument, Module
from fleet.playbook.words import LOOP_CONTROL_KEYS

Schema = dict[str, Any]

_TEMPLATE: Schema = {"type": "string", "pattern": r"\{\{"}
_TEXT: Schema = {"type": ["string", "number", "boolean"]}
_TYPES: dict[str, Schema] = {
    "text": {"type": ["string", "number", "object"]},  # an object: a secret of the inventory's kind
    "plain": {"type": ["string", "number"]},
    "path": {"type": "string", "pattern": "^/"},
    "boolean": {"type": "boolean"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "mode": {"type": ["string", "integer"]},
    "list": {"type": ["array", "string", "number"]},
    "lines": {"type": ["array", "string"]},
    "integers": {"type": ["array", "integer"]},
    "mapping": {"type": "object"},
    "command": {"type": ["array", "string"]},
    "bytes": {"type": ["string", "integer"]},
    "any": {},
    "expression": {"type": ["string", "boolean"]},
    "expressions": {"type": ["array", "string", "boolean"]},
}


def playbook_schema() -> Schema:
    """JSON Schema (2020-12) of a playbook. The loader checks more than a schema can say."""
    texts: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    number: Schema = {"type": ["integer", "string"]}
    play_words: Schema = {
        "name": {"type": "string"},
        "hosts": texts,
        "defaults": {"type": "object"},
        "vars": {"type": "object"},
        "vars_files": texts,
        "serial": {"anyOf": [number, {"type": "array", "items": number}]},
        "max_fail_percentage": {"type": "number", "minimum": 0, "maximum": 100},
        "any_errors_fatal": {"type": "boolean"},
        "gather_facts": {"type": "boolean"},
        "tags": texts,
        "become": {"type": "boolean"},
        "become_user": {"type": "string"},
    }
    lists = {key: {"$ref": "#/$defs/tasks"} for key in ("pre_tasks", "tasks", "post_tasks", "handlers")}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://fleet.invalid/schemas/playbook.schema.json",
        "title": "A fleet playbook",
        "description": "A list of plays. See docs/playbooks.md.",
        "type": "array",
        "items": {
            "type": "object",
            "required": ["hosts"],
            "properties": {**play_words, **lists},
            "additionalProperties": False,
        },
        "$defs": {"tasks": _tasks(), "block": _block(texts), "task": _task(texts)},
    }


def _tasks() -> Schema:
    either = {
        "if": {"required": ["block"]},
        "then": {"$ref": "#/$defs/block"},
        "else": {"$ref": "#/$defs/task"},
    }
    return {"type": ["array", "null"], "items": either}


def _shared(texts: Schema) -> Schema:
    conditions = {"type": ["string", "boolean", "number"]}
    return {
        "name": {"type": "string"},
        "when": {"anyOf": [conditions, {"type": "array", "items": conditions}]},
        "tags": texts,
        "notify": texts,
        "become": {"type": "boolean"},
        "become_user": {"type": "string"},
        "ignore_errors": {"type": "boolean"},
        "vars": {"type": "object"},
    }


def _block(texts: Schema) -> Schema:
    words = {**_shared(texts), "block": {"$ref": "#/$defs/tasks"}}
    return {"type": "object", "properties": words, "additionalProperties": False}


def _task(texts: Schema) -> Schema:
    control = dict.fromkeys(LOOP_CONTROL_KEYS, _TEXT)
    words: Schema = {
        **_shared(texts),
        "args": {"type": "object"},
        "loop": {"type": ["array", "string"]},
        "loop_control": {"type": "object", "properties": control, "additionalProperties": False},
        "register": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "timeout": {"type": "number", "minimum": 1},
        "changed_when": {"type": "boolean"},
        "listen": texts,
        "meta": {"const": "flush_handlers"},
    }
    modules = {name: _module(load(name)) for name in known_names()}
    ansible: Schema = {"^(ansible|community)\\.[a-z_.]+$": {}}
    return {
        "type": "object",
        "properties": {**words, **modules},
        "patternProperties": ansible,
        "additionalProperties": False,
    }


def _module(module: Module) -> Schema:
    if module.any_arguments:
        return {"type": "object"}
    properties: Schema = {}
    for name, argument in module.arguments.items():
        if not argument.refused:
            for spelling in (name, *argument.aliases):
                properties[spelling] = _argument(argument)
    mapping: Schema = {"type": ["object", "null"], "properties": properties, "additionalProperties": False}
    return {"anyOf": [mapping, {"type": "string"}]} if module.free_form else mapping


def _argument(argument: Argument) -> Schema:
    kind = {"enum": list(argument.choices)} if argument.choices else _TYPES[argument.type]
    schema: Schema = {"anyOf": [kind, _TEMPLATE]} if kind else {}
    return {**schema, "description": argument.description} if argument.description else schema


def module_reference() -> str:
    """Every module with its arguments, as Markdown."""
    parts = []
    by_module: dict[str, list[str]] = {}
    for name in known_names():
        by_module.setdefault(load(name).name, []).append(name)
    for own, names in sorted(by_module.items()):
        others = [name for name in names if name != own]
        title = f"### {own}" + (f" (also {', '.join(others)})" if others else "")
        parts.append("\n".join([title, "", _summary(own), "", *_table(load(own))]).rstrip())
    return "\n\n".join(parts) + "\n"


def _summary(name: str) -> str:
    import importlib

    file = name if name != "assert" else "assert_"
    text = importlib.import_module(f"fleet.modules.{file}").__doc__ or ""
    return " ".join(text.split("\n\n")[0].split()).replace(":mod:", "").replace("fleet.modules.", "")


def _table(module: Module) -> list[str]:
    rows = []
    for name, argument in module.arguments.items():
        if argument.refused:
            continue
        words = f"{name} ({', '.join(argument.aliases)})" if argument.aliases else name
        kind = " \\| ".join(argument.choices) or argument.type
        default = "required" if argument.required else _default(argument.default)
        rows.append(f"| {words} | {kind} | {default} | {argument.description} |")
    return ["| argument | type | default | |", "|---|---|---|---|", *rows] if rows else []


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value in (None, [], {}) else f"{value:g}" if isinstance(value, float) else str(value)
