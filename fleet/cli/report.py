"""``fleet report``: the reports of a run, from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.options import Session, output_options
from fleet.core.errors import InputError

if TYPE_CHECKING:
    from fleet.report.style import Line


@click.command(
    epilog="""\b
Examples:
  fleet report last                    one line per host
  fleet report 7f3a gpu01              that host's steps, and why
  fleet report 7f3a gpu01 --json       the document itself (fleet.report/1)"""
)
@click.argument("run", metavar="RUN")
@click.argument("host", metavar="[HOST]", required=False)
@output_options
@click.pass_obj
def report(session: Session, run: str, host: str | None) -> None:
    """Show a run's reports. RUN is an id's first digits, or "last"; HOST picks one."""
    with session.store() as store:
        row = store.find_run(run)
        found = store.reports(row.run, host)
    if not found:
        from fleet.report.words import run_name

        raise InputError(_none(row.run, host, row.hosts), remedy=f"fleet runs show {run_name(row.run)}")
    if session.json:
        session.print_json(found[host] if host else list(found.values()))
        return
    documents = [_current(document) for document in found.values()]
    _print(_one(documents[0]) if host else _all(documents))


def _none(run: str, host: str | None, hosts: Sequence[str]) -> str:
    if host is None:
        return f"run {run} has no reports"
    if host not in hosts:
        import difflib

        near = difflib.get_close_matches(host, hosts, n=1)
        return f"run {run} has no host {host}" + (f"; did you mean {near[0]}?" if near else "")
    return f"run {run} has no report of {host}"


def _current(document: dict[str, Any]) -> dict[str, Any]:
    from fleet.core.schema import upcast

    return upcast(document)


def _print(lines: Sequence[Line]) -> None:
    from fleet.report.style import Output

    Output().write(*lines)


def _counts(document: Mapping[str, Any]) -> str:
    return " · ".join(f"{count} {status.replace('_', ' ')}" for status, count in document["counts"].items())


def _all(documents: Sequence[Mapping[str, Any]]) -> list[Line]:
    from fleet.report.columns import Cell, Column, table
    from fleet.report.style import ROLES
    from fleet.report.words import printable

    rows = []
    for document in documents:
        status = document["status"]
        reason = printable(document["reason"] or "")
        rest = "  ".join(word for word in (_marked(document), _counts(document), reason) if word)
        rows.append([Cell(document["host"]), Cell(status, ROLES.get(status, "")), Cell(rest)])
    return table([Column()] * 3, rows)


def _one(document: Mapping[str, Any]) -> list[Line]:
    from fleet.report.style import DIM, ROLES, STRONG, Span, line
    from fleet.report.view import titles
    from fleet.report.words import duration, printable

    status = document["status"]
    head = [Span(f"{document['host']}  ", STRONG), Span(status, ROLES.get(status, ""))]
    lines: list[Line] = [
        [*head, *line(f"  run {document['run']}  {document['ended_at']}  {_marked(document)}")]
    ]
    lines += [line(f"  {printable(document[key])}") for key in ("reason", "remedy") if document[key]]
    shown_as = titles([(step["id"], step["task"]) for step in document["steps"]])
    for step, title in zip(document["steps"], shown_as, strict=True):
        took = step["duration_s"]
        words = [title, duration(took) if took and took >= 1 else "", step["reason"] or ""]
        shown = Span(f"  {step['status'].replace('_', ' '):<17}", ROLES.get(step["status"], DIM))
        lines.append(line(shown, "  ", printable("  ".join(word for word in words if word))))
    return [*lines, *_benchmarks(document)]


def _benchmarks(document: Mapping[str, Any]) -> list[Line]:
    """What the benchmarks found on this host, in a few lines; its peers are those of this host only."""
    record = document.get("benchmark")
    if record is None:
        return []
    from fleet.audit.benchmarks import judge
    from fleet.catalogue.catalogue import load
    from fleet.core.schema import faults
    from fleet.report.benchmarks.benched import HostBench
    from fleet.report.benchmarks.table import short

    host = document["host"]
    if faults(record, "benchmark", tolerant=True):
        return []
    verdicts = judge({host: record}, load())[host]
    return short(HostBench(host, document["status"], record=record, verdicts=verdicts))


def _marked(document: Mapping[str, Any]) -> str:
    return "simulated hardware" if document["simulated"] else ""
