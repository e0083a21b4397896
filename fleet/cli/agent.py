"""``fleet agent``: the on-host side, run by hand on this machine."""

from __future__ import annotations

import json
import subprocess
import sys

import click

from fleet.cli.lazy import Group


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  fleet agent probe                      this machine's facts, as JSON

On a host the agent is started by fleet, over SSH; nothing has to be installed there first.""",
)
def agent() -> None:
    """The on-host side, run by hand on this machine."""


@agent.command(
    epilog="""\b
Examples:
  fleet agent probe                      this machine's facts, as JSON
  fleet agent probe | jq .engine
  sudo fleet agent probe                 what only root may read, too

What could not be read is null, with the reason. The document is fleet.facts/1: fleet schema show facts"""
)
def probe() -> int:
    """Print the facts of this machine. Reads only."""
    command = [sys.executable, "-m", "fleet.agent", "probe"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode == 0:
        click.echo(json.dumps(json.loads(done.stdout), indent=2, ensure_ascii=False))
    else:
        click.echo(done.stdout, nl=False)
    return done.returncode
