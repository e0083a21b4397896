"""A strategy from the inventory's variable ``rollout`` and the command line, with the place of whatever is wrong.

The command line wins key by key. ``rollout`` is about the whole run, so all hosts must have the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from fleet.core.errors import InputError, Position, Problem
from fleet.inventory import Host
from fleet.rollout.amounts import Amount
from fleet.rollout.members import Member
from fleet.rollout.strategy import OnFailure, Strategy, check
from fleet.rollout.window import Window

VARIABLE = "rollout"
_SHOWN = 3
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Given:
    """One value as given, and where: no position for the command line's."""

    value: object
    position: Position | None


def read_strategy(
    hosts: Sequence[Host], words: Mapping[str, object], *, excluded: Mapping[str, str] | None = None
) -> tuple[Strategy, list[Member]]:
    """The strategy and the members it was checked against.

    ``words`` are keys of the command line; ``excluded`` names hosts that only count, with the reason. Raises
    InputError with every problem found.
    """
    given = {**_from_inventory(hosts), **{key: Given(value, None) for key, value in words.items()}}
    for one, other in (("batches", "as_drained"), ("as_drained", "batches")):
        if one in words and other not in words:
            given.pop(other, None)  # what the inventory says of the other way is overridden, too
    problems: list[Problem] = []
    strategy = _parsed(given, problems)
    members = _members(hosts, strategy, given, excluded or {}, problems)
    if not problems:
        for key, message in check(strategy, members):
            problems.append(Problem(given[key].position if key in given else None, f"{key}: {message}"))
    if problems:
        raise InputError(problems)
    return strategy, members


def _from_inventory(hosts: Sequence[Host]) -> dict[str, Given]:
    """The keys of ``rollout``; the first host's, after all others were found to have the same."""
    first: Host | None = None
    for host in hosts:
        if first is None:
            first = host
        elif host.variables.get(VARIABLE) != first.variables.get(VARIABLE):
            one, other = (_place(each, VARIABLE) for each in (first, host))
            where = f"; {first.name} has it from {one}" if one else f"; {first.name} has none"
            message = (
                f"{VARIABLE} is about the whole run, but {host.name} has another one than {first.name}{where}"
            )
            raise InputError([Problem(other or one, f"{message}. Set it once, for all")])
    value = first.variables.get(VARIABLE) if first is not None else None
    if first is None or value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError([Problem(_place(first, VARIABLE), f"{VARIABLE} must be a mapping, not {value!r}")])
    return {str(key): Given(item, _place(first, VARIABLE, str(key))) for key, item in value.items()}


def _place(host: Host, *path: str) -> Position | None:
    try:
        return host.origin(*path).position
    except KeyError:
        return None


def _parsed(given: Mapping[str, Given], problems: list[Problem]) -> Strategy:
    values: dict[str, Any] = {}
    for key, one in given.items():
        reader = _READERS.get(key)
        if reader is None:
            near = get_close_matches(key, _READERS, 1)
            advice = f"did you mean {near[0]}?" if near else "known are " + ", ".join(_READERS)
            problems.append(Problem(one.position, f"{VARIABLE}: there is no {key}; {advice}"))
            continue
        try:
            name, read = reader
            values[name] = read(one.value)
        except ValueError as error:
            problems.append(Problem(one.position, f"{key} {error}"))
    if values.get("as_drained") and values.get("batches"):
        problems.append(Problem(given["as_drained"].position, "as_drained and batches exclude each other"))
    for key, other in (
        ("max_unavailable_per_domain", "failure_domain"),
        ("failure_domain", "max_unavailable_per_domain"),
    ):
        if values.get(key) is not None and other not in given:
            problems.append(Problem(given[key].position, f"{key} needs {other} beside it"))
    return replace(Strategy(), **values)


