"""What the documentation shows exists: commands and options, example inventories and playbooks, messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fleet.audit.rules import rules
from fleet.cli.main import cli
from fleet.cli.options import Session
from fleet.inventory import load_inventory
from fleet.playbook.load import load_playbook
from tests.docs.pages import PAGES, ROOT, blocks, calls, commands, named, prose, spans

TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"


def wrong(words: list[str]) -> str | None:
    """What click says of a command line, or None; the command itself is not run."""
    command: click.Command = cli
    path, rest = ["fleet"], list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(click.Context(command), rest[0])
        if found is None:
            return f"there is no command {' '.join([*path, rest[0]])}"
        path.append(rest.pop(0))
        command = found
    if not rest:
        return None  # a command by its bare name, in prose
    try:
        command.make_context(" ".join(path), rest, obj=Session())
    except click.exceptions.Exit:
        return None
    except click.UsageError as error:
        return None if "does not exist" in error.message else error.format_message()
    return None


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_shown_is_one(page: Path) -> None:
    shown = {" ".join(words): wrong(words) for words in commands(page)}
    assert {line: problem for line, problem in shown.items() if problem} == {}


def every_command(command: click.Command = cli) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from every_command(found)


def examples(command: click.Command) -> list[str]:
    """The lines under ``Examples:`` in a command's help."""
    return [line for line in (command.epilog or "").splitlines() if line.startswith("  ")]


def test_every_command_shows_examples() -> None:
    assert [one.name for one in every_command() if not examples(one)] == []


def test_examples_in_help_are_commands() -> None:
    given = [line for one in every_command() for line in examples(one)]
    lines = [re.split(r"\s{3,}", line.strip())[0] for line in given]
    shown = [words for line in lines for words in calls(line)]
    assert len(shown) > 30
    assert {" ".join(words): problem for words in shown if (problem := wrong(words))} == {}


def test_a_wrong_command_would_be_noticed() -> None:
    assert wrong(["provison", "x"]) == "there is no command fleet provison"
    assert "--nope" in str(wrong(["provision", "x", "--nope"]))
    assert "Missing argument" in str(wrong(["unlock", "--run", "7f3a"]))
    assert list(calls("$ ansible-inventory --list | fleet inventory - | jq .")) == [["inventory", "-"]]
    assert list(calls("fleet 0.1.0 · run d9faf7")) == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_example_inventories_and_playbooks_are_valid(page: Path, tmp_path: Path) -> None:
    """A yaml block that begins with ``all:`` is an inventory, one that begins with ``- name:`` a playbook."""
    for language, text in blocks(page):
        if language != "yaml":
            continue
        file = tmp_path / "site.yaml"
        file.write_text(text, encoding="utf-8")
        if text.startswith("all:"):
            inventory = load_inventory(str(file))
            assert inventory.hosts
            for host in inventory.hosts.values():
                inventory.connector.way(host)
        elif text.startswith("- name:"):
            for name in re.findall(r"src: ([\w.]+\.j2)", text):
                (tmp_path / "templates").mkdir(exist_ok=True)
                (tmp_path / "templates" / name).write_text("x\n")
            assert load_playbook(str(file)).plays


def messages() -> list[str]:
    """The constant parts of every text in fleet's code, with the gaps that values fill cut out."""
    parts: list[str] = []
    for file in (ROOT / "fleet").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts += re.split(r"%[srd]", node.value)
    return parts


def first_column() -> list[str]:
    return [line.split(" | ")[0] for line in prose(TROUBLESHOOTING).splitlines() if line.startswith("| ")]


def test_every_message_that_troubleshooting_explains_is_one_of_fleets() -> None:
    known = messages()
    quoted = [span for cell in first_column() for span in spans(cell) if " " in span]
    pieces = [piece.strip(" :;,.()\"'") for span in quoted for piece in re.split(r"…|; |: ", span)]
    long_enough = [piece for piece in pieces if len(piece) >= 10 and not re.match(r"site\.yaml:\d", piece)]
    assert len(long_enough) > 40
    assert [piece for piece in long_enough if not any(piece in text for text in known)] == []


def test_troubleshooting_has_every_rule_that_refuses_and_no_other() -> None:
    explained = {span for cell in first_column() for span in spans(cell) if span.startswith("preflight.")}
    refusing = {one.id for one in rules("preflight") if one.severity.value == "error"}
    assert explained == refusing
