"""``fleet audit``: does an image run on these hosts, why not, and what is the smallest change that makes it run?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.catalogue import overlay_option
from fleet.cli.options import Session, connection_options, host_options, output_options

if TYPE_CHECKING:
    from fleet.catalogue.catalogue import Catalogue
    from fleet.run.audit import Wanted
    from fleet.run.audit_sources import HostAudit
    from fleet.run.images import Inspector

EXAMPLES = """\b
Examples:
  fleet audit site.yaml --image pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime
                                                ask every host now; reads only
  fleet audit site.yaml                         the image that the inventory wants on each
  fleet audit site.yaml --from store --hosts    by the newest stored reports, host by host
  fleet audit --from reports/7f3a12 --image pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime
                                                by a folder of reports
  fleet audit site.yaml --what-if driver=580.159.04,toolkit=1.19.1
                                                if these were other versions
  fleet audit site.yaml --best-image            the newest official image for all, or one per group
  fleet audit site.yaml --fail-on warning --markdown audit.md
                                                a gate, with a page for the ticket
  fleet audit --gpu "RTX 5090" --driver 570.172.08 --image pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime
                                                a question: no host, no inventory
  fleet audit --gpu T4 --driver 580.159.04 --image registry.example.net:5000/ml/train:7 --inspect
                                                an image of your own, asked of its registry
  fleet audit --gpu T4 --gpu A100-SXM4-80GB --best-image

What is not known counts as an error unless --allow-unknown. Every rule: docs/audit.md

