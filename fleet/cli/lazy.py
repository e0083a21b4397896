"""Click groups: one that words a wrong command, and one that imports a command only when it is called."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class Group(click.Group):
    """A group whose answer to a wrong command names the near ones, or all there are."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest names in the message when there is no such command."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-"):
            near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
            hint = f"; did you mean {' or '.join(near)}?" if near else f"; there are: {', '.join(known)}"
            raise click.UsageError(f"there is no command {name}{hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """``table`` maps a command's name to (``module:attribute``, one line of help)."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **named: Any) -> None:
        super().__init__(*args, **named)
        self.table = dict(table)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the table's order, which is the order of use rather than of the alphabet."""
        return list(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the command; None when there is none of that name."""
        if name not in self.table:
            return None
        module, _, attribute = self.table[name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{module}:{attribute} is no command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table's help lines; nothing is imported for them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in self.table.items()])
