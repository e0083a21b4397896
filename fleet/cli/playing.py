"""What ``provision``, ``run`` and ``resume`` share: building a run's surroundings, Ctrl-C, the exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from fleet.core.errors import InputError

if TYPE_CHECKING:
    from fleet.cli.options import Session
    from fleet.core.events import Subscriber
    from fleet.core.log import LogFile
    from fleet.core.secret import Secret
    from fleet.inventory import LoadOptions
    from fleet.run.asking import Asking
    from fleet.run.control import Control
    from fleet.run.engine import RunResult
    from fleet.run.launch import Surroundings
    from fleet.run.request import RunRequest

_LIBRARIES = ("paramiko", "fabric", "invoke", "fleet.transport")


def play(session: Session, request: RunRequest, load: LoadOptions) -> int:
    """Start a run and see it to its end; the exit code."""
    from fleet.lab.presence import refuse_if_down
    from fleet.run.launch import launch

    refuse_if_down(request.inventory)
    with surroundings(session, load) as around:
        return _see_through(lambda: launch(request, around), around)


def go_on(session: Session, prefix: str, load: LoadOptions) -> int:
    """Resume a run and see it to its end; the exit code."""
    from fleet.lab.presence import refuse_if_down
    from fleet.run.launch import resume

    with surroundings(session, load) as around:
        row = around.store.find_run(prefix)
        refuse_if_down(row.inventory)
        return _see_through(lambda: resume(row, around), around)


@contextmanager
def surroundings(session: Session, load: LoadOptions, *, silent: bool = False) -> Iterator[Surroundings]:
    """The store, the console and the log of this process, closed at the end. ``silent``: no console."""
    from fleet.report.console import LogSubscriber
    from fleet.run.launch import Surroundings

    with session.store() as store, _libraries_logged(session.log):
        console = [LogSubscriber(session.log)] if silent else [session.console(), LogSubscriber(session.log)]
        yield Surroundings(store=store, scrubber=session.scrubber, console=console, load=load)


@contextmanager
def _libraries_logged(log: LogFile) -> Iterator[None]:
    """What paramiko and its kin have to say goes to the log file, never on the screen."""
    import logging

    from fleet.core.log import library_handler

    handler = library_handler(log)
    loggers = [logging.getLogger(name) for name in _LIBRARIES]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _see_through(start: Callable[[], RunResult], around: Surroundings) -> int:
    return int(see_through(start, around).exit_code)


def see_through(start: Callable[[], RunResult], around: Surroundings) -> RunResult:
    """A run from its start to its end, Ctrl-C heard meanwhile."""
    with _interrupts(around.control, _teller(around.console)):
        return start()


def _teller(consoles: Iterable[Subscriber]) -> Callable[[str], None]:
    """How to say something amid a run: under the live table where there is one, else on standard error."""
    from fleet.report.live import LiveConsole

    tables = [console for console in consoles if isinstance(console, LiveConsole)]

    def tell(words: str) -> None:
        if not any(table.notice(words) for table in tables):
            click.echo(words, err=True)

    return tell


@contextmanager
def _interrupts(control: Control, tell: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C once cancels at the next step edge, twice detaches."""

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if control.interrupt() == "cancel":
            tell("stopping at the next step edge; Ctrl-C again leaves the hosts to go on alone")
        else:
            tell("detached: the hosts go on alone; fleet resume goes on watching them")

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def asking(options: Mapping[str, Any]) -> Asking:
    """How a read-only command asks hosts, by its ``options`` (:data:`.options.host_options` and the connection's)."""
    from fleet.run.asking import Asking

    return Asking(options.get("become", True), options["forks"], options["accept_new"])


def load_options(session: Session, options: Mapping[str, Any]) -> LoadOptions:
    """What a command's ``options`` (:data:`.options.connection_options`, perhaps extra_vars) add to the inventory.

    Prompts for what is to be asked for; secrets go to the scrubber.
    """
    from fleet.core.secret import Secret
    from fleet.inventory import LoadOptions
    from fleet.inventory.vault import read_password

    become: Secret | None = None
    if options["ask_become_pass"]:
        become = Secret(_asked("sudo password"), "-K")
        session.scrubber.add(become)
    vault: Secret | None = None
    if options["vault_password_file"] is not None:
        vault = read_password(options["vault_password_file"])
        session.scrubber.add(vault)
    return LoadOptions(
        vault_password=vault,
        accept_new=options["accept_new"],
        ssh_config=options["ssh_config"],
        become_password=become,
        extra_vars=extra_variables(options.get("extra_vars", ())),
    )


def _asked(what: str) -> str:
    """What is typed on the terminal, also where standard input is a pipe. InputError without a terminal."""
    import os

    if not sys.stdin.isatty():
        try:
            os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        except OSError:
            raise InputError(
                f"there is no terminal to ask for the {what} on",
                remedy="set ansible_become_password in the inventory, for example: !secret env SUDO_PASSWORD",
            ) from None
    return str(click.prompt(what, hide_input=True, err=True))


def extra_variables(given: Iterable[tuple[str, Any]]) -> Mapping[str, object]:
    """The ``-e`` options as one mapping, later ones winning."""
    variables: dict[str, object] = {}
    for kind, content in given:
        if kind == "pair":
            variables[content[0]] = content[1]
        elif kind == "json":
            variables.update(content)
        else:
            variables.update(_file_variables(content))
    return variables


def _file_variables(path: Path) -> Mapping[str, object]:
    from fleet.core.errors import Position, Problem
    from fleet.core.yaml import plain, read_yaml

    document = read_yaml(path)
    if document.problems:
        raise InputError(document.problems)
    variables = plain(document.root) if document.root is not None else {}
    if not isinstance(variables, dict):
        raise InputError([Problem(Position(str(path), 1, 1), "a file for -e holds a mapping of variables")])
    return variables
