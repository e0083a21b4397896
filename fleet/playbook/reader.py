"""Takes values out of YAML nodes and collects what is wrong with them, so that all of it is told at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from fleet.core.errors import InputError, Position, Problem
from fleet.core.template import Unsafe, is_template
from fleet.core.yaml import Kind, Node, as_read, plain, quote_advice
from fleet.modules.arguments import near
from fleet.playbook.model import Expression
from fleet.playbook.names import checked_names, environment
from fleet.playbook.words import REFUSED

Tagged = Callable[[Node], object]
_NO_FILTER = re.compile("No filter named '(.+)'")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def untagged(node: Node) -> object:
    """What local tags mean where nothing else is said: ``!unsafe`` only."""
    if node.tag == "!unsafe":
        return Unsafe(node.text)
    message = (
        f"{node.tag} cannot be used in this file; put the value in the inventory and name the variable here"
    )
    raise InputError([Problem(node.position, message)])


class Reader:
    """Reads one playbook's nodes; ``problems`` is what was found wrong so far."""

    def __init__(self, tagged: Tagged = untagged) -> None:
        self.problems: list[Problem] = []
        self._tagged = tagged

    def problem(self, position: Position, message: str) -> None:
        """Note something wrong."""
        self.problems.append(Problem(position, message))

    def raw(self, node: Node) -> Any:
        """The node as plain values, secrets as Secrets; its templates are checked for syntax."""
        self.check_templates(node)
        try:
            return plain(node, self._tagged)
        except InputError as error:
            self.problems.extend(error.problems)
            return None

    def check_templates(self, node: Node) -> None:
        """Note every string in the node that is not a template though it looks like one."""
        for child in (*node.items, *node.children.values()):
            self.check_templates(child)
        if node.kind is Kind.TEXT and node.tag is None and is_template(node.text):
            self._parse(node.text, node.position)

    def _parse(self, source: str, position: Position) -> None:
        from jinja2 import TemplateSyntaxError  # here, as a playbook without templates needs no Jinja

        try:
            checked_names(source)
        except TemplateSyntaxError as error:
            message = str(error.message).rstrip(".")
            unknown = _NO_FILTER.search(message)
            hint = near(unknown[1], environment().filters) if unknown else ""
            self.problem(position, f"this is not a template: {message}{hint}")

    def keys(self, node: Node, known: Iterable[str], what: str) -> None:
        """Note every key that ``what`` does not take."""
        known = tuple(known)
        for key in node.children:
            if key in known:
                continue
            if key in REFUSED:
                self.problem(node.key_position(key), f"{key} is not supported: {REFUSED[key]}")
            else:
                hint = near(key, known) or f"; it takes {', '.join(sorted(known))}"
                self.problem(node.key_position(key), f"{what} has no {key}{hint}")

    def mapping(self, node: Node | None, what: str) -> Node | None:
        """The node if it is a mapping; None, with a problem, if it is something else."""
        if node is None or node.kind is Kind.NULL:
            return None
        if node.kind is Kind.MAP:
            return node
        self.problem(node.position, f"{what} must be a mapping (key: value), not {as_read(node)}")
        return None

    def items(self, node: Node | None, what: str) -> list[Node]:
        """The items of a list; a problem for anything else."""
        if node is None or node.kind is Kind.NULL:
            return []
        if node.kind is Kind.LIST:
            return node.items
        self.problem(node.position, f"{what} must be a list (lines that start with -), not {as_read(node)}")
        return []

    def text(self, node: Node | None, what: str) -> str | None:
        """A text, as written. A number or boolean is a problem: it may not be what was meant."""
        if node is None or node.kind is Kind.NULL:
            return None
        if node.kind is Kind.TEXT:
            return node.text
        advice = quote_advice(node) if node.is_scalar else f"not {as_read(node)}"
        self.problem(node.position, f"{what} must be text; {advice}")
        return None

    def texts(self, node: Node | None, what: str) -> list[str]:
        """One text or a list of them; ``a, b`` is two."""
        if node is None or node.kind is Kind.NULL:
            return []
        if node.kind is Kind.LIST:
            found = [self.text(item, what) for item in node.items]
            return [each for each in found if each is not None]
        text = self.text(node, what)
        return [part.strip() for part in (text or "").split(",") if part.strip()]

    def boolean(self, node: Node | None, what: str) -> bool | None:
        """A boolean."""
        if node is None or node.kind is Kind.NULL:
            return None
        if node.kind is Kind.BOOL:
            return bool(node.value)
        self.problem(node.position, f"{what} must be true or false, not {as_read(node)}")
        return None

    def number(self, node: Node | None, what: str, lowest: float, highest: float) -> float | None:
        """A number within bounds."""
        if node is None or node.kind is Kind.NULL:
            return None
        if node.kind in (Kind.INT, Kind.FLOAT) and lowest <= float(str(node.value)) <= highest:
            return float(str(node.value))
        shown = node.text if node.is_scalar else as_read(node)
        self.problem(node.position, f"{what} must be a number from {lowest:g} to {highest:g}, not {shown}")
        return None

    def name(self, node: Node | None, what: str) -> str | None:
        """A variable's name."""
        text = self.text(node, what)
        if text is None or _NAME.match(text):
            return text
        assert node is not None
        self.problem(node.position, f'{what} must be a name of letters, digits and _, not "{text}"')
        return None

    def variables(self, node: Node | None, what: str) -> dict[str, Any]:
        """A mapping of variables."""
        found = self.mapping(node, what)
        if found is None:
            return {}
        for name in found.children:
            if not _NAME.match(name):
                place = found.key_position(name)
                self.problem(place, f'"{name}" cannot be a variable: letters, digits and _ only')
        return {name: self.raw(child) for name, child in found.children.items()}

    def expressions(self, node: Node | None, what: str) -> tuple[Expression, ...]:
        """``when:`` as one expression or a list of them. ``true`` and ``false`` are expressions too."""
        if node is None or node.kind is Kind.NULL:
            return ()
        nodes = node.items if node.kind is Kind.LIST else [node]
        found = [self._expression(each, what) for each in nodes]
        return tuple(each for each in found if each is not None)

    def _expression(self, node: Node, what: str) -> Expression | None:
        if not node.is_scalar:
            self.problem(node.position, f"{what} must be an expression, not {as_read(node)}")
            return None
        text = node.text.strip() if node.kind is Kind.TEXT else str(node.value)
        if "{{" in text or "{%" in text:
            self.problem(node.position, f"{what} is an expression already; leave out the braces")
            return None
        self._parse("{{ " + text + " }}", node.position)
        return Expression(text, node.position)
