"""``fleet provision INVENTORY``: the shipped playbook that makes every host match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fleet.cli.options import (
    Session,
    connection_options,
    host_options,
    inventory_argument,
    output_options,
    play_options,
)

EXAMPLES = """\b
Examples:
  fleet provision site.yaml                       make every host match
  fleet provision site.yaml --check --diff        say what would change, change nothing
  fleet provision site.yaml --limit 'gpu[1:4]'    only these hosts
  fleet provision site.yaml -e image=pytorch-cuda:2.7 -K
  fleet provision site.yaml --limit gpu02 --disrupt
                                                  with leave to restart a busy engine

Ctrl-C stops every host at the next step edge; a second one leaves them to go on alone. Either way
fleet resume takes the run up again. What the playbook reads: docs/provision.md

\b
Exit codes: 0 done, 1 a host failed or was blocked, 2 bad input, 3 unreachable, 5 pending."""


@click.command(epilog=EXAMPLES)
@inventory_argument
@host_options
@play_options
@connection_options
@click.option("--install-python", is_flag=True, help="Install Python where a host has none (through sudo).")
@output_options
@click.pass_obj
def provision(session: Session, /, inventory: str, **options: Any) -> int:
    """Make every host of INVENTORY match: Docker, registry login, the pinned image.

    A second run changes nothing. Nothing that disturbs running work is done without --disrupt: such a
    host ends "pending", with the command that goes on.
    """
    return play_playbook(session, inventory, "provision", options)


def play_playbook(session: Session, inventory: str, playbook: str, options: dict[str, Any]) -> int:
    """Play ``playbook`` (a name or path) with the options that provision and run share."""
    from fleet.cli.playing import extra_variables, load_options, play
    from fleet.run.request import RunRequest

    extra_vars = options["extra_vars"]
    load = load_options(session, options)
    request = RunRequest(
        inventory=inventory if inventory == "-" else str(Path(inventory)),
        playbook=playbook,
        limit=options["limit"],
        check=options["check"],
        diff=session.diff,
        tags=options["tags"],
        skip_tags=options["skip_tags"],
        extra_vars=extra_variables(extra_vars),
        disrupt=options["disrupt"],
        forks=options["forks"],
        accept_new=options["accept_new"],
        install_python=options["install_python"],
    )
    return play(session, request, load)
