"""``fleet status``: what every GPU does, and for whom, at this moment."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.options import Session, connection_options, host_options, inventory_argument, output_options

if TYPE_CHECKING:
    from fleet.report.gpu_status import HostRow
    from fleet.run.live import LiveFacts, Reading

WIDE = 160  # into a file or a pipe: a line per GPU holds much
GROUPS = ("gpus", "driver", "gpu_probe", "kernel_log")

EXAMPLES = """\b
Examples:
  fleet status site.yaml                     every GPU: load, memory, power, and who is on it
  fleet status site.yaml --limit rack3       one rack
  fleet status site.yaml --watch             again every two seconds, until Ctrl-C
  fleet status site.yaml --json              the same for programs (fleet.status/1)

Nothing is changed and nothing is written on the hosts. It logs in as the inventory's user, without sudo; with
--become it also sees the names of containers and the kernel log where only root may. Whether all
is healthy: fleet health.

\b
Exit codes: 0 every host answered, 2 bad input, 3 a host was unreachable."""


@click.command(epilog=EXAMPLES)
@inventory_argument
@host_options
@click.option(
    "--watch",
    "-w",
    type=click.FloatRange(0.2, 3600),
    metavar="SECONDS",
    is_flag=False,
    flag_value=2.0,
    default=None,
    help="Look again and again; every 2 seconds where no number is given.",
)
@click.option("--become", "-b", is_flag=True, help="Look as root where the inventory has it so and it works.")
@connection_options
@output_options
@click.pass_obj
def status(session: Session, /, inventory: str, **options: Any) -> int:
    """Show what every GPU of INVENTORY does, and for whom, at this moment."""
    from fleet.cli.playing import asking, load_options
    from fleet.inventory import load_inventory
    from fleet.lab.presence import refuse_if_down
    from fleet.run.live import LiveFacts

    refuse_if_down(inventory)
    load = load_options(session, options)
    hosts = load_inventory(inventory, options=load).select(options["limit"])
    with LiveFacts(hosts, GROUPS, session.scrubber, asking(options)) as live:
        return _show(session, live, options["watch"])


def _show(session: Session, live: LiveFacts, watch: float | None) -> int:
    from fleet.core.errors import ExitCode

    unreachable = False
    for rows in _looks(live, watch):
        unreachable = any(row.state == "unreachable" for row in rows)
        _print(session, rows, again=watch is not None)
    return int(ExitCode.UNREACHABLE if unreachable else ExitCode.DONE)


def _looks(live: LiveFacts, watch: float | None) -> Iterator[list[HostRow]]:
    """Once, or until Ctrl-C, which is how a watch ends; ``watch`` seconds lie between two beginnings."""
    if watch is None:
        yield _rows(live)
        return
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            began = time.monotonic()
            yield _rows(live)
            time.sleep(max(0.0, watch - (time.monotonic() - began)))


def _rows(live: LiveFacts) -> list[HostRow]:
    return [_row(reading) for reading in live.read().values()]


def _row(reading: Reading) -> HostRow:
    from dataclasses import replace

    from fleet.core.errors import HostUnreachable
    from fleet.report.gpu_status import HostRow, host_row

    if reading.facts is not None:
        return replace(host_row(reading.host, reading.facts), note=reading.note)
    error = reading.error
    state = "unreachable" if isinstance(error, HostUnreachable) else "error"
    return HostRow(reading.host, state, error.what if error else "no answer", error.remedy if error else None)


def _print(session: Session, rows: Sequence[HostRow], *, again: bool) -> None:
    from fleet.report.gpu_status import document, table
    from fleet.report.style import Output, width_of

    if session.json:
        _print_json(session, document(rows), again=again)
        return
    output = Output(scrub=session.scrubber)
    if again and sys.stdout.isatty():
        click.echo("\033[H\033[2J", nl=False)  # the screen anew; a plain log is never rewritten
    elif again:
        click.echo(time.strftime("%H:%M:%S"))
    output.write(*table(rows, width_of(sys.stdout, otherwise=WIDE)))


def _print_json(session: Session, found: dict[str, Any], *, again: bool) -> None:
    from fleet.core.documents import json_text

    # One document per line where there are many of them.
    click.echo(json_text(found, session.scrubber, indent=None if again else 2))