\b
Exit codes: 0 it runs, 4 findings, 1 a host could not be judged, 2 bad input, 3 unreachable."""

#: Options that only a question has.
QUESTION = ("gpu", "driver", "modules", "os", "docker", "toolkit")


@click.command(epilog=EXAMPLES)
@click.argument("inventory", metavar="[INVENTORY]", required=False)
@click.option(
    "--image", "-i", metavar="IMAGE", help="Audit for this one; default: the inventory's, for each host."
)
@host_options
@click.option(
    "--from",
    "origin",
    metavar="store|DIR",
    help="The newest reports of the store, or those in a folder; no host is asked.",
)
@click.option(
    "--max-age",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="With --from: an older report is stale, and its host is not judged. Default: however old.",
)
@click.option(
    "--gpu", multiple=True, metavar="NAME", help="A question: name, NVML name or PCI id; repeatable."
)
@click.option("--driver", metavar="VERSION", help="With --gpu: the driver.")
@click.option("--modules", metavar="open|proprietary", help="With --gpu: the driver's kernel modules.")
@click.option("--os", metavar="RELEASE", help="With --gpu: the operating system, such as ubuntu-24.04.")
@click.option("--docker", metavar="VERSION", help="With --gpu: Docker Engine; none: there is none.")
@click.option(
    "--toolkit", metavar="VERSION", help="With --gpu: NVIDIA container toolkit; none: there is none."
)
@click.option(
    "--what-if",
    multiple=True,
    metavar="NAME=VALUE,…",
    help="Suppose another driver, image, toolkit, docker or modules; may be repeated.",
)
@click.option(
    "--best-image", "best", is_flag=True, help="Name the newest official image for all, or per group."
)
@click.option(
    "--where",
    type=click.Choice(["container", "host"]),
    default="container",
    show_default=True,
    help="The image as it is, or its torch installed on the host itself.",
)
@click.option(
    "--memory", type=click.FloatRange(min=0), metavar="GIB", help="What the model needs on one GPU."
)
@click.option(
    "--inspect",
    "inspect_image",
    is_flag=True,
    help="Look into the image itself, on a host that has it or in its registry, also if the catalogue has it.",
)
@click.option("--one-job", is_flag=True, help="The hosts work on one job together: mixed GPUs are a finding.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    default="error",
    show_default=True,
    help="Exit 4 from this severity on. A host without a report always counts.",
)
@click.option("--allow-unknown", is_flag=True, help="What is not known is no error.")
@click.option("--hosts", "each", is_flag=True, help="Also every host, and what is said of it.")
@click.option(
    "--markdown",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write it as Markdown.",
)
@overlay_option
@connection_options
@output_options
@click.pass_obj
def audit(session: Session, /, inventory: str | None, **options: Any) -> int:
    """Say whether an image runs on every host and GPU of INVENTORY, why not, and the smallest change.

    Reads only: no lease, nothing left on a host.
    """
    from fleet.catalogue.catalogue import load
    from fleet.run.audit import document, judged
    from fleet.run.audit_sources import outdate

    _consistent(inventory, options)
    catalogue = load(options["overlay"])
    wanted = _wanted(options, catalogue)
    hosts, source = _known(session, inventory, options, catalogue)
    if options["max_age"] is not None:
        outdate(hosts, options["max_age"], time.time())
    found = judged(hosts, wanted, catalogue, _inspector(session, catalogue, options, source))
    made = document(found, wanted, catalogue, source=source, inventory=inventory)
    if options["markdown"]:
        _write(session, options["markdown"], made)
    if session.json:
        _print_json(session, made)
    else:
        _print(session, made, each=options["each"])
    return int(made["exit_code"])


def _consistent(inventory: str | None, options: dict[str, Any]) -> None:
    """Whether the words say one source of facts, and enough of it."""
    asked = [f"--{name}" for name in QUESTION if options[name]]
    if asked and not options["gpu"]:
        raise click.UsageError(f"{asked[0]} is part of a question: name the GPU, too (--gpu NAME)")
    if asked and (inventory or options["origin"]):
        what = "INVENTORY" if inventory else "--from"
        raise click.UsageError(f"{asked[0]} asks a question of its own: leave out {what}, or use --what-if")
    if not asked and not inventory and options["origin"] in (None, "store"):
        raise click.UsageError("give an INVENTORY, --from DIR, or a question: --gpu NAME --image IMAGE")
    if options["max_age"] is not None and options["origin"] is None:
        raise click.UsageError("--max-age is for reports: --from store, or --from DIR")
    if options["limit"] and not inventory:
        raise click.UsageError("--limit picks hosts of an INVENTORY: give one")
    if asked and not options["image"] and not options["best"]:
        raise click.UsageError("which image? --image IMAGE, or --best-image")


def _wanted(options: dict[str, Any], catalogue: Catalogue) -> Wanted:
    from fleet.audit.compatibility.options import Options
    from fleet.audit.compatibility.whatif import Change
    from fleet.run.audit import Wanted

    memory = options["memory"]
    rules = Options(
        allow_unknown=options["allow_unknown"],
        intended_memory_bytes=int(memory * 2**30) if memory is not None else None,
        where=options["where"],
    )
    if options["image"]:
        catalogue.images.look_up(options["image"])  # what is no image is bad input before any host is asked
    return Wanted(
        image=options["image"],
        change=Change.parse(options["what_if"], catalogue),
        options=rules,
        one_job=options["one_job"],
        best=options["best"],
        fail_on=options["fail_on"],
    )


def _known(
    session: Session, inventory: str | None, options: dict[str, Any], catalogue: Catalogue
) -> tuple[list[HostAudit], str]:
    """The hosts, and from where they are known."""
    from fleet.cli.playing import asking, load_options
    from fleet.lab.presence import refuse_if_down
    from fleet.run.asking import Asked
    from fleet.run.audit_sources import live, of_folder, stored

    if options["gpu"]:
        return _question(options, catalogue), "question"
    load = load_options(session, options)
    asked = Asked(inventory, options["limit"], asking(options)) if inventory else None
    if options["origin"] not in (None, "store"):
        return of_folder(_folder(options["origin"]), asked, load, catalogue, options["image"]), "folder"
    assert asked is not None
    if options["origin"] == "store":
        with session.store() as store:
            return stored(asked, load, store, catalogue, options["image"]), "store"
    refuse_if_down(asked.inventory)
    return live(asked, load, session.scrubber, catalogue, options["image"]), "live"


def _inspector(session: Session, catalogue: Catalogue, options: dict[str, Any], source: str) -> Inspector:
    """Hosts and registries are asked where hosts are asked anyway, or where ``--inspect`` says so."""
    from fleet.run.images import Inspector

    forced = options["inspect_image"]
    return Inspector(catalogue.images, session.store, source == "live" or forced, forced, session.scrubber)


def _folder(name: str) -> Path:
    from fleet.core.errors import InputError

    folder = Path(name)
    if not folder.is_dir():
        near = "; did you mean --from store?" if name in ("last", "reports", "stored", "db") else ""
        raise InputError(f"--from takes store or a folder of reports, and there is no folder {name}{near}")
    return folder


def _question(options: dict[str, Any], catalogue: Catalogue) -> list[HostAudit]:
    from fleet.audit.compatibility.subject import Subject
    from fleet.run.audit_sources import question

    given = {name: options[name] for name in QUESTION[1:]}
    subject = Subject.from_question(gpu=list(options["gpu"]), catalogue=catalogue, **given)
    parts = [" and ".join(gpu.name for gpu in subject.products)]
    words = {"driver": "driver ", "docker": "docker ", "toolkit": "toolkit ", "os": "", "modules": ""}
    parts += [f"{before}{given[name]}" for name, before in words.items() if given[name]]
    return question(subject, ", ".join(parts))


def _write(session: Session, file: Path, made: dict[str, Any]) -> None:
    from datetime import datetime, timezone

    from fleet.core.documents import write_whole
    from fleet.core.errors import InputError
    from fleet.report.audit_markdown import markdown

    text = session.scrubber(markdown(made, now=datetime.now(timezone.utc)))
    try:
        write_whole(file, text)
    except OSError as error:
        raise InputError(
            f"cannot write {file}: {error.strerror}", remedy="name another --markdown FILE"
        ) from error


def _print_json(session: Session, made: dict[str, Any]) -> None:
    from fleet.core.documents import lines_text

    click.echo(lines_text(made, session.scrubber), nl=False)


def _print(session: Session, made: dict[str, Any], *, each: bool) -> None:
    import shutil
    from datetime import datetime, timezone

    from fleet.report.audit import lines, outcome
    from fleet.report.style import Output

    width = shutil.get_terminal_size((100, 24)).columns
    verbose = session.level > 0
    shown = (
        [outcome(made)]
        if session.level < 0
        else lines(made, now=datetime.now(timezone.utc), width=width, hosts=each, verbose=verbose)
    )
    Output(scrub=session.scrubber).write(*shown)
