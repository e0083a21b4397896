"""``fleet health``: are the GPUs of these hosts healthy? Asked live, of captures, or of the last reports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.options import Session, connection_options, host_options, output_options

if TYPE_CHECKING:
    from fleet.run.health import HostHealth

EXAMPLES = """\b
Examples:
  fleet health site.yaml                          every host, now; reads only, takes no lease
  fleet health site.yaml --limit gpu07 -v         every GPU of it, remarks, and where limits come from
  fleet health site.yaml --fail-on warning --json a gate: exit 4 for warnings, too
  fleet health site.yaml --from last              by the last reports; an old one is stale, not healthy
  fleet health --from-capture gpu07.xml gpu08.txt
                                                  what nvidia-smi -q -x, -q or a query printed

What may be expected of a host stands in the inventory: gpu_count, gpu_nvlinks. Every rule: docs/health.md

\b
Exit codes: 0 healthy, 4 findings, 1 a host could not be judged, 2 bad input, 3 unreachable."""


@click.command(epilog=EXAMPLES)
@click.argument("words", metavar="[INVENTORY]", nargs=-1)
@host_options
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    default="error",
    show_default=True,
    help="Exit 4 from this severity on. What is stale, or has no report, always counts.",
)
@click.option(
    "--from-capture",
    "captures",
    multiple=True,
    metavar="FILE…",
    type=click.Path(path_type=Path),
    help="Judge what nvidia-smi printed into files; no host is asked.",
)
@click.option(
    "--from", "origin", type=click.Choice(["last"]), help="Judge the last reports; no host is asked."
)
@click.option(
    "--max-age",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    default=3600.0,
    show_default=True,
    help="With --from last: an older report is stale.",
)
@connection_options
@output_options
@click.pass_obj
def health(session: Session, /, words: tuple[str, ...], **options: Any) -> int:
    """Judge the health of every GPU of INVENTORY: reads only, changes nothing, takes no lease.

    Works without root as far as it goes, and says what it could not read.
    """
    from fleet.run.health import document

    hosts, source = _known(session, words, options)
    inventory = words[0] if source != "captures" else None
    found = document(hosts, source=source, inventory=inventory, fail_on=options["fail_on"])
    if session.json:
        session.print_json(found)
    else:
        _print(session, found)
    return int(found["exit_code"])


def _known(session: Session, words: tuple[str, ...], options: dict[str, Any]) -> tuple[list[HostHealth], str]:
    from fleet.cli.playing import asking, load_options
    from fleet.lab.presence import refuse_if_down
    from fleet.run.asking import Asked
    from fleet.run.health import captured, last_known, live

    if options["captures"]:
        return captured([*options["captures"], *map(Path, words)]), "captures"
    if len(words) != 1:
        raise click.UsageError("give one INVENTORY, or --from-capture FILE")
    load = load_options(session, options)
    asked = Asked(words[0], options["limit"], asking(options))
    if options["origin"] == "last":
        with session.store() as store:
            return last_known(asked, load, store, options["max_age"]), "reports"
    refuse_if_down(words[0])
    return live(asked, load, session.scrubber), "live"


def _print(session: Session, found: dict[str, Any]) -> None:
    from fleet.report.health import lines, outcome
    from fleet.report.style import Output, width_of

    width = width_of(sys.stdout)
    shown = [outcome(found)] if session.level < 0 else lines(found, width=width, verbose=session.level > 0)
    Output(scrub=session.scrubber).write(*shown)
