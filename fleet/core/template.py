"""Jinja over variables: sandboxed, strict about names, lazy, and careful with secrets.

:class:`Templar` renders values for the inventory's connection variables and for playbooks. Its rules:

* a string that is one expression, ``{{ x }}``, gives the object itself; anything else gives text;
* variables may themselves be templates; a variable that needs itself is an error, not a hang;
* a template that uses a :class:`~fleet.core.secret.Secret` gives a Secret (numbers and booleans excepted);
* an undefined name, a syntax error or a failing filter is an :class:`InputError` at the value's position.

Compiled templates are cached for the whole process; a string without ``{`` costs one search.
"""

from __future__ import annotations

import base64
import json
import os.path
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fleet.core.errors import InputError, Position, Problem
from fleet.core.secret import Secret

if TYPE_CHECKING:
    from jinja2.environment import Template
    from jinja2.sandbox import SandboxedEnvironment


class Unsafe(str):
    """Text that is never a template (``!unsafe``)."""

    __slots__ = ()


class SecretTemplate(Secret):
    """A secret whose text is a template, such as a password written ``{{ vault_password }}``."""

    __slots__ = ()


def is_template(value: object) -> bool:
    """Whether rendering ``value`` (not its parts) would run Jinja."""
    return isinstance(value, str) and "{" in value and ("{{" in value or "{%" in value or "{#" in value)


class Templar:
    """Renders values over ``variables``, which may hold templates and secrets at any depth.

    ``filters`` and ``tests`` are added to Jinja's own and to :data:`FILTERS`. One Templar serves one host;
    it remembers what it rendered, so the mapping must not change under it (make another, they are cheap).
    """

    def __init__(
        self,
        variables: Mapping[str, object],
        *,
        filters: Mapping[str, Callable[..., object]] | None = None,
        tests: Mapping[str, Callable[..., object]] | None = None,
    ) -> None:
        self.variables = variables
        self._extra = (tuple((filters or {}).items()), tuple((tests or {}).items()))
        self._rendered: dict[str, object] = {}
        self._open: list[str] = []

    def render(self, value: object, position: Position | None = None) -> object:
        """``value`` with every template in it rendered; lists and dicts are new, other objects the same.

        Raises InputError at ``position`` (the value's own place) if a template cannot be rendered.
        """
        try:
            return self._value(value)
        except _Failed as failure:
            raise InputError([Problem(position, str(failure))]) from failure.__cause__

    def expression(self, source: str, position: Position | None = None) -> object:
        """The value of a bare Jinja expression, as ``when:`` holds it. Secrets in the result stay Secrets."""
        return self.render("{{ " + source + " }}", position)

    def variable(self, name: str) -> object:
        """A variable, rendered once. Raises KeyError if there is none, and what :meth:`render` raises."""
        if name in self._rendered:
            return self._rendered[name]
        value = self.variables[name]
        if name in self._open:
            circle = " → ".join([*self._open[self._open.index(name) :], name])
            raise _Failed(f"the variable {name} needs itself: {circle}")
        self._open.append(name)
        try:
            rendered = self._value(value)
        finally:
            self._open.pop()
        self._rendered[name] = rendered
        return rendered

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self._text(value) if is_template(value) and not isinstance(value, Unsafe) else value
        if isinstance(value, SecretTemplate):
            return _wrapped(self._text(value.reveal()), value.name)
        if isinstance(value, dict):
            return {key: self._value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._value(item) for item in value]
        return value

    def _text(self, source: str) -> object:
        used = _Used()
        token = _USED.set(used)
        try:
            return _run(source, self, self._extra, used)
        finally:
            _USED.reset(token)


class _Failed(ValueError):
    """A template could not be rendered; the message is fit to be shown (it holds no secret)."""


class _Used:
    """Which secret, if any, a template looked at while it ran."""

    __slots__ = ("name",)

    def __init__(self) -> None:
        self.name: str | None = None


# Filters and the sandbox's hooks are called by compiled templates with nothing but their operands; this
# is how they report a secret to the render that is running in this thread.
_USED: ContextVar[_Used] = ContextVar("fleet_template_secret")


def _revealed(value: object) -> object:
    """A Secret's text, noting its use; anything else as it is."""
    if isinstance(value, Secret):
        _USED.get().name = value.name
        return value.reveal()
    return value


