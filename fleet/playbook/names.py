"""Which variables a template or expression uses: what decides where a segment must end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from fleet.core.secret import Secret
from fleet.core.template import FILTERS, TESTS, Unsafe, is_template
from fleet.playbook.registered import TESTS as RESULT_TESTS

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment() -> Environment:
    """For parsing only: nothing is rendered with it. It knows the filters and tests a template may use."""
    import jinja2

    made = jinja2.Environment(autoescape=False)  # noqa: S701 - no template is rendered here
    made.filters.update(FILTERS)
    made.tests.update(TESTS)
    made.tests.update(RESULT_TESTS)
    return made


@lru_cache(maxsize=20_000)
def checked_names(source: str) -> frozenset[str]:
    """The names a template takes from outside. Raises jinja2.TemplateSyntaxError, for unknown filters too."""
    from jinja2 import meta

    return frozenset(meta.find_undeclared_variables(environment().parse(source)))


@lru_cache(maxsize=20_000)
def template_names(source: str) -> frozenset[str]:
    """As :func:`checked_names`; a template with an error uses nothing, and rendering it will tell."""
    from jinja2 import TemplateSyntaxError

    try:
        return checked_names(source)
    except TemplateSyntaxError:
        return frozenset()


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
    if isinstance(value, dict):  # other mappings (hostvars) are lazy and hold the variables of other hosts
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
