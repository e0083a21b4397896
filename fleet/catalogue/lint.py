"""What is wrong with the catalogue: shape, references, versions, dates, plausible figures.

:func:`faults` looks at the merged data (shipped files and a site's own); :func:`check` raises. The shape is
``schemas/catalogue.schema.json``; the rules that a schema cannot say are in :mod:`fleet.catalogue.lint_rules`,
:mod:`fleet.catalogue.lint_torch_rules` and :mod:`fleet.catalogue.lint_xid_rules`.
``fleet catalogue check`` and the tests run the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fleet.catalogue.data_files import FOLDER, data, data_names
from fleet.catalogue.entries import Entry, Files, Raw, misshapen
from fleet.catalogue.lint_rules import RULES, Fault
from fleet.catalogue.lint_torch_rules import TORCH_RULES
from fleet.catalogue.lint_xid_rules import XID_RULES
from fleet.core import schema as schemas
from fleet.core.errors import InputError, Position, Problem

ALL_RULES = (*RULES, *TORCH_RULES, *XID_RULES)


def faults(files: Files) -> list[Fault]:
    """Everything wrong, in the order of the files. Rules need the shape: where it is wrong, they are not run."""
    found = [*_shapes(), *_repeated(files)]
    if not found:
        found = list(dict.fromkeys(_schema_faults(files)))
    if not found:
        found = [*_sources(files), *(fault for rule in ALL_RULES for fault in rule(files))]
    return found


def check(files: Files) -> int:
    """The number of entries, all well. Raises InputError with every fault: file, line, section and entry."""
    found = faults(files)
    if found:
        raise InputError([Problem(_position(fault, files), str(fault)) for fault in found])
    return sum(len(files.section(file, section)) for file, section in files.sections())


def _shapes() -> Iterator[Fault]:
    """The shipped files; a site's were looked at when they were read."""
    for file in data_names():
        for what in misshapen(data(file)):
            yield Fault(file, "", "", what)


def _repeated(files: Files) -> Iterator[Fault]:
    for file in data_names():
        contents: list[Raw] = [data(file)]
        if file in files.overlay:
            contents.append(files.overlay[file][1])
        for content in contents:
            for section in content.keys() - {"sources"}:
                counted = Counter(str(raw.get("id")) for raw in content[section])
                for name, count in counted.items():
                    if count > 1:
                        yield Fault(file, section, name, f"stands there {count} times")


def _schema_faults(files: Files) -> Iterator[Fault]:
    """Each entry by itself, so that the validator that words errors only sees those that have any."""
    for file, section in files.sections():
        for entry in files.section(file, section):
            document = {file: {section: [{"id": entry.id, **entry.about, **entry.fields}]}}
            for fault in schemas.faults(document, "catalogue"):
                path = fault.path[3:]
                where = schemas.json_path(path).removeprefix("$").removeprefix(".")
                name = entry.id if len(fault.path) > 2 else ""
                yield Fault(file, section, name, f"{where}: {fault.message}" if where else fault.message)


def _sources(files: Files) -> Iterator[Fault]:
    """Sources are named under ``sources`` or spelled out; what is not verified is a field of the entry."""
    for file, section in files.sections():
        shipped = data(file).get("sources", {})
        own = files.overlay[file][1].get("sources", {}) if file in files.overlay else {}
        for entry in files.section(file, section):
            for key in _keys(entry.about["source"]):
                if " " not in key and "/" not in key and key not in shipped and key not in own:
                    yield Fault(file, section, entry.id, f"source {key}: there is no such source in the file")
            yield from _unverified(file, section, entry)


def _unverified(file: str, section: str, entry: Entry) -> Iterator[Fault]:
    fields = entry.provenance.layers[-1].fields
    for name in entry.about.get("unverified_fields", ()):
        if not any(one == name or one.startswith(f"{name}.") for one in fields):
            yield Fault(file, section, entry.id, f"unverified_fields: there is no field {name} in the entry")


def _keys(said: Any) -> list[str]:
    if isinstance(said, dict):
        return [key for one in said.values() for key in _keys(one)]
    return said if isinstance(said, list) else [said]


def _position(fault: Fault, files: Files) -> Position | None:
    """The line of the entry in the file that spoke last of it."""
    places = [(f"{fault.file}.yaml", FOLDER / f"{fault.file}.yaml")]
    if fault.file in files.overlay:
        path = files.overlay[fault.file][0]
        places.insert(0, (path, Path(path)))
    for shown, place in places:
        position = _lines(shown, place).get((fault.section, fault.entry))
        if position is not None:
            return position
    return Position(places[0][0], 1, 1)


@cache
def _lines(shown: str, path: Path) -> dict[tuple[str, str], Position]:
    """(section, entry) -> where the entry stands; the section alone too."""
    from fleet.core.yaml import read_yaml

    root = read_yaml(path, shown).root
    found: dict[tuple[str, str], Position] = {}
    for section, node in (root.children if root is not None else {}).items():
        found[section, ""] = node.position
        for item in node.items:
            if "id" in item.children:
                found[section, item.children["id"].text] = item.position
    return found
