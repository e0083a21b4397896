"""``fleet exec INVENTORY PATTERN -- CMD``: one command on many hosts."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli.options import DEFAULT_FORKS, Session, connection_options, inventory_argument, output_options

EXAMPLES = """\b
Examples:
  fleet exec site.yaml all -- uptime
  fleet exec site.yaml 'gpu*:!gpu07' -- sh -c 'df -h /var/lib/docker | tail -1'
  fleet exec site.yaml gpu01 --user anna -- id
  fleet exec site.yaml gpu --json -- nvidia-smi -L

The command is an argument vector, not a shell line. It takes no lease and is not journalled.

\b
Exit codes: 0 it ended with 0 everywhere, 1 somewhere it did not, 2 bad input, 3 a host was unreachable."""


@click.command("exec", epilog=EXAMPLES, context_settings={"ignore_unknown_options": True})
@inventory_argument
@click.argument("pattern", metavar="PATTERN")
@click.argument("command", metavar="-- CMD [ARG…]", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--forks",
    "-f",
    type=click.IntRange(1, 5000),
    metavar="NUMBER",
    default=DEFAULT_FORKS,
    show_default=True,
    help="Hosts at once.",
)
@click.option("--user", "become_user", metavar="NAME", help="Run as this user instead of root.")
@click.option("--deadline", type=float, default=300.0, show_default=True, metavar="SECONDS", help="Per host.")
@connection_options
@output_options
@click.pass_obj
def exec_(session: Session, /, inventory: str, pattern: str, command: tuple[str, ...], **options: Any) -> int:
    """Run CMD on every host that PATTERN names; output lines carry the host's name."""
    from fleet.cli.playing import load_options
    from fleet.lab.presence import refuse_if_down
    from fleet.run.single import Execution, execute

    refuse_if_down(inventory)
    load = load_options(session, options)
    execution = Execution(
        inventory=inventory,
        pattern=pattern,
        argv=command,
        become_user=options["become_user"],
        deadline_s=options["deadline"],
        forks=options["forks"],
        accept_new=options["accept_new"],
    )
    results = execute(execution, load, session.scrubber, None if session.json else _say)
    if session.json:
        session.print_json({"hosts": {name: result.as_json() for name, result in results.items()}})
    from fleet.core.errors import overall

    return int(overall(result.exit_status for result in results.values()))


def _say(host: str, stream: str, line: str) -> None:
    click.echo(f"{host}  {line}", err=stream == "stderr")
