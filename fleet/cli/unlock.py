"""``fleet unlock HOST --run RUN``: clear the lease that a dead run left on a host."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli.options import Session, connection_options, output_options

EXAMPLES = """\b
Examples:
  fleet unlock gpu07 --run 7f3a12
  fleet unlock gpu07 --run 7f3a12 --inventory site.yaml    when the run was started elsewhere"""


@click.command(epilog=EXAMPLES)
@click.argument("host", metavar="HOST")
@click.option(
    "--run", "run", required=True, metavar="RUN", help="The run that holds the host, as its refusal named it."
)
@click.option(
    "--inventory", "-i", metavar="INVENTORY", help="Where HOST is described; default: the run's inventory."
)
@connection_options
@output_options
@click.pass_obj
def unlock(
    session: Session,
    /,
    host: str,
    run: str,
    inventory: str | None,
    **options: Any,
) -> int:
    """Clear RUN's lease on HOST. Refused while a worker of that run is alive."""
    from fleet.cli.playing import load_options
    from fleet.run.single import unlock_host

    load = load_options(session, options)
    with session.store() as store:
        said = unlock_host(host, run, inventory, load, store, session.scrubber)
    if session.json:
        session.print_json({"host": host, "run": run, "said": said})
    else:
        click.echo(said)
    return 0
