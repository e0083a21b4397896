"""Entries of the catalogue with their provenance: which file said what, from which source, verified or not.

A file is lists of entries under section names, beside ``sources``. A site's file of the same name overrides
entries by ``id``, field by field, or adds some; every value still knows the file it came from
(:class:`Provenance`). Typed look-ups are built from :class:`Entry` in the modules named after the files;
what is wrong with the data is found by :mod:`fleet.catalogue.lint`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from fleet.catalogue.data_files import data, data_names
from fleet.core.errors import InputError, Problem

Raw = dict[str, Any]

#: Keys of an entry that speak of the entry itself and not of the world.
ABOUT = frozenset({"id", "source", "verified", "unverified_fields"})

#: Fields that one source gives together: the name its source has in an entry's ``source``.
TOGETHER = {"sm_count": "memory", "first_branch": "min_driver", "first_listed": "min_driver"}


@dataclass(frozen=True)
class Layer:
    """What one file says in one entry. ``fields`` are paths such as ``peaks.fp32``.

    ``sources`` maps the start of a path (``""``: all others) to the source in words.
    """

    file: str
    fields: frozenset[str]
    sources: Mapping[str, str]
    verified: bool
    unverified: frozenset[str]

    def source(self, path: str) -> str:
        """Where this file has a field from; the source of the longest matching start of ``path``."""
        wanted = TOGETHER.get(path, path)
        fitting = [start for start in self.sources if _starts(wanted, start)]
        return self.sources[max(fitting, key=len)] if fitting else ""

    def vouches(self, path: str) -> bool:
        """Whether this file calls a field verified, and every field below it."""
        return self.verified and not any(_within(path, one) or _within(one, path) for one in self.unverified)


@dataclass(frozen=True)
class Provenance:
    """Where the fields of an entry come from: the shipped file first, a site's file last."""

    layers: tuple[Layer, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that say something in this entry, first the shipped one."""
        return tuple(layer.file for layer in self.layers)

    @property
    def verified(self) -> bool:
        """Whether every file calls its entry verified; single fields may still not be (:meth:`vouches`)."""
        return all(layer.verified for layer in self.layers)

    @property
    def unverified_fields(self) -> tuple[str, ...]:
        """The fields named as not verified in an entry that as a whole is, sorted."""
        return tuple(
            sorted({one for layer in self.layers for one in layer.unverified if layer is self.layer(one)})
        )

    def layer(self, path: str) -> Layer:
        """The last file that sets a field, or anything in it; the first one for a field that none sets."""
        for layer in reversed(self.layers):
            if any(_within(one, path) or _within(path, one) for one in layer.fields):
                return layer
        return self.layers[0]

    def source(self, path: str = "") -> str:
        """The source of a field (``peaks.fp32``), or of the entry as a whole."""
        return self.layer(path).source(path) if path else self.layers[-1].source("")

    def vouches(self, path: str) -> bool:
        """Whether a field was verified."""
        return self.layer(path).vouches(path)

    def caveat(self, *paths: str) -> str:
        """What a finding that rests on these fields must add: empty, or that they were not verified."""
        loose = [path for path in paths if not self.vouches(path)]
        return f"not verified: {', '.join(loose)}" if loose else ""


@dataclass(frozen=True)
class Entry:
    """One entry: its id, its fields as YAML gave them, and where they come from.

    ``about`` is what the newest file says of the entry itself (``source``, ``verified`` …), as written.
    """

    id: str
    fields: Mapping[str, Any]
    provenance: Provenance
    about: Mapping[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or ``default``."""
        return self.fields.get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


@dataclass(frozen=True)
class Files:
    """The shipped files and a site's own. ``overlay`` maps a file's name to (path shown, content)."""

    overlay: Mapping[str, tuple[str, Raw]] = field(default_factory=dict)
    _laid: dict[tuple[str, str], tuple[Entry, ...]] = field(default_factory=dict, compare=False, repr=False)

    def section(self, file: str, section: str) -> tuple[Entry, ...]:
        """The entries of one section, the site's own laid over them, in file order. Each is laid once."""
        if file not in self.overlay:
            return _shipped(file, section)
        if (file, section) not in self._laid:
            self._laid[file, section] = self._with_own(file, section)
        return self._laid[file, section]

    def _with_own(self, file: str, section: str) -> tuple[Entry, ...]:
        path, content = self.overlay[file]
        found = {entry.id: entry for entry in _shipped(file, section)}
        sources = {**data(file).get("sources", {}), **content.get("sources", {})}
        for raw in content.get(section, ()):
            new = _entry(raw, path, sources)
            found[new.id] = _laid_over(found[new.id], new) if new.id in found else new
        return tuple(found.values())

    def sections(self) -> Iterator[tuple[str, str]]:
        """(file, section) of everything there is."""
        for file in data_names():
            own = self.overlay[file][1] if file in self.overlay else {}
            for name in dict.fromkeys((*cast(Raw, data(file)), *own)):
                if name != "sources":
                    yield file, name


def read_overlay(folder: Path) -> dict[str, tuple[str, Raw]]:
    """The files of a site's catalogue. Raises InputError for one that is no catalogue file, with positions."""
    from fleet.core.yaml import plain, read_yaml

    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such directory, and the site's catalogue should be there")
    known = data_names()
    found: dict[str, tuple[str, Raw]] = {}
    problems: list[Problem] = []
    for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
        if path.stem not in known or path.suffix != ".yaml":
            problems.append(Problem(None, f"{path}: not a file of the catalogue, which has {_listed(known)}"))
            continue
        document = read_yaml(path)
        problems += document.problems
        content = plain(document.root) if document.root is not None else {}
        problems += [Problem(None, f"{path}: {what}") for what in misshapen(content)]
        found[path.stem] = (str(path), cast(Raw, content))
    if problems:
        raise InputError(problems)
    return found


def misshapen(content: object) -> Iterator[str]:
    """What keeps a site's file from being laid over the shipped one: it must be lists of entries with ids."""
    if not isinstance(content, dict):
        yield "must be a mapping of section names to lists of entries"
        return
    for section, entries in content.items():
        if section == "sources":
            if not isinstance(entries, dict) or not all(isinstance(one, str) for one in entries.values()):
                yield "sources: must map names to texts"
        elif not isinstance(entries, list):
            yield f"{section}: must be a list of entries"
        else:
            for number, entry in enumerate(entries, 1):
                wrong = _misshapen_entry(entry)
                if wrong:
                    yield f"{section}, entry {number}: {wrong}"


def _misshapen_entry(entry: object) -> str:
    if not isinstance(entry, dict):
        return "must be a mapping"
    if not isinstance(entry.get("id"), str):
        return "its id is missing, or is not text (quote it)"
    if entry.get("source") is None or not isinstance(entry.get("verified"), bool):
        return f"{entry['id']}: needs source, and verified: true or false"
    said = entry["source"]
    if not all(map(_names_sources, said.values() if isinstance(said, dict) else [said])):
        return f"{entry['id']}: source must be a text, a list of texts, or a mapping of fields to these"
    unverified = entry.get("unverified_fields", [])
    if not isinstance(unverified, list) or not all(isinstance(one, str) for one in unverified):
        return f"{entry['id']}: unverified_fields must be a list of field names"
    return ""


def _names_sources(said: object) -> bool:
    return isinstance(said, str) or (isinstance(said, list) and all(isinstance(one, str) for one in said))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name}.yaml" for name in names)


