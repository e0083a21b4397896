"""Which hosts a read-only command asks, and what their facts leave open: ``fleet health`` and ``fleet audit`` share it.

How they are asked is in :mod:`fleet.run.live`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.core.errors import InputError
from fleet.inventory import Host, LoadOptions, load_inventory

if TYPE_CHECKING:  # SSH costs a quarter of a second to import, and not everything asks a host
    from fleet.run.live import Asking

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """Which hosts, and how; ``how`` is None where they are not asked, or in the usual way."""

    inventory: str
    limit: str | None = None
    how: Asking | None = None


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
    for name, value in facts.items():
        if value == "permission" and name.endswith("_reason"):
            yield prefix + name[: -len("_reason")]
        elif type(value) is dict and name != "absent":
            yield from not_permitted(value, f"{prefix}{name}.")
