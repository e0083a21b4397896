"""``fleet run INVENTORY PLAYBOOK``: any playbook over any inventory."""

from __future__ import annotations

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
from fleet.cli.provision import play_playbook

EXAMPLES = """\b
Examples:
  fleet run site.yaml site-tuning.yaml --check --diff
  fleet run site.yaml site-tuning.yaml --tags sysctl --limit 'gpu*:!gpu07'
  fleet run site.yaml provision                  a shipped playbook by its name

The words of playbooks: docs/playbooks.md; what differs from Ansible: docs/coming-from-ansible.md"""


@click.command(epilog=EXAMPLES)
@inventory_argument
@click.argument("playbook", metavar="PLAYBOOK")
@host_options
@play_options
@connection_options
@click.option("--install-python", is_flag=True, help="Install Python where a host has none (through sudo).")
@output_options
@click.pass_obj
def run(session: Session, /, inventory: str, playbook: str, **options: Any) -> int:
    """Play PLAYBOOK (a file, or the name of a shipped one) on the hosts of INVENTORY."""
    return play_playbook(session, inventory, playbook, options)
