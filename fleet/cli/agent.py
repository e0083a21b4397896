"""``fleet agent``: the on-host side, run by hand on this machine."""

from __future__ import annotations

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
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "fleet.agent", "probe"], check=False).returncode
