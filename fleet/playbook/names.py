"""Which variables a template or expression uses: what decides where a segment must end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fleet.core.secret import Secret
from fleet.core.template import Unsafe, is_template

if TYPE_CHECKING:
    from jinja2 import Environment


@lru_cache(maxsize=1)
def environment() -> Environment:
    """For parsing only: nothing is ever rendered with it."""
    import jinja2

    return jinja2.Environment(autoescape=False)  # noqa: S701 - no template is rendered here


@lru_cache(maxsize=20_000)
def template_names(source: str) -> frozenset[str]:
    """The names a template takes from outside. Raises jinja2.TemplateSyntaxError."""
    from jinja2 import meta

    return frozenset(meta.find_undeclared_variables(environment().parse(source)))


def expression_names(text: str) -> frozenset[str]:
    """The names a bare expression uses."""
    return template_names("{{ " + text + " }}")


def value_names(value: Any) -> frozenset[str]:
    """The names used by all templates in a raw value."""
    if isinstance(value, str):
        return template_names(value) if is_template(value) and not isinstance(value, Unsafe) else frozenset()
    if isinstance(value, Secret):
        text = value.reveal() if type(value).__name__ == "SecretTemplate" else ""
        return template_names(text) if is_template(text) else frozenset()
    if isinstance(value, Mapping):
        return frozenset().union(*map(value_names, value.values()))
    if isinstance(value, (list, tuple)):
        return frozenset().union(*map(value_names, value))
    return frozenset()


def reached(names: Iterable[str], variables: Mapping[str, Any]) -> set[str]:
    """``names`` and every name that the variables behind them use in turn."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            if name in variables:
                waiting.extend(value_names(variables[name]))
    return seen
