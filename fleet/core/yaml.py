"""YAML as people write it, read so that every value still knows where it stands and what was written.

:func:`read_yaml` and :func:`parse_yaml` give a :class:`Document`: a tree of :class:`Node` and the list of
everything wrong with the text (tabs, duplicate keys, keys that are not text, byte order marks …). A node
keeps the digits as written, so a version that YAML read as a number can be quoted back. The tree is built
from libyaml's events with an explicit stack: hostile nesting costs no Python or C stack, and 10,000 hosts
take a third of a second. What is wrong with the text itself is found in :mod:`fleet.core.yaml_text`. Who
reads the tree next: :mod:`fleet.inventory.load` and the playbook loader.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from fleet.core.errors import InputError, Position, Problem
from fleet.core.yaml_text import decoded, marks_inside, syntax_problems, tabs_outside

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LOCAL_TAGS = ("!vault", "!secret", "!unsafe")
DEEPEST = 100
MOST_NODES = 5_000_000
_STANDARD = "tag:yaml.org,2002:"


class Kind(Enum):
    """What YAML 1.1 makes of a node. BASE60 is ``22:30``: a number to YAML 1.1, kept as the text written."""

    NULL = "nothing"
    BOOL = "boolean"
    INT = "number"
    FLOAT = "decimal number"
    TEXT = "text"
    BASE60 = "base-60 number"
    LIST = "list"
    MAP = "mapping"


class Node:
    """One value of a YAML file.

    ``text`` is a scalar as written (without quotes), ``value`` what it means; ``items`` the values of a
    list, ``children`` those of a mapping by key, in file order, with merge keys (``<<``) already merged in.
    ``tag`` is a local tag such as ``!vault``, or None. ``line`` and ``column`` count from 1.
    """

    __slots__ = (
        "children",
        "column",
        "file",
        "items",
        "key_places",
        "kind",
        "line",
        "quoted",
        "tag",
        "text",
        "value",
    )

    def __init__(
        self, kind: Kind, file: str, line: int, column: int, text: str = "", value: object = None
    ) -> None:
        self.kind = kind
        self.file = file
        self.line = line
        self.column = column
        self.text = text
        self.value = value
        self.tag: str | None = None
        self.quoted = False
        self.items: list[Node] = _NO_ITEMS
        self.children: dict[str, Node] = _NO_CHILDREN
        self.key_places: dict[str, tuple[int, int]] = _NO_PLACES

    @property
    def position(self) -> Position:
        """Where the value starts."""
        return Position(self.file, self.line, self.column)

    def key_position(self, key: str) -> Position:
        """Where the key of a mapping stands (a merged-in key: where it was written)."""
        line, column = self.key_places[key]
        return Position(self.file, line, column)

    @property
    def is_scalar(self) -> bool:
        """True for anything but a list or a mapping."""
        return self.kind is not Kind.MAP and self.kind is not Kind.LIST

    def __repr__(self) -> str:
        return f"<Node {self.kind.name} {self.position}>"


_NO_ITEMS: list[Node] = []
_NO_CHILDREN: dict[str, Node] = {}
_NO_PLACES: dict[str, tuple[int, int]] = {}


@dataclass
class Document:
    """A read file: its tree (None if empty or unreadable) and all that is wrong with it."""

    name: str
    root: Node | None
    problems: list[Problem] = field(default_factory=list)

    def checked(self) -> Node | None:
        """The tree; raises :class:`InputError` with every problem, by position, if there is any."""
        if self.problems:
            raise InputError(sorted_problems(self.problems))
        return self.root


def sorted_problems(problems: list[Problem]) -> list[Problem]:
    """By file, line and column; those without a position first; each once."""
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda p: (p.position is not None, p.position or Position("", 0, 0), p.message))


def read_yaml(path: Path, name: str | None = None) -> Document:
    """Read a file. ``name`` is what messages call it (default: the path as given).

    Raises InputError where the file cannot be read at all.
    """
    shown = name or str(path)
    return parse_yaml(read_input(path, shown), shown)


def read_input(path: Path, shown: str) -> bytes:
    """A file the user named. Raises InputError that calls it ``shown`` if it cannot be read."""
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise InputError(f"{shown} is a directory, not a file", remedy="name the YAML file itself") from None
    except FileNotFoundError:
        raise InputError(f"{shown} does not exist", remedy="check the path") from None
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror or error}") from error


def parse_yaml(source: str | bytes, name: str) -> Document:
    """Parse text that came from ``name``."""
    text, problem = decoded(source, name)
    if problem:
        return Document(name, None, [problem])
    problems = marks_inside(text, name)
    builder = _Builder(name, problems)
    try:
        with paused_gc():
            root = builder.build(text)
    except yaml.YAMLError as error:
        problems.extend(syntax_problems(error, text, name))
        root = None
    else:
        if "\t" in text:
            problems.extend(tabs_outside(text, name, builder.spans))
    return Document(name, root, sorted_problems(problems))


def plain(node: Node, tagged: Callable[[Node], object] | None = None) -> object:
    """The node as plain Python values (dict, list, str, int, float, bool, None), new containers each time.

    ``tagged`` turns a node with a local tag into its value; without it such nodes give their text.
    """
    if node.tag is not None and tagged is not None:
        return tagged(node)
    if node.kind is Kind.MAP:
        return {key: plain(child, tagged) for key, child in node.children.items()}
    if node.kind is Kind.LIST:
        return [plain(item, tagged) for item in node.items]
    return node.value


def as_read(node: Node) -> str:
    """How YAML understood a scalar, for messages: ``the number 580.1``, ``the boolean false``."""
    if node.kind is Kind.BOOL:
        return f"the boolean {str(node.value).lower()}"
    if node.kind is Kind.NULL:
        return "nothing (null)"
    if node.kind is Kind.BASE60:
        return f"the base-60 number {_base60(node.text)}"
    if node.kind in (Kind.INT, Kind.FLOAT):
        return f"the number {node.value}"
    return {Kind.LIST: "a list", Kind.MAP: "a mapping"}.get(node.kind, "text")


def quote_advice(node: Node) -> str:
    """``535.10 is read by YAML as the number 535.1; write it in quotes: "535.10"``."""
    return f'{node.text} is read by YAML as {as_read(node)}; write it in quotes: "{node.text}"'


@contextmanager
def paused_gc() -> Iterator[None]:
    """No cyclic collection while a big tree is built: it would be walked over and over (4 times slower)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Builder:
    """Builds the tree from parser events; collects problems and, where the text has tabs, scalar spans."""

    def __init__(self, name: str, problems: list[Problem]) -> None:
        self.name = name
        self.problems = problems
        self.spans: list[tuple[int, int]] = []
        self.anchors: dict[str, Node] = {}
        self.aliased = False

    def problem(self, line: int, column: int, message: str) -> None:
        self.problems.append(Problem(Position(self.name, line, column), message))

    def _at(self, event: Any, message: str) -> None:
        self.problem(event.start_mark.line + 1, event.start_mark.column + 1, message)

    def build(self, text: str) -> Node | None:
        want_spans = "\t" in text
        stack: list[_Open] = []
        root: Node | None = None
        documents = 0
        for event in yaml.parse(text, Loader=Loader):
            if isinstance(event, yaml.ScalarEvent):
                if want_spans:
                    self.spans.append(_span(event))
                node = self._scalar(event)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                stack.append(self._open(event, len(stack)))
                if len(stack) > DEEPEST:
                    return None
                continue
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                node = self._close(stack.pop())
            elif isinstance(event, yaml.AliasEvent):
                node = self._alias(event, stack)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents == 2:
                    self._at(event, "a second document (---) starts here; one is wanted")
                continue
            else:
                continue
            if stack:
                stack[-1].add(node, self)
            elif documents == 1:
                root = node
        if self.aliased and root is not None and _expanded(root, {}) > MOST_NODES:
            self.problem(1, 1, f"its aliases expand to more than {MOST_NODES:,} values")
            return None
        return root

    def _scalar(self, event: Any) -> Node:
        mark = event.start_mark
        text = event.value
        quoted = bool(event.style)  # libyaml says '' for plain, PyYAML None
        tag = event.tag
        kind: Kind
        value: object
        if quoted or tag == "!":
            kind, value = Kind.TEXT, text
        else:
            kind, value = resolve(text)
        node = Node(kind, self.name, mark.line + 1, mark.column + 1, text, value)
        node.quoted = quoted
        if tag is not None and tag != "!":
            self._set_tag(node, tag)
        if kind is Kind.FLOAT and not math.isfinite(value):  # type: ignore[arg-type]
            self.problem(
                node.line, node.column, f"{text} is not a number that can be used; quote it if it is text"
            )
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _set_tag(self, node: Node, tag: str) -> None:
        if tag in LOCAL_TAGS:
            node.tag = tag
            if node.is_scalar:
                node.kind, node.value = Kind.TEXT, node.text
        elif tag == _STANDARD + "str" and node.is_scalar:
            node.kind, node.value = Kind.TEXT, node.text
        elif tag not in _PLAIN_TAGS:
            shown = tag.replace(_STANDARD, "!!")
            self.problem(
                node.line, node.column, f"the tag {shown} is not known; known are {', '.join(LOCAL_TAGS)}"
            )

    def _open(self, event: Any, depth: int) -> _Open:
        mark = event.start_mark
        is_map = isinstance(event, yaml.MappingStartEvent)
        node = Node(Kind.MAP if is_map else Kind.LIST, self.name, mark.line + 1, mark.column + 1)
        if is_map:
            node.children, node.key_places = {}, {}
        else:
            node.items = []
        if depth >= DEEPEST:
            self.problem(node.line, node.column, f"nested more than {DEEPEST} levels deep")
        if event.tag is not None:
            self._set_tag(node, event.tag)
        return _Open(node, event.anchor)

    def _close(self, opened: _Open) -> Node:
        node = opened.node
        for merged in opened.merges:
            for key, child in merged.children.items():
                if key not in node.children:
                    node.children[key] = child
                    node.key_places[key] = merged.key_places[key]
        if opened.anchor is not None:
            self.anchors[opened.anchor] = node
        return node

    def _alias(self, event: Any, stack: list[_Open]) -> Node:
        self.aliased = True
        found = self.anchors.get(event.anchor)
        if found is not None:
            return found
        why = (
            "stands inside itself"
            if any(o.anchor == event.anchor for o in stack)
            else "has no anchor before it"
        )
        self._at(event, f"the alias *{event.anchor} {why}")
        return Node(Kind.NULL, self.name, event.start_mark.line + 1, event.start_mark.column + 1)


