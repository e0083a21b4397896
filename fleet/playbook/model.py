"""What a playbook says, read and checked, before any host is looked at.

Values are raw: strings may be templates, rendered per host by :mod:`fleet.playbook.compile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.core.errors import Position


@dataclass(frozen=True)
class Expression:
    """A bare Jinja expression and where it stands."""

    text: str
    position: Position


@dataclass(frozen=True)
class Loop:
    """``loop:`` with its ``loop_control``."""

    over: Any
    position: Position
    variable: str = "item"
    index: str | None = None
    label: Any = None


@dataclass(frozen=True)
class Task:
    """One task or handler. ``number`` counts through the whole playbook and starts its steps' ids.

    ``places`` gives the position of each argument. ``become_user`` is None for root; ``login_user``
    (``become: false``) means the user of the connection. ``notify`` holds names of handlers, ``listen``
    already resolved.
    """

    number: int
    name: Any
    module: str
    position: Position
    arguments: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Position] = field(default_factory=dict)
    when: tuple[Expression, ...] = ()
    loop: Loop | None = None
    notify: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    become: bool | None = None
    become_user: Any = None
    register: str | None = None
    ignore_errors: bool = False
    vars: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    handler: bool = False
    listen: tuple[str, ...] = ()

    def place(self, argument: str | None) -> Position:
        """Where an argument stands; the task itself where that is not known."""
        return self.places.get(argument or "", self.position)

    @property
    def title(self) -> str:
        """The name as written, or the module's."""
        return str(self.name) if self.name else self.module


FLUSH = "flush_handlers"


# Groups of facts read for a play with ``gather_facts: false``: who the host is, and its packages, which
# every package task looks at.
LEAST_FACTS = ("identity", "os_release", "kernel", "packages")


@dataclass(frozen=True)
class Play:
    """One play. ``serial`` holds batch sizes as written (numbers, or text such as ``30%``).

    ``defaults`` give way to the inventory's variables; ``vars`` override them. Without ``gather_facts`` only
    the facts are read that every task may need (:data:`LEAST_FACTS`).
    """

    hosts: str
    name: str
    position: Position
    directory: Path
    defaults: Mapping[str, Any] = field(default_factory=dict)
    vars: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[Task, ...] = ()
    handlers: tuple[Task, ...] = ()
    serial: tuple[int | str, ...] = ()
    max_fail_percentage: float | None = None
    any_errors_fatal: bool = False
    gather_facts: bool = True

    @property
    def fact_groups(self) -> tuple[str, ...] | None:
        """The groups of facts its compiler needs; None: all."""
        return None if self.gather_facts else LEAST_FACTS


@dataclass(frozen=True)
class Playbook:
    """A whole playbook; ``name`` is what the operator called it."""

    name: str
    path: Path
    plays: tuple[Play, ...]
