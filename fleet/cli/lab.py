"""``fleet lab up|down|status``: real hosts on one machine. The work is in :mod:`fleet.lab.lab`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from fleet.cli.lazy import Group
from fleet.core.errors import ExitCode, FleetError
from fleet.lab.engine import Engine
from fleet.lab.images import Images
from fleet.lab.lab import Lab

_NAME = click.option(
    "--name", metavar="NAME", help="Name of the lab; default: the inventory's file name without .yaml."
)
_INVENTORY = click.argument("inventory", metavar="INVENTORY", type=click.Path(path_type=Path))


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  fleet lab up inventories/lab.yaml        make it, or what is missing of it
  fleet lab status inventories/lab.yaml    which host is up, and where
  fleet lab down inventories/lab.yaml      leave nothing of it

It needs Linux, root, a Docker Engine and debootstrap; ./scripts/setup brings them. Everything about
such a host is marked simulated. docs/lab.md says what each variable of a lab does.""",
)
def lab() -> None:
    """Real hosts on this machine: systemd, sshd, apt and a Docker Engine of their own."""


@lab.command(
    epilog="""\b
Examples:
  fleet lab up inventories/lab.yaml
  fleet lab up second.yaml --name second   beside the first; needs a lab_subnet of its own"""
)
@_INVENTORY
@_NAME
@click.option("--replace", is_flag=True, help="Take down a lab of this name that another checkout has up.")
def up(inventory: Path, name: str | None, replace: bool) -> None:
    """Bring up the lab that INVENTORY describes. Done again, it changes nothing.

    The first time takes minutes (Debian releases are bootstrapped, an image with torch is built);
    after that, seconds.
    """
    started = time.monotonic()
    built = Lab.load(inventory, name, progress=click.echo)
    built.up(take_over=replace)
    click.echo(
        f"lab {built.name} is up: {len(built.definition.hosts)} hosts, {time.monotonic() - started:.0f} s"
    )
    click.echo(f"try: fleet provision {inventory}    log in: ssh -F {built.state.directory}/ssh_config HOST")


@lab.command(
    epilog="""\b
Examples:
  fleet lab down inventories/lab.yaml
  fleet lab down inventories/lab.yaml --purge      the next up takes minutes again"""
)
@_INVENTORY
@_NAME
@click.option("--purge", is_flag=True, help="Also remove the images the lab's hosts are made of.")
def down(inventory: Path, name: str | None, purge: bool) -> None:
    """Take the lab down, and leave nothing of it.

    Hosts, networks, volumes, keys and passwords go; images stay unless --purge.
    """
    built = Lab.load(inventory, name, progress=click.echo)
    removed = built.down()
    click.echo(f"lab {built.name} is down: {len(removed)} things removed")
    if purge:
        click.echo(f"{len(Images(Engine(), click.echo).purge())} images removed")


@lab.command(
    epilog="""\b
Examples:
  fleet lab status inventories/lab.yaml
  fleet lab status inventories/lab.yaml --json | jq .up"""
)
@_INVENTORY
@_NAME
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON object.")
def status(inventory: Path, name: str | None, as_json: bool) -> None:
    """Say which hosts of the lab are there. Exit 0 where all are up, 1 where not."""
    found = Lab.load(inventory, name).status()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        for host in found["hosts"]:
            how = f"{host.get('release', ''):9} {host.get('login', ''):14}"
            way = "  behind the bastion" if host.get("behind_bastion") else ""
            click.echo(f"{host['name']:9} {host['state']:8} {host['address']:20} {how}{way}".rstrip())
        word = "up" if found["up"] else f"not up; run: fleet lab up {inventory}"
        click.echo(f"lab {found['lab']} is {word}")
    if not found["up"]:
        click.get_current_context().exit(int(ExitCode.FAILED))


def main() -> None:
    """``python -m fleet.cli.lab``: the group by itself, with fleet's exit codes."""
    try:
        lab.main(standalone_mode=True)
    except FleetError as error:
        click.echo(str(error), err=True)
        raise SystemExit(int(error.exit_code)) from None


if __name__ == "__main__":
    main()
