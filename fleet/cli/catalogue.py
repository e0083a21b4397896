"""``fleet catalogue``: the facts fleet decides by, shown and checked."""

from __future__ import annotations

from pathlib import Path

import click

from fleet.cli.lazy import Group
from fleet.cli.options import Session, output_options

# The kinds of fleet.catalogue.kinds, which is imported only when one is shown.
WORDS = ["gpu", "driver", "cuda", "os", "torch", "image", "cudnn"]
WORDS += ["docker", "containerd", "runc", "toolkit", "advisory", "xid", "sxid"]

overlay_option = click.option(
    "--catalogue",
    "overlay",
    envvar="FLEET_CATALOGUE",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="A site's own entries, in files named as the shipped ones; default: $FLEET_CATALOGUE.",
)


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  fleet catalogue show gpu                     every GPU
  fleet catalogue show gpu h100-pcie           one, with sources
  fleet catalogue show driver 580.126.09       its branch, and whether it lacks fixes
  fleet catalogue show xid 79                  what it means, and what to do
  fleet catalogue list                         what there is to show
  fleet catalogue check --catalogue site/""",
)
def catalogue() -> None:
    """The facts fleet decides by: GPUs, drivers, CUDA, torch, images, systems, what runs containers, kernel log."""


@catalogue.command(
    epilog="""\b
Examples:
  fleet catalogue show gpu "NVIDIA A100 80GB PCIe"
  fleet catalogue show gpu 25b6:10de:157e      by PCI device and subsystem
  fleet catalogue show driver 580
  fleet catalogue show cuda 12.8 --json
  fleet catalogue show os ubuntu-24.04
  fleet catalogue show torch 2.7.0+cu128
  fleet catalogue show image pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime
  fleet catalogue show runc 1.2.6              its branch, and the fixes it lacks
  fleet catalogue show advisory CVE-2025-31133
  fleet catalogue show xid 79
  fleet catalogue show sxid 20034              of an NVSwitch"""
)
@click.argument("kind", metavar="|".join(WORDS), type=click.Choice(WORDS))
@click.argument("name", metavar="[NAME]", required=False)
@overlay_option
@output_options
@click.pass_obj
def show(session: Session, kind: str, name: str | None, overlay: Path | None) -> None:
    """List what is known of one kind, or tell one entry in full with its sources.

    NAME is an id, a name as NVML gives it, PCI ids, a version, an image, a code. What was not verified says so.
    """
    from datetime import date

    from fleet.catalogue.catalogue import load
    from fleet.catalogue.kinds import KINDS
    from fleet.catalogue.present import aligned

    known, chosen, today = load(overlay), KINDS[kind], date.today()
    if session.json:
        session.print_json(chosen.entries(known, today) if name is None else chosen.entry(known, name, today))
        return
    rows = [chosen.columns, *chosen.rows(known, today)] if name is None else chosen.lines(known, name, today)
    click.echo("\n".join(aligned(rows)))


@catalogue.command(
    "list",
    epilog="""\b
Examples:
  fleet catalogue list
  fleet catalogue list --catalogue site/ --json""",
)
@overlay_option
@output_options
@click.pass_obj
def list_(session: Session, overlay: Path | None) -> None:
    """List what `show` can show: the kinds, how many entries each has, and in which file."""
    from fleet.catalogue.catalogue import load
    from fleet.catalogue.kinds import summary
    from fleet.catalogue.present import aligned

    found = summary(load(overlay))
    if session.json:
        session.print_json(found)
        return
    rows = [("kind", "entries", "file", "section")]
    rows += [(one["kind"], str(one["entries"]), one["file"], one["section"]) for one in found]
    click.echo("\n".join(aligned(rows)))


@catalogue.command(
    epilog="""\b
Examples:
  fleet catalogue check
  fleet catalogue check --catalogue site/      the site's entries too, laid over the shipped ones"""
)
@overlay_option
@output_options
@click.pass_obj
def check(session: Session, overlay: Path | None) -> None:
    """Check every entry: source, references, versions, dates, PCI ids, plausible figures.

    Exit 2 where something is wrong, with file, line and entry of each.
    """
    from fleet.catalogue.entries import Files, read_overlay
    from fleet.catalogue.lint import check as checked

    files = Files(read_overlay(overlay)) if overlay is not None else Files()
    count = checked(files)
    if session.json:
        session.print_json({"entries": count, "files": len({file for file, _ in files.sections()})})
        return
    click.echo(f"{count} entries, all well" + (f" ({overlay} laid over)" if overlay else ""))