def _members(
    hosts: Sequence[Host],
    strategy: Strategy,
    given: Mapping[str, Given],
    excluded: Mapping[str, str],
    problems: list[Problem],
) -> list[Member]:
    domains = _named("failure_domain", strategy.failure_domain, hosts, given, problems)
    units = _named("unit", strategy.unit, hosts, given, problems)
    without = [host for host in hosts if strategy.failure_domain is not None and host.name not in domains]
    if domains and without:
        names = ", ".join(host.name for host in without[:_SHOWN])
        more = f" and {len(without) - _SHOWN} more" if len(without) > _SHOWN else ""
        message = f"failure_domain is {strategy.failure_domain}, which {names}{more} do not have: give it to every host"
        problems.append(Problem(without[0].position, message))
    return [
        Member(
            host.name,
            # A prefix, so that no unit's name is ever a host's.
            f"{strategy.unit} {units[host.name]}" if host.name in units else host.name,
            domains.get(host.name),
            claim=host.name,
            left_out=excluded.get(host.name),
            window=_own_window(host, problems),
        )
        for host in hosts
    ]


def _own_window(host: Host, problems: list[Problem]) -> Window | None:
    value = host.variables.get("maintenance_window")
    if value is None:
        return None
    try:
        return Window.read(value)
    except ValueError as error:
        problem = Problem(_place(host, "maintenance_window"), f"maintenance_window {error}")
        if problem not in problems:  # hosts of a group share one
            problems.append(problem)
        return None


def _named(
    key: str, variable: str | None, hosts: Sequence[Host], given: Mapping[str, Given], problems: list[Problem]
) -> dict[str, str]:
    """Host -> its value of the variable that ``key`` names. A name that no host has is a slip."""
    if variable is None:
        return {}
    found = {host.name: host.variables.get(variable) for host in hosts}
    values = {name: str(value) for name, value in found.items() if isinstance(value, (str, int))}
    if hosts and not values:
        near = get_close_matches(variable, [str(name) for name in hosts[0].variables], 1)
        advice = f"; did you mean {near[0]}?" if near else ""
        message = f"{key}: no host has a variable {variable} that is a text or a number{advice}"
        problems.append(Problem(given[key].position, message))
    return values


def _count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value):
        return int(value)
    raise ValueError(f"must be a number of hosts, not {value!r}")


def _batches(value: object) -> tuple[Amount, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, int) and not isinstance(parts, bool):
        parts = [parts]
    if not isinstance(parts, (list, tuple)) or not parts:
        raise ValueError(f'must be such as "1,10%,50%", not {value!r}')
    amounts = tuple(Amount.read(part) for part in parts)
    if any(amount in (Amount(count=0), Amount(percent=0.0)) for amount in amounts):
        raise ValueError(f"must not hold an empty batch, as {value!r} does")
    return amounts


def _seconds(value: object) -> float:
    found = (
        re.fullmatch(r"\s*([0-9]{1,7})\s*([smh]?)\s*", str(value)) if not isinstance(value, bool) else None
    )
    if found is None:
        raise ValueError(f'must be seconds, or such as "10m" or "2h", not {value!r}')
    return float(int(found[1]) * _SECONDS[found[2]])


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"must be true or false, not {value!r}")


def _variable(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        return value
    raise ValueError(f"must be the name of an inventory variable, not {value!r}")


def _on_failure(value: object) -> OnFailure:
    try:
        return OnFailure(value)
    except ValueError:
        raise ValueError(f"must be pause, rollback or stop, not {value!r}") from None


#: The key as the operator writes it -> the strategy's field, and how its value is read.
_READERS: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "canary": ("canary", _count),
    "batches": ("batches", _batches),
    "as_drained": ("as_drained", _flag),
    "max_unavailable": ("max_unavailable", Amount.read),
    "failure_domain": ("failure_domain", _variable),
    "max_unavailable_per_domain": ("max_unavailable_per_domain", Amount.read),
    "unit": ("unit", _variable),
    "max_failures": ("max_failures", Amount.read),
    "soak": ("soak_s", _seconds),
    "window": ("window", Window.read),
    "on_failure": ("on_failure", _on_failure),
    "no_rollback": ("no_rollback", _flag),
    "confirm": ("confirm", _flag),
}
