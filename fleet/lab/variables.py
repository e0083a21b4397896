"""Host variables of a lab's inventory, before the lab exists.

The inventory of a lab that is down refers to files that ``up`` is yet to write, so it cannot be loaded by
:mod:`fleet.inventory`. Here such files are passed over, and values behind a tag (``!secret …``) are kept
opaque: the lab makes them, it does not read them. Ranges and patterns are not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import yaml

from fleet.core.errors import InputError, Position, Problem

Variables = dict[str, Any]


class _Loader(yaml.SafeLoader):
    """Safe YAML in which every unknown tag yields an :class:`Opaque`."""


class Opaque:
    """A tagged value the lab has no use for."""


def _opaque(_loader: yaml.Loader, _suffix: str, _node: yaml.Node) -> Opaque:
    return Opaque()


_Loader.add_multi_constructor("!", _opaque)


def load_variables(inventory: Path) -> dict[str, Variables]:
    """Merged variables per host: ``all`` first, then groups from the outside in, then the host's own."""
    if not inventory.is_file():
        raise InputError(f"{inventory}: there is no such inventory file")
    document = _read(inventory)
    hosts: dict[str, Variables] = {}
    folder = inventory.resolve().parent
    everywhere = _group_files(folder, "all")
    for group, body in document.items():
        for host, values in _walk(folder, group, body, everywhere):
            hosts.setdefault(host, {}).update(values)
    return {
        host: _render({**values, "inventory_dir": str(folder), "inventory_hostname": host})
        for host, values in hosts.items()
    }


def _walk(folder: Path, group: str, body: Any, inherited: Variables) -> Iterator[tuple[str, Variables]]:
    body = body or {}
    merged = {**inherited, **(body.get("vars") or {}), **_group_files(folder, group)}
    for host, values in (body.get("hosts") or {}).items():
        yield host, {**merged, **(values or {}), **_files(folder / "host_vars", host)}
    for child, inner in (body.get("children") or {}).items():
        yield from _walk(folder, child, inner, merged)


def _group_files(folder: Path, group: str) -> Variables:
    return _files(folder / "group_vars", group)


def _files(folder: Path, name: str) -> Variables:
    values: Variables = {}
    for path in (folder / f"{name}.yaml", folder / f"{name}.yml", *sorted((folder / name).glob("*.y*ml"))):
        if path.is_file():
            values.update(_read(path))
    return values


def _read(path: Path) -> Variables:
    try:
        document = yaml.load(path.read_text(), _Loader)  # noqa: S506 - a SafeLoader with opaque tags
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = Position(str(path), mark.line + 1, mark.column + 1) if mark else None
        raise InputError([Problem(position, str(error.problem))]) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InputError([Problem(Position(str(path), 1, 1), "expected a mapping")])
    return document


def _render(values: Mapping[str, Any]) -> Variables:
    """Fill in templates in the values the lab reads (top-level strings); the others stay as written."""
    environment = jinja2.Environment(autoescape=False, undefined=jinja2.StrictUndefined)  # noqa: S701 - no HTML
    rendered = dict(values)
    for name, value in values.items():
        if name.startswith("lab_") and isinstance(value, str) and "{{" in value:
            rendered[name] = environment.from_string(value).render(values)
    return rendered
