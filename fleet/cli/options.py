"""The options that commands share, and the session that carries what they say.

A command takes what it needs: ``@inventory_argument``, ``@host_options`` (which hosts),
``@play_options`` (how a playbook runs), ``@connection_options`` (how hosts are reached) and
``@output_options``; the last one fills in the :class:`Session`, received by ``@click.pass_obj``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from fleet.core.events import Subscriber
    from fleet.core.log import LogFile
    from fleet.core.secret import Scrubber
    from fleet.report.narrate import Verbosity
    from fleet.store import Store

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_FORKS = 50


class Session:
    """One call of fleet: how much it says, its log, and the one scrubber of every sink.

    Log and scrubber are made when first used, so that ``--help`` costs nothing.
    """

    def __init__(self) -> None:
        self.level = 0
        self.json = False
        self.diff = False
        self.log_path: Path | None = None
        self._log: LogFile | None = None
        self._scrubber: Scrubber | None = None

    @property
    def scrubber(self) -> Scrubber:
        """Knows every secret of this process; add to it where a secret is read."""
        if self._scrubber is None:
            from fleet.core.secret import Scrubber

            self._scrubber = Scrubber()
        return self._scrubber

    @property
    def log(self) -> LogFile:
        """The log file, opened with its first line."""
        if self._log is None:
            from fleet.core.log import LogFile

            self._log = LogFile(self.log_path, self.scrubber)
        return self._log

    @property
    def verbosity(self) -> Verbosity:
        """What ``-v``, ``-q`` and ``--diff`` add up to."""
        from fleet.report.narrate import Verbosity

        return Verbosity(self.level, self.diff)

    def console(self) -> Subscriber:
        """What shows a run on standard output."""
        from fleet.report.console import console_for

        return console_for(
            sys.stdout, json=self.json, verbosity=self.verbosity, log=self.log, scrub=self.scrubber
        )

    def store(self) -> Store:
        """The store, opened when it is first used. ``$FLEET_STORE`` may name a PostgreSQL one."""
        import os

        from fleet.store import Store

        return Store(os.environ.get("FLEET_STORE") or None, scrub=self.scrubber)

    def print_json(self, document: Any) -> None:
        """One scrubbed document on standard output."""
        from fleet.core.documents import json_text

        click.echo(json_text(document, self.scrubber, indent=2))

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()


def extra_variables(
    ctx: click.Context, param: click.Parameter, values: Iterable[str]
) -> tuple[tuple[str, Any], ...]:
    """Each ``-e`` as ``("pair", (key, text))``, ``("file", Path)`` or ``("json", dict)``, in order.

    The kind is told here; reading files and typing values is the inventory's work.
    """
    return tuple(_extra_variable(ctx, param, value) for value in values)


def _extra_variable(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, Any]:
    if value.startswith("@"):
        path = Path(value[1:]).expanduser()
        if not path.is_file():
            raise click.BadParameter(f"there is no file {path}", ctx, param)
        return "file", path
    if value.lstrip().startswith("{"):
        return "json", _json_object(ctx, param, value)
    key, equals, content = value.partition("=")
    if not equals or not key.isidentifier():
        raise click.BadParameter(f"{value!r} is not KEY=VALUE, @FILE or a JSON object", ctx, param)
    return "pair", (key, content)


def _json_object(ctx: click.Context, param: click.Parameter, text: str) -> Any:
    from fleet.agent import strict_json

    try:
        return strict_json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", ctx, param) from error


def words(ctx: click.Context, param: click.Parameter, values: Iterable[str]) -> tuple[str, ...]:
    """``--tags a,b --tags c`` as ``(a, b, c)``."""
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """A callback that keeps an option's value in the session."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            setattr(ctx.ensure_object(Session), name, value)

    return keep


def _quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Session).level = -1


def _all(*decorators: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Decorators as one, listed in help in the order given."""

    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


inventory_argument = click.argument("inventory", metavar="INVENTORY", type=click.Path(path_type=str))
"""A file, a folder, or ``-`` for Ansible's JSON on standard input; checked where it is read."""

host_options = _all(
    click.option("--limit", "-l", metavar="PATTERN", help="Only these hosts: names, groups, patterns."),
    click.option(
        "--forks",
        "-f",
        type=click.IntRange(1, 5000),
        metavar="NUMBER",
        default=DEFAULT_FORKS,
        show_default=True,
        help="Hosts worked on at once.",
    ),
)

play_options = _all(
    click.option("--check", "-C", is_flag=True, help="Say what would change; change nothing."),
    click.option(
        "--diff",
        "-D",
        is_flag=True,
        expose_value=False,
        callback=_keep("diff"),
        help="Show the differences of each step.",
    ),
    click.option(
        "--tags",
        "-t",
        metavar="WORD,…",
        multiple=True,
        callback=words,
        help="Only tasks with one of these tags.",
    ),
    click.option(
        "--skip-tags",
        metavar="WORD,…",
        multiple=True,
        callback=words,
        help="No task with one of these tags.",
    ),
    click.option(
        "--extra-vars",
        "-e",
        metavar="VARS",
        multiple=True,
        callback=extra_variables,
        help="Variables above all others: KEY=VALUE, @FILE.yaml or a JSON object; may be repeated.",
    ),
    click.option(
        "--disrupt",
        is_flag=True,
        help="Give leave for what disturbs running work: restart the engine, stop containers, reboot.",
    ),
)

connection_options = _all(
    click.option("--ask-become-pass", "-K", is_flag=True, help="Ask for sudo's password once."),
    click.option(
        "--vault-password-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Holds the password of !vault values; a program is run. Default: $ANSIBLE_VAULT_PASSWORD_FILE.",
    ),
    click.option(
        "--accept-new",
        is_flag=True,
        help="Pin the key of a host not yet on file. A changed key always stops that host.",
    ),
    click.option(
        "--ssh-config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Read this instead of ~/.ssh/config.",
    ),
)

output_options = _all(
    click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_keep("json"),
        help="One JSON document on standard output, nothing else there.",
    ),
    click.option(
        "--verbose",
        "-v",
        count=True,
        expose_value=False,
        callback=_keep("level"),
        help="Also what did not change; -vv also what steps print.",
    ),
    click.option(
        "--quiet",
        "-q",
        is_flag=True,
        expose_value=False,
        callback=_quiet,
        help="Only the totals, and hosts that are not well.",
    ),
    click.option(
        "--log-file",
        type=click.Path(dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_keep("log_path"),
        help="Log there instead of fleet.log in the state directory.",
    ),
)
