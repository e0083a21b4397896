"""``fleet schema``: the published schemas, and holding files against them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.lazy import Group
from fleet.cli.options import Session, output_options
from fleet.core.errors import InputError, Position, Problem

if TYPE_CHECKING:
    from fleet.core.schema import Fault


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  fleet schema list
  fleet schema show report > report.schema.json
  fleet schema check reports/7f3a12/gpu01.json
  fleet schema check --schema inventory lab.yaml""",
)
def schema() -> None:
    """The published schemas (JSON Schema 2020-12): list, show, check a file."""


@schema.command(
    "list",
    epilog="""\b
Examples:
  fleet schema list
  fleet schema list --json | jq -r .[].name""",
)
@output_options
@click.pass_obj
def list_(session: Session) -> None:
    """List every published schema, its major and what it describes."""
    from fleet.core import schema as schemas

    loaded = {name: schemas.load(name) for name in schemas.names()}
    rows = [(name, schemas.major(found), found.get("title", "")) for name, found in loaded.items()]
    if session.json:
        session.print_json([{"name": name, "major": major, "title": title} for name, major, title in rows])
        return
    for name, major, title in rows:
        click.echo(f"fleet.{name + '/' + str(major):<14} {title}".rstrip())


@schema.command(
    epilog="""\b
Examples:
  fleet schema show inventory > inventory.schema.json       for an editor that checks while you type
  fleet schema show fleet.report/1"""
)
@click.argument("name", metavar="NAME")
def show(name: str) -> None:
    """Print one schema; fleet schema list has the names."""
    import json

    from fleet.core import schema as schemas

    click.echo(
        json.dumps(schemas.load(name.removeprefix("fleet.").partition("/")[0]), indent=2, ensure_ascii=False)
    )


@schema.command(
    epilog="""\b
Examples:
  fleet schema check reports/7f3a12/gpu01.json              the file says which schema it follows
  fleet schema check --schema playbook site-tuning.yaml
  fleet report 7f3a gpu01 --json | fleet schema check -"""
)
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--schema", "name", metavar="NAME", help="Which schema, where the file does not say.")
@output_options
@click.pass_obj
def check(session: Session, file: Path, name: str | None) -> None:
    """Check a JSON or YAML file against its schema.

    FILE may be - for standard input. Exit 2 where it does not fit, with each fault's line and column.
    """
    from fleet.core import schema as schemas

    text = _read(file)
    document = parse(text, str(file))
    mark = schemas.named_by(document) if name is None else None
    if mark is not None:
        document = schemas.upcast(document)
    wanted = mark[0] if mark else str(name)
    schemas.load(wanted)
    faults = schemas.faults(document, wanted)
    if session.json:
        found = [{"path": schemas.json_path(fault.path), "message": fault.message} for fault in faults]
        session.print_json({"file": str(file), "schema": wanted, "valid": not faults, "problems": found})
    if faults:
        place = Positions(text, str(file))
        problems = [Problem(place(fault), str(fault)) for fault in faults]
        raise InputError(sorted(problems, key=lambda one: one.position or Position("", 0, 0)))
    if not session.json:
        click.echo(f"{file}: valid by fleet.{wanted}/{schemas.major(schemas.load(wanted))}")


def _read(file: Path) -> str:
    import sys

    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from error


def parse(text: str, file: str) -> Any:
    """The document in ``text``: JSON where it parses as such, else YAML. InputError says where it breaks."""
    import json

    from fleet.agent import strict_json

    try:
        return strict_json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip()[:1] in ("{", "["):
            position = Position(file, error.lineno, error.colno)
            raise InputError([Problem(position, f"not JSON: {error.msg}")]) from error
    return _parse_yaml(text, file)


def _parse_yaml(text: str, file: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Dates stay text, as in JSON; what !secret and !vault stand for is text that nobody reads here."""

    Loader.add_multi_constructor("!", lambda loader, suffix, node: f"!{suffix}")

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        return yaml.load(text, Loader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = Position(file, mark.line + 1, mark.column + 1) if mark else None
        raise InputError([Problem(position, f"not YAML: {error.problem or error.context}")]) from error
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not YAML: {str(error).splitlines()[0]}") from error


class Positions:
    """Where a fault stands in ``text``; what is around it when it is not there."""

    def __init__(self, text: str, file: str) -> None:
        import yaml

        self._file = file
        self._root = yaml.compose(text, yaml.SafeLoader)

    def __call__(self, fault: Fault) -> Position | None:
        """Lines and columns from 1; None for an empty file."""
        import yaml

        node = self._root
        for depth, part in enumerate(fault.path, 1):
            found: list[tuple[yaml.Node, yaml.Node]] = []
            if isinstance(node, yaml.MappingNode):
                found = [(key, value) for key, value in node.value if key.value == part]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                found = [(value, value) for value in node.value[part : part + 1]]
            if not found:
                break
            node = found[0][0 if fault.at_key and depth == len(fault.path) else 1]
        if node is None:
            return None
        return Position(self._file, node.start_mark.line + 1, node.start_mark.column + 1)
