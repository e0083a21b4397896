"""``fleet agent``: the on-host side, run by hand on this machine."""

from __future__ import annotations

import json
import subprocess
import sys

import click

from fleet.agent import strict_json
from fleet.cli.lazy import Group


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  fleet agent probe                      this machine's facts, as JSON
  fleet agent report                     what the timer on a host writes down, of this machine

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
        click.echo(json.dumps(strict_json.loads(done.stdout), indent=2, ensure_ascii=False))
    else:
        click.echo(done.stdout, nl=False)
    return done.returncode


@agent.command(
    epilog="""\b
Examples:
  fleet agent report                     this machine's report, as JSON
  fleet agent report | jq .facts.reboot_required
  sudo fleet agent report --output /tmp/report.json --textfile-directory /var/lib/prometheus/node-exporter

On a host the unit fleet-agent.service does this by itself; the playbook's task agent: puts it there.
The document is fleet.agent-report/1: fleet schema show agent-report"""
)
@click.option("--output", metavar="FILE", help="Replace FILE by the report; else it goes to standard output.")
@click.option(
    "--textfile-directory", metavar="DIRECTORY", help="Write DIRECTORY/fleet.prom for node_exporter, too."
)
def report(output: str | None, textfile_directory: str | None) -> int:
    """Write down the state of this machine as its timer would. Starts nothing, changes nothing else."""
    command = [sys.executable, "-m", "fleet.agent", "report"]
    for option, value in (("--output", output), ("--textfile-directory", textfile_directory)):
        command += [option, value] if value is not None else []
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.stdout:
        click.echo(json.dumps(strict_json.loads(done.stdout), indent=2, ensure_ascii=False))
    return done.returncode
