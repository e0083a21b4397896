"""Asking hosts for facts once, as root where that works: what ``fleet health`` and ``fleet audit`` share.

Nothing is written on a host and no lease is taken. A host where fleet may not become root is asked as the user who
logs in; :func:`unread` says what that leaves open. Looking again and again is :mod:`fleet.run.live`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import BecomeFailed, InputError
from fleet.inventory import Host, LoadOptions, load_inventory

if TYPE_CHECKING:  # SSH costs a quarter of a second to import, and not everything asks a host
    from fleet.transport import Connector

FACTS_DEADLINE_S = 120.0

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """Which hosts, and how many at once."""

    inventory: str
    limit: str | None = None
    forks: int = 50
    accept_new: bool = False


@dataclass(frozen=True)
class Answer:
    """What one host said. ``notes``: why it was not asked as root."""

    facts: Facts
    as_root: bool
    notes: tuple[str, ...] = ()


def chosen_hosts(asked: Asked, load: LoadOptions) -> list[Host]:
    """The hosts that are meant, in inventory order. Raises InputError where there is none."""
    inventory = load_inventory(asked.inventory, options=load)
    hosts = list(inventory.select(asked.limit))
    if not hosts:
        raise InputError(
            f"no host of {asked.inventory} is in --limit",
            remedy=f"fleet inventory {asked.inventory} lists the hosts",
        )
    return hosts


def ask(settings: ConnectionSettings, connector: Connector, groups: Sequence[str]) -> Answer:
    """The facts of a host. Raises HostError where it gives none."""
    notes: tuple[str, ...] = ()
    try:
        agent = connector.connect(settings)
    except BecomeFailed as error:
        notes = (f"asked without root: {error.what}",)
        agent = connector.connect(replace(settings, become=replace(settings.become, enabled=False)))
    with closing(agent):
        as_root = agent.hello.get("uid") == 0
        facts: Facts = agent.request("facts", {"groups": list(groups)}, deadline_s=FACTS_DEADLINE_S)
    return Answer(facts, as_root, notes)


def unread(facts: Facts) -> list[str]:
    """In words: what could not be read of a host, and why."""
    denied = sorted(not_permitted(facts))
    notes = [f"not permitted to read: {', '.join(denied)}"] if denied else []
    errors = facts.get("errors") or []
    return notes + [f"could not be read: {error.get('group')}: {error.get('message')}" for error in errors]


def not_permitted(facts: Any, prefix: str = "") -> Iterator[str]:
    """The dotted paths of what is null because reading it was not permitted."""
    if type(facts) is not dict:  # JSON has no other kind; asking for a Mapping takes four times as long
        return
    for name, value in facts.items():
        if value == "permission" and name.endswith("_reason"):
            yield prefix + name[: -len("_reason")]
        elif type(value) is dict and name != "absent":
            yield from not_permitted(value, f"{prefix}{name}.")
