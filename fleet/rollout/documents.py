"""A rollout's fixed part, strategy and members, as the store keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.rollout.members import Member
from fleet.rollout.strategy import Strategy
from fleet.rollout.window import Window

_PLAIN = ("name", "unit", "domain", "claim", "left_out", "last")


def document_of(strategy: Strategy, members: Sequence[Member]) -> dict[str, Any]:
    """What :func:`from_document` needs."""
    return {
        "strategy": strategy.as_json(),
        "members": [
            {
                **{name: getattr(member, name) for name in _PLAIN},
                "window": str(member.window) if member.window is not None else None,
            }
            for member in members
        ],
    }


def from_document(document: Mapping[str, Any]) -> tuple[Strategy, list[Member]]:
    """The strategy and members of a stored rollout."""
    members = [
        Member(
            **{name: one[name] for name in _PLAIN},
            window=Window.read(one["window"]) if one["window"] is not None else None,
        )
        for one in document["members"]
    ]
    return Strategy.from_json(document["strategy"]), members
