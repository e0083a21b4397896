"""Reads a playbook file: :func:`load_playbook`. Everything wrong with it is told at once, with positions.

Next: :mod:`fleet.playbook.compile`, which turns a play into steps for one host.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet.core.data import data_dir
from fleet.core.errors import InputError
from fleet.core.template import is_template
from fleet.core.yaml import Kind, Node, as_read, read_yaml, sorted_problems
from fleet.modules import is_module, load
from fleet.modules.arguments import near
from fleet.playbook.files import find_file
from fleet.playbook.model import Play, Playbook, Task
from fleet.playbook.reader import Reader, Tagged, untagged
from fleet.playbook.tasks import Inherited, TaskReader
from fleet.playbook.words import PLAY_KEYS

_SOURCES = {"copy": ("files", "src"), "template": ("templates", "src"), "systemd_unit": ("templates", "src")}


def playbook_path(name: str) -> Path:
    """The file that ``name`` means: a path, or the bare name of a shipped playbook (``provision``)."""
    path = Path(name)
    if path.exists() or "/" in name or path.suffix in (".yaml", ".yml"):
        return path
    shipped = data_dir("playbooks") / f"{name}.yaml"
    if shipped.is_file():
        return shipped
    known = sorted(each.stem for each in data_dir("playbooks").glob("*.yaml"))
    hint = near(name, known) or f"; shipped are {', '.join(known)}"
    raise InputError(
        f"there is no playbook {name}{hint}", remedy="name a file, or one of the shipped playbooks"
    )


def load_playbook(name: str | Path, *, tagged: Tagged = untagged) -> Playbook:
    """Read and check a playbook. ``tagged`` gives the value of ``!secret`` and ``!vault`` nodes.

    Raises InputError with every problem found.
    """
    path = playbook_path(str(name))
    document = read_yaml(path, _shown(path))
    reader = Reader(tagged)
    reader.problems.extend(document.problems)
    plays: list[Play] = []
    if document.root is not None:
        plays = _plays(document.root, path.parent, reader)
    elif not document.problems:
        raise InputError(
            f"{_shown(path)} is empty", remedy="a playbook is a list of plays, each with hosts: and tasks:"
        )
    if reader.problems:
        raise InputError(sorted_problems(reader.problems))
    return Playbook(str(name), path, tuple(plays))


def _shown(path: Path) -> str:
    """The path as messages name it: as given, or short where it is a shipped playbook."""
    shipped = data_dir("playbooks")
    return f"playbooks/{path.name}" if path.parent == shipped else os.fspath(path)


def _plays(root: Node, directory: Path, reader: Reader) -> list[Play]:
    if root.kind is not Kind.LIST:
        reader.problem(
            root.position, f"a playbook is a list of plays (lines that start with -), not {as_read(root)}"
        )
        return []
    tasks = TaskReader(reader)
    plays = []
    for node in root.items:
        if reader.mapping(node, "a play") is not None:
            play = _play(node, directory, reader, tasks)
            if play is not None:
                plays.append(play)
    return plays


def _play(node: Node, directory: Path, reader: Reader, task_reader: TaskReader) -> Play | None:
    reader.keys(node, PLAY_KEYS, "a play")
    keys = node.children
    hosts = reader.texts(keys.get("hosts"), "hosts")
    if "hosts" not in keys:
        reader.problem(node.position, "a play needs hosts: a pattern such as all, or a group's name")
    defaults = reader.variables(keys.get("defaults"), "defaults")
    own = reader.variables(keys.get("vars"), "vars")
    inherited = replace(task_reader.inherit(node, Inherited()), vars={})
    tasks: list[Task] = []
    for key in ("pre_tasks", "tasks", "post_tasks"):
        tasks += task_reader.tasks(reader.items(keys.get(key), key), inherited)
    handlers = task_reader.tasks(
        reader.items(keys.get("handlers"), "handlers"), Inherited(become=inherited.become), handler=True
    )
    tasks = [_notified(task, handlers, reader) for task in tasks]
    handlers = [_notified(task, handlers, reader) for task in handlers]
    _check_names(handlers, reader)
    _check_files([*tasks, *handlers], directory, reader)
    gather_facts = reader.boolean(keys.get("gather_facts"), "gather_facts") is not False
    if not gather_facts:
        _check_facts([*tasks, *handlers], reader)
    return Play(
        hosts=",".join(hosts),
        name=reader.text(keys.get("name"), "name") or ",".join(hosts),
        position=node.position,
        directory=directory,
        defaults=defaults,
        vars={**own, **_vars_files(keys.get("vars_files"), directory, reader)},
        tasks=tuple(tasks),
        handlers=tuple(handlers),
        serial=_serial(keys.get("serial"), reader),
        max_fail_percentage=reader.number(keys.get("max_fail_percentage"), "max_fail_percentage", 0, 100),
        any_errors_fatal=bool(reader.boolean(keys.get("any_errors_fatal"), "any_errors_fatal")),
        gather_facts=gather_facts,
    )


def _check_facts(tasks: list[Task], reader: Reader) -> None:
    """A module that decides by facts must not find them missing, and so believe what is not so."""
    for task in tasks:
        if is_module(task.module) and load(task.module).reads_facts:
            reader.problem(
                task.position, f"{task.module} reads the host's facts: take gather_facts: false off this play"
            )


def _notified(task: Task, handlers: list[Task], reader: Reader) -> Task:
    """The task with each name it notifies replaced by the handlers that answer to it."""
    names: list[str] = []
    for wanted in task.notify:
        answering = [str(each.name) for each in handlers if wanted in (each.name, *each.listen)]
        if not answering:
            known = [name for each in handlers for name in (str(each.name), *each.listen)]
            hint = near(wanted, known) or (
                f"; handlers are {', '.join(known)}" if known else "; the play has none"
            )
            reader.problem(task.position, f'notify: there is no handler "{wanted}"{hint}')
        names += [name for name in answering if name not in names]
    return replace(task, notify=tuple(names))


def _check_names(handlers: list[Task], reader: Reader) -> None:
    """Handlers are called by name, so each needs one of its own, the same on every host."""
    seen: set[str] = set()
    for handler in handlers:
        if handler.module == "docker_engine":
            reader.problem(handler.position, "docker_engine cannot be a handler: it is several steps")
        if not isinstance(handler.name, str) or not handler.name:
            reader.problem(handler.position, "a handler needs a name: tasks notify it by that")
        elif is_template(handler.name):
            reader.problem(handler.position, "a handler's name cannot be a template")
        elif handler.name in seen:
            reader.problem(handler.position, f'there are two handlers "{handler.name}"')
        else:
            seen.add(handler.name)
        if handler.register is not None:
            reader.problem(
                handler.position, "a handler cannot register: nothing comes after it that could ask"
            )
        if handler.loop is not None:
            reader.problem(
                handler.position, "a handler cannot loop; write one handler per item, with listen:"
            )


def _check_files(tasks: list[Task], directory: Path, reader: Reader) -> None:
    """Files named without a template must be there."""
    for task in tasks:
        kind, argument = _SOURCES.get(task.module, ("", ""))
        source = task.arguments.get(argument)
        if (
            isinstance(source, str)
            and not is_template(source)
            and find_file(kind, source, [directory]) is None
        ):
            message = f"{source} is not in {kind}/ next to the playbook"
            reader.problem(task.place(argument), message)


def _vars_files(node: Node | None, directory: Path, reader: Reader) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for item in [] if node is None else node.items if node.kind is Kind.LIST else [node]:
        name = reader.text(item, "vars_files")
        if name is None:
            continue
        path = directory / name
        if not path.is_file():
            reader.problem(item.position, f"{name} is not next to the playbook")
            continue
        document = read_yaml(path, os.fspath(path))
        reader.problems.extend(document.problems)
        if document.root is not None:
            merged.update(reader.variables(document.root, name))
    return merged


def _serial(node: Node | None, reader: Reader) -> tuple[int | str, ...]:
    """Batch sizes: a number, a percentage, or a list of these."""
    sizes: list[int | str] = []
    for item in [] if node is None else node.items if node.kind is Kind.LIST else [node]:
        text = item.text.strip()
        percent = text.removesuffix("%")
        if percent.isdigit() and int(percent) > 0 and (percent == text or int(percent) <= 100):
            sizes.append(text if percent != text else int(text))
        else:
            shown = text if item.is_scalar else as_read(item)
            reader.problem(
                item.position, f'serial must be a number of hosts or a percentage such as "30%", not {shown}'
            )
    return tuple(sizes)
