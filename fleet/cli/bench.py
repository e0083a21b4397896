"""``fleet bench INVENTORY``: measure the GPUs, judge all hosts together, show it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.options import (
    Session,
    connection_options,
    extra_variables,
    host_options,
    inventory_argument,
    output_options,
    words,
)

if TYPE_CHECKING:
    from fleet.inventory import Inventory, LoadOptions
    from fleet.report.benchmarks.benched import Benched
    from fleet.run.launch import Surroundings
    from fleet.store import RunRow

EXAMPLES = """\b
Examples:
  fleet bench site.yaml                           a minute or two on every GPU, judged
  fleet bench site.yaml --suite full --save-baseline
                                                  everything, kept to be compared with later
  fleet bench site.yaml --compare                 change against what was kept
  fleet bench site.yaml --limit gpu07 --gpus 0,3 -v
                                                  two GPUs, every result
  fleet bench site.yaml --suite burn --limit 'rack_b'
                                                  five minutes of load; says what it draws, and asks
  fleet bench site.yaml --from last --json        judge an earlier run again; nothing is measured

A GPU that somebody works on is left out, unless --occupied. Nobody's process is ended.
How to read it: docs/benchmarks/reading-results.md

\b
Exit codes: 0 nothing failed, 1 something could not be measured, 2 bad input, 3 a host was unreachable,
4 a result failed, 5 a host waits for leave."""


@click.command(epilog=EXAMPLES)
@inventory_argument
@click.option(
    "--suite",
    type=click.Choice(["quick", "full", "burn"]),
    help="quick: a minute or two. full: all formats, networks, several GPUs. burn: sustained load, checked. "
    "Default: benchmark_suite of the inventory, else quick.",
)
@click.option(
    "--where",
    type=click.Choice(["container", "host"]),
    help="In the pinned image, or with a Python of the host that has torch. Default: container.",
)
@click.option("--image", metavar="IMAGE[@DIGEST]", help="Measure in this image instead of the inventory's.")
@click.option(
    "--only",
    metavar="GROUP,…",
    multiple=True,
    callback=words,
    help="Of the suite, only these groups of tests: cpu, compute, training, compile, collectives, ddp, burn.",
)
@click.option("--gpus", metavar="LIST", help="all, or indexes and UUIDs with commas between them.")
@click.option(
    "--occupied", is_flag=True, help="Measure GPUs that others use, too; the figures are worth little."
)
@click.option("--save-baseline", is_flag=True, help="Keep what is valid, for --compare.")
@click.option("--compare", is_flag=True, help="Hold every GPU against its own baseline, too.")
@click.option("--from", "earlier", metavar="RUN", help="Judge what this run measured (an id, or last).")
@click.option("--yes", is_flag=True, help="Do not ask before a burn-in.")
@host_options
@click.option(
    "--extra-vars",
    "-e",
    metavar="VARS",
    multiple=True,
    callback=extra_variables,
    help="Variables above all others: KEY=VALUE, @FILE.yaml or a JSON object; may be repeated.",
)
@connection_options
@output_options
@click.pass_obj
def bench(session: Session, /, inventory: str, **options: Any) -> int:
    """Measure what the GPUs of INVENTORY do, and judge it.

    Each result is held against the GPU's peak and limits, its peers in the host and in the fleet, and with
    --compare its own past.
    """
    from fleet.cli.playing import load_options, surroundings
    from fleet.inventory import load_inventory
    from fleet.run.benchmarks import judged, save

    load = load_options(session, options)
    known = load_inventory(inventory, options=load)
    with surroundings(session, load, silent=session.json) as around:
        if options["earlier"]:
            row = around.store.find_run(options["earlier"])
        else:
            row = _measured(session, inventory, known, load, around, options)
        found = judged(row, around.store, known, compare=options["compare"])
        if options["save_baseline"]:
            found = _noted(found, save(found, around.store))
    _show(session, found, told=not options["earlier"])
    return int(found.exit_code)


def _measured(
    session: Session,
    inventory: str,
    known: Inventory,
    load: LoadOptions,
    around: Surroundings,
    options: dict[str, Any],
) -> RunRow:
    """Play the playbook; the run as the store has it."""
    from fleet.cli.playing import see_through
    from fleet.lab.presence import refuse_if_down
    from fleet.run.launch import launch
    from fleet.run.request import RunRequest

    refuse_if_down(inventory)
    _ask_before_burning(session, known, options)
    request = RunRequest(
        inventory=inventory if inventory == "-" else str(Path(inventory)),
        playbook="bench",
        limit=options["limit"],
        extra_vars=_variables(options),
        forks=options["forks"],
        accept_new=options["accept_new"],
    )
    result = see_through(lambda: launch(request, around), around)
    return around.store.find_run(result.run)


def _variables(options: dict[str, Any]) -> dict[str, object]:
    """What the command line says, as the playbook's variables; the rest is the inventory's to say."""
    from fleet.cli.playing import extra_variables as as_variables

    said = dict(as_variables(options["extra_vars"]))
    for option, variable in (("suite", "benchmark_suite"), ("where", "benchmark_where")):
        if options[option] is not None:
            said[variable] = options[option]
    if options["image"] is not None:
        reference, _, digest = options["image"].partition("@")
        said["image"], said["image_digest"] = reference, digest or None
    if options["gpus"] is not None:
        said["benchmark_gpus"] = gpu_list(options["gpus"])
    if options["only"]:
        said["benchmark_groups"] = list(options["only"])
    if options["occupied"]:
        said["benchmark_occupied"] = True
    return said


def gpu_list(text: str) -> str | list[int | str]:
    """``all``, or each index (a number) and UUID of a list. InputError for one that is neither."""
    from fleet.core.errors import InputError

    if text.strip() == "all":
        return "all"
    found: list[int | str] = []
    for word in (part.strip() for part in text.split(",")):
        if word.isdecimal():
            found.append(int(word))
        elif word.startswith(("GPU-", "MIG-")):
            found.append(word)
        else:
            raise InputError(
                f"--gpus: {word!r} is no index and no UUID",
                remedy="fleet bench INVENTORY --gpus 0,3 or --gpus all",
            )
    return found


def _ask_before_burning(session: Session, known: Inventory, options: dict[str, Any]) -> None:
    """A burn-in says what it will draw, and begins only when somebody agrees."""
    hosts = known.select(options["limit"])
    given = dict(_variables(options))
    suites = {given.get("benchmark_suite") or host.variables.get("benchmark_suite") for host in hosts}
    if "burn" not in suites:
        return
    from fleet.cli.playing import asking
    from fleet.core.errors import InputError
    from fleet.report.benchmarks.power import power_lines
    from fleet.run.live import facts_of

    facts = facts_of(hosts, ["gpu_probe"], session.scrubber, asking(options))
    for said in power_lines(facts):
        click.echo(session.scrubber(said), err=True)
    if options["yes"]:
        return
    if not sys.stdin.isatty():
        raise InputError(
            "a burn-in loads every GPU to its limit: it asks first", remedy="--yes says so beforehand"
        )
    if not click.confirm("load all of them?", err=True):
        raise InputError("not started")


def _noted(found: Benched, counts: tuple[int, int]) -> Benched:
    from dataclasses import replace

    kept, left_out = counts
    words = f"baseline: {kept} results kept" + (
        f", {left_out} left out: failed or invalid" if left_out else ""
    )
    return replace(found, notes=(*found.notes, words))


def _show(session: Session, found: Benched, *, told: bool) -> None:
    if session.json:
        from fleet.report.benchmarks.document import document

        session.print_json(document(found))
        return
    from fleet.report.benchmarks.table import table
    from fleet.report.style import Output, width_of

    level = session.verbosity.level
    lines = table(found, width=width_of(sys.stdout), verbose=level > 0, quiet=level < 0, told=told)
    Output(scrub=session.scrubber).write([], *lines)