def _span(event: Any) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index


class _Open:
    """A list or mapping whose end has not come yet."""

    __slots__ = ("anchor", "key", "merges", "node", "odd")

    def __init__(self, node: Node, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: Node | None = None
        self.merges: list[Node] = []
        self.odd: dict[object, Node] = {}

    def add(self, child: Node, builder: _Builder) -> None:
        node = self.node
        if node.kind is Kind.LIST:
            node.items.append(child)
            return
        key = self.key
        if key is None:
            self.key = child
            return
        self.key = None
        if key.kind is not Kind.TEXT:
            self._odd_key(key, builder)
        elif key.text == "<<" and not key.quoted:
            self._merge(child, builder)
        elif key.text in node.children:
            line, _ = node.key_places[key.text]
            builder.problem(
                key.line, key.column, f"{key.text} is here for the second time; the first is on line {line}"
            )
        else:
            node.children[key.text] = child
            node.key_places[key.text] = (key.line, key.column)

    def _odd_key(self, key: Node, builder: _Builder) -> None:
        if not key.is_scalar:
            message = f"a key must be text, not {as_read(key)}"
            if key.kind is Kind.MAP:
                message += '; a value that starts with {{ needs quotes: "{{ … }}"'
            builder.problem(key.line, key.column, message)
            return
        shown = key.text or "(nothing)"
        message = f'the key {shown} is read by YAML as {as_read(key)}; write it in quotes: "{key.text}"'
        same = self.odd.setdefault((key.kind, key.value), key)
        if same is not key:
            message += f" ({same.text} on line {same.line} would be the same key)"
        builder.problem(key.line, key.column, message)

    def _merge(self, child: Node, builder: _Builder) -> None:
        merged = child.items if child.kind is Kind.LIST else [child]
        if all(each.kind is Kind.MAP for each in merged):
            self.merges.extend(merged)
        else:
            builder.problem(child.line, child.column, f"<< merges mappings, not {as_read(child)}")


_PLAIN_TAGS = {
    _STANDARD + name for name in ("int", "float", "bool", "null", "map", "seq", "timestamp", "merge")
}
_BOOLS = {
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_NUMERIC_START = frozenset("0123456789+-.")
_INT = re.compile(r"[-+]?(?:0b[0-1_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)\Z")
_FLOAT = re.compile(
    r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
_BASE60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z")
_BASE60_INT = re.compile(r"[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+\Z")


def resolve(text: str) -> tuple[Kind, object]:
    """What an unquoted scalar means in YAML 1.1 (as PyYAML and Ansible read it); dates stay text."""
    if text[:1] in _NUMERIC_START and text:
        return _number(text)
    if text in _NULLS:
        return Kind.NULL, None
    if text in _BOOLS:
        return Kind.BOOL, _BOOLS[text]
    return Kind.TEXT, text


@lru_cache(maxsize=100_000)
def _number(text: str) -> tuple[Kind, object]:
    if _INT.match(text):
        return _int(text)
    if _FLOAT.match(text):
        return _float(text)
    if _BASE60_INT.match(text) or (_BASE60.match(text) and "." in text):
        return Kind.BASE60, text
    return Kind.TEXT, text


def _int(text: str) -> tuple[Kind, object]:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-").replace("_", "")
    try:
        if digits.startswith(("0x", "0b")):
            return Kind.INT, sign * int(digits, 0)
        octal = len(digits) > 1 and digits.startswith("0")
        return Kind.INT, sign * int(digits, 8 if octal else 10)
    except ValueError:  # only underscores after a prefix, or more digits than Python converts
        return Kind.TEXT, text


def _float(text: str) -> tuple[Kind, object]:
    digits = text.replace("_", "").lower()
    if digits.lstrip("+-") in (".inf", ".nan"):
        return Kind.FLOAT, float(digits.replace(".", ""))
    try:
        return Kind.FLOAT, float(digits)
    except ValueError:  # "." and "+." match the published expression but are text
        return Kind.TEXT, text


def _base60(text: str) -> int | float:
    total: int | float = 0
    for part in text.replace("_", "").lstrip("+-").split(":"):
        total = total * 60 + (float(part) if "." in part else int(part))
    return -total if text.startswith("-") else total


def _expanded(node: Node, known: dict[int, int]) -> int:
    """How many values the node stands for once its aliases are written out."""
    size = known.get(id(node))
    if size is None:
        size = 1 + sum(_expanded(child, known) for child in (*node.items, *node.children.values()))
        known[id(node)] = size
    return size
