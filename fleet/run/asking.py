"""Which hosts a read-only command asks and how, and what an answer leaves open: health, audit, status, bench.

Kept apart from :mod:`fleet.run.live`, which does the asking: SSH costs a quarter of a second to import, and reports
of a store or a folder need none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.core.errors import InputError
from fleet.inventory import Host, LoadOptions, load_inventory

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Asking:
    """How hosts are asked. ``become``: as root where the inventory says so and it works, else as who logs in."""

    become: bool = True
    forks: int = 50
    accept_new: bool = False


@dataclass(frozen=True)
class Asked:
    """Which hosts, and how."""

    inventory: str
    limit: str | None = None
    how: Asking = field(default_factory=Asking)


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
    if "permission" in facts.values():  # seldom, and looked for without a step per value
        for name, value in facts.items():
            if value == "permission" and name.endswith("_reason"):
                yield prefix + name[: -len("_reason")]
    for name in [name for name, value in facts.items() if type(value) is dict and value]:
        if name != "absent":
            yield from not_permitted(facts[name], f"{prefix}{name}.")