def _revealed_deep(value: object) -> object:
    if isinstance(value, dict):
        return {key: _revealed_deep(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_revealed_deep(item) for item in value]
    return _revealed(value)


def _wrapped(value: object, name: str) -> object:
    """``value`` with each text in it made a Secret."""
    if isinstance(value, str):
        return Secret(str(value), name)
    if isinstance(value, dict):
        return {key: _wrapped(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [_wrapped(item, name) for item in value]
    return value


_Extra = tuple[tuple[tuple[str, Callable[..., object]], ...], tuple[tuple[str, Callable[..., object]], ...]]
# What template code may raise on the operator's values: wrong types, missing keys, bad numbers.
_OPERATOR_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)


def _run(source: str, templar: Templar, extra: _Extra, used: _Used) -> object:
    import jinja2

    try:
        template, single = _compiled(source, extra)
        context = template.environment.context_class(
            template.environment, {**template.globals, _TEMPLAR: templar}, None, template.blocks
        )
        chunks = list(template.root_render_func(context))
    except jinja2.TemplateSyntaxError as error:
        where = f" (line {error.lineno} of the template)" if "\n" in source else ""
        raise _Failed(f"{_shown(source)} is not a template: {error.message}{where}") from None
    except _Failed:
        raise
    except jinja2.TemplateError as error:
        detail = "it fails on a secret value" if used.name else (error.message or type(error).__name__)
        raise _Failed(f"{_shown(source)} cannot be rendered: {detail}") from None
    except _OPERATOR_ERRORS as error:
        detail = "it fails on a secret value" if used.name else f"{type(error).__name__}: {error}"
        raise _Failed(f"{_shown(source)} cannot be rendered: {detail}") from None
    result = chunks[0] if single and len(chunks) == 1 else "".join(map(str, chunks))
    return result if used.name is None else _wrapped(_listed(result), used.name)


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shown(source: str) -> str:
    """A template in a message: one line, not too long."""
    line = " ".join(source.split())
    return f'"{line}"' if len(line) <= 80 else f'"{line[:77]}…"'


_TEMPLAR = "fleet templar"  # the space keeps it out of every template's reach


@lru_cache(maxsize=20_000)
def _compiled(source: str, extra: _Extra) -> tuple[Template, bool]:
    """The compiled template, and whether it is one expression and nothing else."""
    from jinja2 import nodes

    environment = _environment(extra)
    tree = environment.parse(source)
    single = (
        len(tree.body) == 1
        and isinstance(tree.body[0], nodes.Output)
        and len(tree.body[0].nodes) == 1
        and not isinstance(tree.body[0].nodes[0], nodes.TemplateData)
    )
    return environment.from_string(source), single


@lru_cache(maxsize=64)
def _environment(extra: _Extra) -> SandboxedEnvironment:
    """One environment per set of extra filters and tests. Jinja is imported here, on first use."""
    from jinja2 import StrictUndefined, TemplateRuntimeError, pass_context
    from jinja2.nativetypes import NativeCodeGenerator
    from jinja2.runtime import Context, Undefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class LazyContext(Context):
        """Looks names up in the Templar, so only what is used is rendered."""

        def resolve_or_missing(self, key: str) -> Any:
            if key in self.vars:
                return self.vars[key]
            templar = self.parent[_TEMPLAR]
            try:
                return _revealed(templar.variable(key))
            except KeyError:
                return super().resolve_or_missing(key)

    class Environment(ImmutableSandboxedEnvironment):
        """The sandbox, with native values and secrets noticed where they are reached."""

        context_class = LazyContext
        code_generator_class = NativeCodeGenerator

        def getitem(self, obj: Any, argument: Any) -> Any:
            return _revealed(super().getitem(obj, argument))

        def getattr(self, obj: Any, attribute: str) -> Any:
            # {{ a.keys }} means the key "keys" of a mapping first, its method second, as in Ansible.
            if isinstance(obj, Mapping) and attribute in obj:
                return _revealed(obj[attribute])
            return _revealed(super().getattr(obj, attribute))

    @pass_context
    def finalize(_context: Context, value: object) -> object:
        # A context function also keeps Jinja from folding {{ 5 }} into the text "5".
        if isinstance(value, Undefined):
            str(value)  # raises: StrictUndefined
        return _revealed(value)

    def lookup(*_: object, **__: object) -> object:
        raise TemplateRuntimeError("lookup() is not available; use !secret env|file|command or a variable")

    environment = Environment(
        undefined=StrictUndefined, finalize=finalize, keep_trailing_newline=True, trim_blocks=True
    )
    environment.globals.update(lookup=lookup, query=lookup)
    filters, tests = extra
    environment.filters.update(FILTERS)
    environment.filters.update(filters)
    environment.filters = {
        name: function if name in _STRUCTURAL else _secret_aware(function)
        for name, function in environment.filters.items()
    }
    environment.tests.update(TESTS)
    environment.tests.update(tests)
    return environment


# These only pick, order or rearrange: they get secrets as they are, so that what lies beside one in the
# same mapping does not become secret too. (map and selectattr reach attributes through the sandbox.)
_STRUCTURAL = frozenset(
    ("combine", "count", "d", "default", "dictsort", "first", "groupby", "items", "last", "length", "list")
) | {"map", "mandatory", "reject", "rejectattr", "reverse", "select", "selectattr", "ternary"}


def _secret_aware(function: Callable[..., object]) -> Callable[..., object]:
    """A filter that sees the text of secrets in its operands. Jinja's markers (pass_context …) are kept."""

    def call(*args: object, **kwargs: object) -> object:
        return function(*map(_seen, args), **{key: _seen(value) for key, value in kwargs.items()})

    call.__dict__.update(getattr(function, "__dict__", {}))
    return call


def _seen(value: object) -> object:
    return _revealed_deep(value) if isinstance(value, (Secret, dict, list, tuple)) else value


# --- filters and tests familiar from Ansible ---------------------------------------------------------


def _bool(value: object) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in ("yes", "true", "on", "1", "y", "t")
    return bool(value) if isinstance(value, (bool, int, float)) else False


def _ternary(value: object, if_true: object, if_false: object, if_none: object = None) -> object:
    if value is None and if_none is not None:
        return if_none
    return if_true if value else if_false


def _combine(
    first: Mapping[str, object], *others: Mapping[str, object], recursive: bool = False
) -> dict[str, object]:
    merged = dict(first)
    for other in others:
        for key, value in other.items():
            old = merged.get(key)
            if recursive and isinstance(old, Mapping) and isinstance(value, Mapping):
                merged[key] = _combine(old, value, recursive=True)
            else:
                merged[key] = value
    return merged


def _mandatory(value: object, message: str = "a mandatory value is not defined") -> object:
    from jinja2 import TemplateRuntimeError
    from jinja2.runtime import Undefined

    if isinstance(value, Undefined):
        raise TemplateRuntimeError(message)
    return value


def _regex_replace(value: object, pattern: str, replacement: str = "", ignorecase: bool = False) -> str:
    return re.sub(pattern, replacement, str(value), flags=re.IGNORECASE if ignorecase else 0)


def _regex_search(value: object, pattern: str) -> str | None:
    match = re.search(pattern, str(value))
    return match[0] if match else None


def _to_json(value: object, **options: Any) -> str:
    return json.dumps(value, **{"allow_nan": False, **options})


def _to_nice_json(value: object, indent: int = 4) -> str:
    return json.dumps(value, indent=indent, sort_keys=True, allow_nan=False)


def _to_yaml(value: object) -> str:
    import yaml

    return str(yaml.safe_dump(value, default_flow_style=False, sort_keys=True))


def version_key(text: object) -> tuple[tuple[int, int | str], ...]:
    """Sort key of a version: digits as numbers, the rest as text. 535.183.06 < 535.288.01, 1.9 < 1.10."""
    return tuple(
        (1, int(part)) if part.isdigit() else (0, part) for part in re.findall(r"\d+|[A-Za-z]+", str(text))
    )


def _version(value: object, other: object, operator: str = "==") -> bool:
    """``driver is version('570.86.10', '>=')``."""
    left, right = version_key(value), version_key(other)
    outcomes = {
        **dict.fromkeys(("==", "=", "eq"), left == right),
        **dict.fromkeys(("!=", "<>", "ne"), left != right),
        **dict.fromkeys((">=", "ge"), left >= right),
        **dict.fromkeys((">", "gt"), left > right),
        **dict.fromkeys(("<=", "le"), left <= right),
        **dict.fromkeys(("<", "lt"), left < right),
    }
    if operator not in outcomes:
        raise ValueError(f"{operator} is not a comparison of versions")
    return outcomes[operator]


def _contains(value: Iterable[object], item: object) -> bool:
    return item in value


def _from_json(value: object) -> object:
    """Read as strictly as a file of variables is: no NaN, no number too large for one, no key twice."""
    from fleet.core.json_nodes import parse_json
    from fleet.core.yaml import plain

    document = parse_json(str(value), "the text")
    if document.problems or document.root is None:
        raise ValueError(f"it is not JSON: {document.problems[0] if document.problems else 'it is empty'}")
    return plain(document.root)


FILTERS: dict[str, Callable[..., object]] = {
    "b64decode": lambda value: base64.b64decode(str(value)).decode(),
    "b64encode": lambda value: base64.b64encode(str(value).encode()).decode(),
    "basename": lambda value: os.path.basename(str(value)),
    "bool": _bool,
    "combine": _combine,
    "dirname": lambda value: os.path.dirname(str(value)),
    "from_json": _from_json,
    "mandatory": _mandatory,
    "quote": lambda value: shlex.quote(str(value)),
    "regex_replace": _regex_replace,
    "regex_search": _regex_search,
    "ternary": _ternary,
    "to_json": _to_json,
    "to_nice_json": _to_nice_json,
    "to_yaml": _to_yaml,
}
TESTS: dict[str, Callable[..., object]] = {
    "contains": _contains,
    "match": lambda value, pattern: re.match(pattern, str(value)) is not None,
    "search": lambda value, pattern: re.search(pattern, str(value)) is not None,
    "version": _version,
}
