"""``fleet``: the table of commands, and what becomes of an error.

:func:`main` is the only place where an exit code is made from an exception. Importing this module
imports click and little else: ``fleet --help`` must answer at once.
"""

from __future__ import annotations

import difflib
import os
import select
import sys
from collections.abc import Sequence
from typing import TextIO

import click

import fleet
from fleet.cli.lazy import LazyGroup
from fleet.cli.options import Session
from fleet.core.errors import ExitCode, FleetError, InputError

COMMANDS = {
    "provision": (
        "fleet.cli.provision:provision",
        "Make every host match: Docker and the pinned image.",
    ),
    "run": ("fleet.cli.run:run", "Run any playbook."),
    "audit": ("fleet.cli.audit:audit", "Which host runs which image, why not, and what would help."),
    "health": ("fleet.cli.health:health", "Are the GPUs of every host healthy?"),
    "bench": ("fleet.cli.bench:bench", "Measure what the GPUs do, and judge it."),
    "exec": ("fleet.cli.exec:exec_", "Run one command on many hosts."),
    "inventory": (
        "fleet.cli.inventory:inventory",
        "Check an inventory, list its hosts, explain one host.",
    ),
    "status": ("fleet.cli.status:status", "What every GPU does now, and for whom."),
    "runs": ("fleet.cli.runs:runs", "List past runs, show one."),
    "resume": ("fleet.cli.resume:resume", "Go on with what a run left."),
    "report": ("fleet.cli.report:report", "Show a run's reports."),
    "unlock": ("fleet.cli.unlock:unlock", "Clear a run's lock on a host."),
    "lab": ("fleet.cli.lab:lab", "Real hosts on this machine, to try things on."),
    "schema": ("fleet.cli.schema:schema", "The published schemas: list, show, check a file."),
    "catalogue": ("fleet.cli.catalogue:catalogue", "The facts fleet decides by: show, check."),
    "agent": ("fleet.cli.agent:agent", "What the agent sees, on this machine."),
}

#: Set by the shell when it asks for completions: ``eval "$(_FLEET_COMPLETE=bash_source fleet)"``.
COMPLETION = "_FLEET_COMPLETE"

#: What a shell says of a program whose reader has gone (128 + SIGPIPE).
READER_GONE = 141


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  fleet inventory site.yaml                    is it valid, and who is in it?
  fleet provision site.yaml --check --diff     what would change
  fleet provision site.yaml                    make it so
  fleet report last                            how each host ended, and why
  fleet audit site.yaml                        does the image run there, and what would make it so?
  fleet bench site.yaml                        what the GPUs do, judged
  fleet resume last                            go on with what was left
  fleet lab up inventories/lab.yaml            real hosts on this machine, to try all this on

\b
Exit codes, the first that applies:
  130 interrupted    70 a bug in fleet    2 bad input or refused: nothing was touched
  1 a host failed or was blocked    3 a host was unreachable    5 a host waits for leave
  4 something was found    0 done""",
)
@click.version_option(fleet.__version__, "-V", "--version", prog_name="fleet", message="%(prog)s %(version)s")
def cli() -> None:
    """GPU hosts from a YAML list to a pinned, proven PyTorch-CUDA image, over plain SSH."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. ``arguments`` None means the process's own."""
    session = Session()
    try:
        if COMPLETION in os.environ:
            cli.main(prog_name="fleet")
        # Not cli.main(): it would make a broken pipe anywhere a plain exit 1.
        words = sys.argv[1:] if arguments is None else list(arguments)
        with cli.make_context("fleet", words, obj=session) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
        return int(result) if isinstance(result, int) else ExitCode.DONE
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted. exit 130")
        return ExitCode.INTERRUPTED
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        return _usage(error)
    except FleetError as error:
        return _failed(error, session)
    except BrokenPipeError as error:
        return READER_GONE if _reader_gone(sys.stdout) else _bug(error, session)
    except Exception as error:
        return _bug(error, session)
    finally:
        session.close()


def _usage(error: click.ClickException) -> int:
    """A mistake in the words of the command line, in the form every other bad input has."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "fleet"
    if context is not None and isinstance(error, click.UsageError) and _is_help(error):
        _say(context.get_help())
        return ExitCode.BAD_INPUT
    _say(f"{command}: {_usage_words(error)}", f"  {command} --help shows how")
    _say("1 problem; nothing was touched. exit 2")
    return ExitCode.BAD_INPUT


def _is_help(error: click.UsageError) -> bool:
    """Whether click raised it to show the help of a group called without a command (click 8.2 on)."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _usage_words(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        known = [name for option in (error.ctx.command.params if error.ctx else ()) for name in option.opts]
        near = difflib.get_close_matches(error.option_name, known, n=1)
        if near:
            return f"there is no option {error.option_name}; did you mean {near[0]}?"
        where = (
            "; a command's options stand after its name"
            if isinstance(error.ctx and error.ctx.command, LazyGroup)
            else ""
        )
        return f"there is no option {error.option_name}{where}"
    message = error.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}"


def _failed(error: FleetError, session: Session) -> int:
    scrub = session.scrubber
    if isinstance(error, InputError):
        count = len(error.problems)
        words = (
            f"{count} problem{'s' if count != 1 else ''}; nothing was touched. exit {int(error.exit_code)}"
        )
        _say(*map(scrub, input_lines(error)), words)
        return error.exit_code
    session.log.error(error.what, host=error.host or "-", kind=type(error).__name__)
    lines = [f"{error.host}: {error.what}" if error.host else error.what]
    if error.remedy:
        lines.append(f"  remedy: {error.remedy}")
    _say(*map(scrub, lines), f"exit {int(error.exit_code)}", f"log: {session.log.shown}")
    return error.exit_code


def input_lines(error: InputError) -> list[str]:
    """Every problem on its line, the messages under one another, then the remedy if there is one."""
    places = [f"{problem.position}: " if problem.position else "" for problem in error.problems]
    width = max(map(len, places), default=0)
    lines = [
        f"{place:<{width}}{problem.message}" if place else problem.message
        for place, problem in zip(places, error.problems, strict=True)
    ]
    return [*lines, f"  remedy: {error.remedy}"] if error.remedy else lines


def _bug(error: BaseException, session: Session) -> int:
    """What fleet did not foresee: one line on the screen, the traceback in the log."""
    log = session.log
    log.traceback("bug in fleet " + fleet.__version__, error)
    where = f"could not be logged ({log.broken})" if log.broken else f"is in {log.shown}"
    words = session.scrubber(f"{type(error).__name__}: {error}".replace("\n", " "))
    _say(f"bug in fleet: {words}; the traceback {where}; please report it")
    return ExitCode.BUG


def _say(*lines: str) -> None:
    """Lines on standard error; a stream that has gone, or cannot spell them, is no second error."""
    try:
        click.echo("\n".join(lines).encode("utf-8", "replace").decode("utf-8"), err=True)
    except (BrokenPipeError, UnicodeEncodeError):
        _reader_gone(sys.stderr)


def _reader_gone(stream: TextIO) -> bool:
    """Whether nobody reads ``stream`` any more; then it is pointed at /dev/null, so that exit is quiet."""
    try:
        descriptor = stream.fileno()
    except OSError:  # not a file: a test's, or an embedding program's
        return False
    asked = select.poll()
    asked.register(descriptor, 0)
    if not any(answer & (select.POLLERR | select.POLLHUP) for _, answer in asked.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return True
