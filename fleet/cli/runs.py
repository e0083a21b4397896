"""``fleet runs``: what was done before, from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.lazy import Group
from fleet.cli.options import Session, output_options

if TYPE_CHECKING:
    from fleet.report.style import Line
    from fleet.store import HostRow, RunRow


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog="""\b
Examples:
  fleet runs                     the latest 20
  fleet runs --limit 3 --json
  fleet runs show 7f3a           each host's state and last step
  fleet runs show last""",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 10000),
    metavar="NUMBER",
    default=20,
    show_default=True,
    help="At most so many.",
)
@output_options
@click.pass_context
def runs(ctx: click.Context, limit: int) -> None:
    """List past runs, newest first, or show one."""
    if ctx.invoked_subcommand is not None:
        return
    session: Session = ctx.obj
    with session.store() as store:
        found = store.runs(limit)
    if session.json:
        session.print_json([run_json(row) for row in found])
    elif not found:
        click.echo("no runs yet: fleet provision INVENTORY starts one")
    else:
        _print(_table(found))


@runs.command(
    epilog="""\b
Examples:
  fleet runs show last
  fleet runs show 7f3a --json            while it is open, too"""
)
@click.argument("run", metavar="RUN")
@output_options
@click.pass_obj
def show(session: Session, run: str) -> None:
    """Show each host's state and last step. RUN is an id's first digits, or "last"."""
    with session.store() as store:
        row = store.find_run(run)
        hosts = store.hosts(row.run)
    if session.json:
        session.print_json({**run_json(row), "host_states": [host_json(host) for host in hosts]})
        return
    _print([_heading(row), *_host_table(row, hosts)])


def run_json(row: RunRow) -> dict[str, Any]:
    """One run as ``--json`` gives it."""
    return {
        "run": row.run,
        "playbook": row.playbook,
        "inventory": row.inventory,
        "check": row.check,
        "operator": row.operator,
        "controller": row.controller,
        "hosts": list(row.hosts),
        "counts": dict(row.counts),
        "created_at": row.created_at,
        "ended_at": row.ended_at,
        "duration_s": row.duration_s,
        "exit_code": row.exit_code,
        "fleet_version": row.fleet_version,
    }


def host_json(host: HostRow) -> dict[str, Any]:
    """One host of a run as ``--json`` gives it."""
    return {
        "host": host.host,
        "state": host.state,
        "detail": dict(host.detail),
        "at": host.at,
        "touched": host.touched,
        "last_step": host.last_step,
        "last_status": host.last_status,
        "index": host.index,
        "total": host.total,
    }


def _print(lines: Sequence[Line]) -> None:
    from fleet.report.style import Output

    Output().write(*lines)


def _table(rows: Sequence[RunRow]) -> list[Line]:
    from fleet.report.columns import Cell, Column, table
    from fleet.report.style import BAD, DIM, GOOD
    from fleet.report.words import plural, printable

    cells = []
    for row in rows:
        counts = " · ".join(f"{count} {status}" for status, count in row.counts.items())
        end = "open" if row.ended_at is None else f"exit {row.exit_code}"
        role = GOOD if row.exit_code == 0 else BAD if row.ended_at else ""
        what = f"{counts or plural(len(row.hosts), 'host')}{'  (check)' if row.check else ''}"
        cells.append(
            [
                Cell(row.run),
                Cell(_when(row.created_at), DIM),
                Cell(printable(row.playbook)),
                Cell(printable(row.inventory)),
                Cell(end, role),
                Cell(what),
            ]
        )
    return table([Column()] * 6, cells)


def _heading(row: RunRow) -> Line:
    from fleet.report.style import STRONG, Span, line
    from fleet.report.words import duration, plural, run_name

    words = [row.playbook, row.inventory, plural(len(row.hosts), "host"), _when(row.created_at)]
    words.append(f"by {row.operator} on {row.controller}")
    if row.ended_at is None:
        words.append(f"open; go on: fleet resume {run_name(row.run)}")
    else:
        took = [] if row.duration_s is None else [duration(row.duration_s)]
        words += [*took, f"exit {row.exit_code}"]
    return line(Span(f"run {row.run}", STRONG), *(f" · {word}" for word in words))


def _host_table(row: RunRow, hosts: Sequence[HostRow]) -> list[Line]:
    from fleet.report.columns import Cell, Column, table
    from fleet.report.style import DIM, ROLES
    from fleet.report.words import printable

    known = {host.host for host in hosts}
    silent = [name for name in row.hosts if name not in known]
    rows = []
    for host in hosts:
        place = f"{host.index + 1}/{host.total} " if host.index is not None else ""
        step = f"{place}{printable(host.last_step)} {host.last_status or 'begun'}" if host.last_step else ""
        reason = printable(str(host.detail.get("reason") or ""))
        rest = "  ".join(word for word in (step, reason) if word)
        rows.append([Cell(host.host), Cell(host.state, ROLES.get(host.state, "")), Cell(rest)])
    rows += [[Cell(name), Cell("nothing heard", DIM), Cell("")] for name in silent]
    return table([Column()] * 3, rows)


def _when(at: str) -> str:
    """``2026-11-30 14:02``: UTC, as the store has it."""
    return at[:16].replace("T", " ")
