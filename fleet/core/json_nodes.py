"""JSON read into the same tree as YAML (:mod:`fleet.core.yaml`), so that its values know their place too.

YAML's reader will not do: JSON may have tabs, a line break before a colon, keys of any length and escapes
in pairs, all of which libyaml refuses. Strings are left to the standard library.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from json import JSONDecodeError, JSONDecoder

from fleet.core.errors import Position, Problem
from fleet.core.yaml import DEEPEST, Document, Kind, Node, paused_gc
from fleet.core.yaml_text import decoded

_DECODER = JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {"true": (Kind.BOOL, True), "false": (Kind.BOOL, False), "null": (Kind.NULL, None)}


def parse_json(source: str | bytes, name: str) -> Document:
    """Parse JSON that came from ``name``. Never raises: what is wrong is in the document's problems."""
    text, problem = decoded(source, name)
    if problem:
        return Document(name, None, [problem])
    reader = _Reader(text, name)
    try:
        with paused_gc():
            root = reader.document()
    except JSONDecodeError as error:
        reader.problem(error.pos, f"this is not JSON: {error.msg}")
        root = None
    return Document(name, root, reader.problems)


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.problems: list[Problem] = []
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, at: int) -> tuple[int, int]:
        line = bisect_right(self.starts, at)
        return line, at - self.starts[line - 1] + 1

    def problem(self, at: int, message: str) -> None:
        line, column = self.place(min(at, len(self.text)))
        self.problems.append(Problem(Position(self.name, line, column), message))

    def fail(self, at: int, message: str) -> JSONDecodeError:
        return JSONDecodeError(message, self.text, at)

    def skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def document(self) -> Node:
        node, at = self.value(self.skip(0), 0)
        at = self.skip(at)
        if at != len(self.text):
            raise self.fail(at, "something follows the end of the value")
        return node

    def node(self, kind: Kind, at: int, text: str = "", value: object = None) -> Node:
        line, column = self.place(at)
        return Node(kind, self.name, line, column, text, value)

    def value(self, at: int, depth: int) -> tuple[Node, int]:
        """The value at an offset, and the offset behind it."""
        if depth > DEEPEST:
            raise self.fail(at, f"nested more than {DEEPEST} levels deep")
        first = self.text[at : at + 1]
        if first == '"':
            string, end = _DECODER.raw_decode(self.text, at)
            node = self.node(Kind.TEXT, at, string, string)
            node.quoted = True
            return node, end
        if first == "{":
            return self.mapping(at, depth)
        if first == "[":
            return self.sequence(at, depth)
        return self.scalar(at)

    def scalar(self, at: int) -> tuple[Node, int]:
        for word, (kind, value) in _WORDS.items():
            if self.text.startswith(word, at):
                return self.node(kind, at, word, value), at + len(word)
        match = _NUMBER.match(self.text, at)
        if match is None:
            raise self.fail(at, "a value is expected here")
        if match[1] is None and match[2] is None:
            if len(match[0]) > 1000:
                raise self.fail(at, "the number is too long")
            return self.node(Kind.INT, at, match[0], int(match[0])), match.end()
        number = float(match[0])
        if not math.isfinite(number):
            self.problem(at, f"{match[0]} is not a number that can be used")
        return self.node(Kind.FLOAT, at, match[0], number), match.end()

    def sequence(self, at: int, depth: int) -> tuple[Node, int]:
        node = self.node(Kind.LIST, at)
        node.items = []
        at = self.skip(at + 1)
        if self.text[at : at + 1] == "]":
            return node, at + 1
        while True:
            item, at = self.value(at, depth + 1)
            node.items.append(item)
            at, ended = self.separator(at, "]")
            if ended:
                return node, at

    def mapping(self, at: int, depth: int) -> tuple[Node, int]:
        node = self.node(Kind.MAP, at)
        node.children, node.key_places = {}, {}
        at = self.skip(at + 1)
        if self.text[at : at + 1] == "}":
            return node, at + 1
        while True:
            at = self.entry(node, at, depth)
            at, ended = self.separator(at, "}")
            if ended:
                return node, at

    def entry(self, node: Node, at: int, depth: int) -> int:
        if self.text[at : at + 1] != '"':
            raise self.fail(at, "a key in double quotes is expected here")
        key, end = _DECODER.raw_decode(self.text, at)
        colon = self.skip(end)
        if self.text[colon : colon + 1] != ":":
            raise self.fail(colon, "a colon is expected here")
        child, end = self.value(self.skip(colon + 1), depth + 1)
        if key in node.children:
            self.problem(
                at, f"{key} is here for the second time; the first is on line {node.key_places[key][0]}"
            )
        else:
            node.children[key] = child
            node.key_places[key] = self.place(at)
        return end

    def separator(self, at: int, closing: str) -> tuple[int, bool]:
        """Behind a comma (False) or the closing bracket (True)."""
        at = self.skip(at)
        found = self.text[at : at + 1]
        if found == closing:
            return at + 1, True
        if found != ",":
            raise self.fail(at, f"a comma or {closing} is expected here")
        return self.skip(at + 1), False
