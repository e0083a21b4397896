"""``fleet agent``: the on-host side, run by hand on this machine."""

from __future__ import annotations

import subprocess
import sys

import click


@click.group()
def agent() -> None:
    """What the agent sees, on this machine."""


@agent.command(
    epilog="""\b
Examples:
  fleet agent probe                      this machine's facts, as JSON
  sudo fleet agent probe                 what only root may read, too"""
)
def probe() -> int:
    """Print the facts of this machine. Reads only."""
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "fleet.agent", "probe"], check=False).returncode