@cache
def _shipped(file: str, section: str) -> tuple[Entry, ...]:
    shipped = cast(Raw, data(file))
    sources = shipped.get("sources", {})
    return tuple(_entry(raw, f"{file}.yaml", sources) for raw in shipped.get(section, ()))


def _entry(raw: Raw, file: str, named: Mapping[str, str]) -> Entry:
    fields = {name: value for name, value in raw.items() if name not in ABOUT}
    layer = Layer(
        file,
        frozenset(_paths(fields)),
        _sources(raw.get("source", ""), named),
        raw.get("verified") is True,
        frozenset(raw.get("unverified_fields", ())),
    )
    about = {name: raw[name] for name in raw if name in ABOUT}
    return Entry(raw["id"], fields, Provenance((layer,)), about)


def _laid_over(base: Entry, new: Entry) -> Entry:
    merged = _merged(base.fields, new.fields)
    layers = (*base.provenance.layers, *new.provenance.layers)
    return Entry(base.id, merged, Provenance(layers), new.about)


def _merged(base: Mapping[str, Any], new: Mapping[str, Any]) -> Raw:
    """``base`` with the fields of ``new``; a mapping is merged, null takes a field away, all else replaces."""
    result = dict(base)
    for name, value in new.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = _merged(result[name], value)
        else:
            result[name] = value
    return result


def _sources(said: Any, named: Mapping[str, str]) -> dict[str, str]:
    if isinstance(said, dict):
        return {("" if name == "default" else name): _worded(one, named) for name, one in said.items()}
    return {"": _worded(said, named)}


def _worded(said: Any, named: Mapping[str, str]) -> str:
    keys = said if isinstance(said, list) else [said]
    return "; ".join(named.get(key, str(key)) for key in keys)


def _paths(value: Mapping[str, Any], start: str = "") -> Iterator[str]:
    for name, one in value.items():
        path = f"{start}{name}"
        if isinstance(one, dict) and one:
            yield from _paths(one, f"{path}.")
        else:
            yield path


def _within(path: str, other: str) -> bool:
    """Whether ``path`` is ``other`` or lies in it."""
    return path == other or path.startswith(f"{other}.")


def _starts(path: str, start: str) -> bool:
    return not start or path == start or path.startswith((f"{start}.", f"{start}_"))
