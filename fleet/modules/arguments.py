"""Checks and converts arguments of modules: what is written, before a run; what it renders to, for each host.

:func:`convert` is the one place that knows the types. Nothing is guessed: a boolean where text is wanted is
an error with the quotes to write.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fleet.core.secret import Secret
from fleet.modules.base import Argument, ArgumentProblem, Json

_TRUE = frozenset(("yes", "true", "on", "1", "y", "t"))
_FALSE = frozenset(("no", "false", "off", "0", "n", "f"))
_MODE = re.compile(r"0?[0-7]{3,4}\Z")


def near(word: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` for the known word nearest to ``word``, or nothing."""
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_arguments(
    names: Iterable[str], arguments: Mapping[str, Argument], module: str
) -> list[ArgumentProblem]:
    """A problem for each name that the module does not take, with the nearest one that it does."""
    spellings = {alias for argument in arguments.values() for alias in argument.aliases} | set(arguments)
    problems = []
    for name in names:
        argument = arguments.get(name)
        if argument is not None and argument.refused:
            problems.append(ArgumentProblem(f"{name} is not taken by {module}: {argument.refused}", name))
        elif name not in spellings:
            taken = ", ".join(sorted(each for each in arguments if not arguments[each].refused))
            hint = near(name, spellings) or f"; it takes {taken}"
            problems.append(ArgumentProblem(f"{module} has no argument {name}{hint}", name))
    return problems


def canonical_names(
    values: Mapping[str, Any], arguments: Mapping[str, Argument]
) -> tuple[Json, list[ArgumentProblem]]:
    """``values`` under the arguments' own names; a problem where one is given twice under two names."""
    by_alias = {alias: name for name, argument in arguments.items() for alias in argument.aliases}
    renamed: Json = {}
    problems = []
    for name, value in values.items():
        own = by_alias.get(name, name)
        if own in renamed:
            problems.append(ArgumentProblem(f"{own} is given twice, the second time as {name}", name))
        renamed[own] = value
    return renamed, problems


def missing_arguments(
    values: Mapping[str, Any], arguments: Mapping[str, Argument], module: str
) -> list[ArgumentProblem]:
    """A problem for each required argument that is not there."""
    return [
        ArgumentProblem(
            f"{module} needs {name}" + (f" ({argument.description})" if argument.description else "")
        )
        for name, argument in arguments.items()
        if argument.required and values.get(name) is None
    ]


def converted(values: Mapping[str, Any], arguments: Mapping[str, Argument], module: str) -> Json:
    """Every argument with its final value; absent ones have their default. Raises ArgumentProblem."""
    result: Json = {}
    for name, argument in arguments.items():
        if argument.refused:
            continue
        value = values.get(name)
        result[name] = argument.default if value is None else convert(name, value, argument)
    for problem in missing_arguments(result, arguments, module):
        raise problem
    return result


def convert(name: str, value: Any, argument: Argument) -> Any:
    """``value`` as the argument's type. Raises ArgumentProblem in words a reader can act on."""
    result = TYPES[argument.type](name, value)
    if argument.choices:
        for word in result if isinstance(result, list) else [result]:
            if word not in argument.choices:
                known = ", ".join(argument.choices)
                raise ArgumentProblem(
                    f"{name} must be one of {known}, not {shown(word)}{near(str(word), argument.choices)}",
                    name,
                )
    return result


def shown(value: Any) -> str:
    """A value as a message quotes it; a secret shows nothing."""
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else str(value)


def _text(name: str, value: Any) -> Any:
    if isinstance(value, (str, Secret)):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = "; write it in quotes" if isinstance(value, bool) else ""
        raise ArgumentProblem(f"{name} must be text, not {shown(value)}{hint}", name)
    return str(value)


def _plain_text(name: str, value: Any) -> str:
    text = _text(name, value)
    if isinstance(text, Secret):
        raise ArgumentProblem(f"{name} must not hold a secret ({text.name}): it would be shown", name)
    return str(text)


def _path(name: str, value: Any) -> str:
    path = _plain_text(name, value)
    if not path.startswith("/"):
        raise ArgumentProblem(f"{name} must be an absolute path, not {shown(path)}", name)
    return path


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, (str, int)) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ArgumentProblem(f"{name} must be true or false, not {shown(value)}", name)


def _integer(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+\s*", value):
        return int(value)
    raise ArgumentProblem(f"{name} must be a whole number, not {shown(value)}", name)


def _number(name: str, value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        return float(str(value))
    except ValueError:
        raise ArgumentProblem(f"{name} must be a number, not {shown(value)}", name) from None


def _mode(name: str, value: Any) -> str:
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if isinstance(value, int) and not text.startswith("0"):
        raise ArgumentProblem(
            f'{name} must be octal digits in quotes, such as "0644", not the number {value}', name
        )
    if not _MODE.match(text):
        raise ArgumentProblem(
            f'{name} must be octal digits in quotes, such as "0644", not {shown(value)}', name
        )
    return text.zfill(4)


def _list(name: str, value: Any) -> list[Any]:
    if isinstance(value, list):
        return [_text(name, each) for each in value]
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [_text(name, value)]


def _lines(name: str, value: Any) -> list[Any]:
    """A list whose texts may hold commas (argument vectors, messages, conditions)."""
    return [
        each if isinstance(each, bool) else _text(name, each)
        for each in (value if isinstance(value, list) else [value])
    ]


def _integers(name: str, value: Any) -> list[int]:
    return [_integer(name, each) for each in (value if isinstance(value, list) else [value])]


def _mapping(name: str, value: Any) -> Json:
    if isinstance(value, dict):
        return value
    raise ArgumentProblem(f"{name} must be a mapping (key: value), not {shown(value)}", name)


def _command(name: str, value: Any) -> list[str]:
    """An argument vector, given as a list or as one line."""
    if isinstance(value, list):
        return [_plain_text(name, each) for each in value]
    text = _plain_text(name, value)
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ArgumentProblem(f"{name} cannot be split into words: {error}", name) from None


def _bytes(name: str, value: Any) -> int:
    """A size: bytes as a number, or text such as ``10 GB`` (powers of 1000) or ``10 GiB`` (of 1024)."""
    match = (
        re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)[bB]?\s*", str(value))
        if not isinstance(value, bool)
        else None
    )
    if match is None:
        raise ArgumentProblem(f"{name} must be a size such as 10 GB, not {shown(value)}", name)
    power = "kmgt".index(match[2].lower()) + 1 if match[2] else 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def _any(name: str, value: Any) -> Any:
    return value


TYPES: Mapping[str, Callable[[str, Any], Any]] = {
    "text": _text,
    "plain": _plain_text,
    "path": _path,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "mode": _mode,
    "list": _list,
    "lines": _lines,
    "integers": _integers,
    "mapping": _mapping,
    "command": _command,
    "bytes": _bytes,
    "any": _any,
    # Jinja expressions without braces; the compiler evaluates them before the module sees them.
    "expression": _any,
    "expressions": _any,
}
