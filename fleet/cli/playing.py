"""What ``provision``, ``run`` and ``resume`` share: building a run's surroundings, Ctrl-C, the exit code."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fleet.cli.options import Session
    from fleet.core.secret import Secret
    from fleet.inventory import LoadOptions
    from fleet.run.control import Control
    from fleet.run.engine import RunResult
    from fleet.run.launch import Surroundings
    from fleet.run.request import RunRequest


def play(session: Session, request: RunRequest, load: LoadOptions) -> int:
    """Start a run and see it to its end; the exit code."""
    from fleet.lab.presence import refuse_if_down
    from fleet.run.launch import launch

    refuse_if_down(request.inventory)
    with surroundings(session, load) as around:
        return _see_through(lambda: launch(request, around), around.control)


def go_on(session: Session, prefix: str, load: LoadOptions) -> int:
    """Resume a run and see it to its end; the exit code."""
    from fleet.lab.presence import refuse_if_down
    from fleet.run.launch import resume

    with surroundings(session, load) as around:
        row = around.store.find_run(prefix)
        refuse_if_down(row.inventory)
        return _see_through(lambda: resume(row, around), around.control)


@contextmanager
def surroundings(session: Session, load: LoadOptions) -> Iterator[Surroundings]:
    """The store, the console and the log of this process, closed at the end."""
    from fleet.report.console import LogSubscriber
    from fleet.run.launch import Surroundings

    with session.store() as store:
        console = [session.console(), LogSubscriber(session.log)]
        yield Surroundings(store=store, scrubber=session.scrubber, console=console, load=load)


def _see_through(start: Callable[[], RunResult], control: Control) -> int:
    with _interrupts(control):
        return int(start().exit_code)


@contextmanager
def _interrupts(control: Control) -> Iterator[None]:
    """Ctrl-C once cancels at the next step edge, twice detaches."""

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if control.interrupt() == "cancel":
            click.echo(
                "stopping at the next step edge; Ctrl-C again leaves the hosts to go on alone", err=True
            )
        else:
            click.echo("detached: the hosts go on alone", err=True)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def load_options(
    session: Session,
    *,
    ask_become_pass: bool,
    vault_password_file: Path | None,
    accept_new: bool,
    extra_vars: Iterable[tuple[str, Any]] = (),
) -> LoadOptions:
    """What the command line adds to the inventory, prompts included; secrets go to the scrubber."""
    from fleet.core.secret import Secret
    from fleet.inventory import LoadOptions
    from fleet.inventory.vault import read_password

    become: Secret | None = None
    if ask_become_pass:
        become = Secret(click.prompt("sudo password", hide_input=True, err=True), "-K")
        session.scrubber.add(become)
    vault: Secret | None = None
    if vault_password_file is not None:
        vault = read_password(vault_password_file)
        session.scrubber.add(vault)
    return LoadOptions(
        vault_password=vault,
        accept_new=accept_new,
        become_password=become,
        extra_vars=extra_variables(extra_vars),
    )


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
    from fleet.core.errors import InputError, Position, Problem
    from fleet.core.yaml import plain, read_yaml

    document = read_yaml(path)
    if document.problems:
        raise InputError(document.problems)
    variables = plain(document.root) if document.root is not None else {}
    if not isinstance(variables, dict):
        raise InputError([Problem(Position(str(path), 1, 1), "a file for -e holds a mapping of variables")])
    return variables
