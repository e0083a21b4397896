"""``fleet resume RUN``: go on with what a run left."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli.options import Session, connection_options, output_options

EXAMPLES = """\b
Examples:
  fleet resume 7f3a          a prefix of the run's id is enough
  fleet resume last -K       the latest run, asking for sudo's password again"""


@click.command(epilog=EXAMPLES)
@click.argument("run", metavar="RUN")
@connection_options
@output_options
@click.pass_obj
def resume(
    session: Session,
    /,
    run: str,
    **options: Any,
) -> int:
    """Go on with RUN on every host that did not converge.

    Each host's journal is read first: steps that are done are not done again, a step that was
    interrupted is looked at and applied only if it still differs. Secrets are read again.
    """
    from fleet.cli.playing import go_on, load_options

    load = load_options(session, options)
    return go_on(session, run, load)
