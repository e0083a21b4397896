"""From an inventory file, its ``group_vars/`` and ``host_vars/``, to an :class:`Inventory`.

:func:`load_inventory` reads everything, collects every problem with its place, and either raises them all
as one :class:`InputError` or returns. The shape of groups is read in
:mod:`fleet.inventory.yaml_shape`, the
files beside the inventory in :mod:`fleet.inventory.vars_files`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

from fleet.core.errors import InputError, Position, Problem
from fleet.core.json_nodes import parse_json
from fleet.core.yaml import Document, Node, parse_yaml, paused_gc, read_input, sorted_problems
from fleet.inventory import vault
from fleet.inventory.connection import Connector
from fleet.inventory.fields import check_variables
from fleet.inventory.json_shape import read_json
from fleet.inventory.model import Group, Host, Inventory, LoadOptions
from fleet.inventory.secrets import SecretSource
from fleet.inventory.shape import GroupShape, Shape
from fleet.inventory.vars_files import VarsFiles
from fleet.inventory.yaml_shape import read_groups

STDIN = "<stdin>"


def load_inventory(
    source: str | Path, *, stdin: TextIO | None = None, options: LoadOptions | None = None
) -> Inventory:
    """Load and check an inventory: YAML, or with the source ``-`` Ansible's ``--list`` JSON on ``stdin``.

    Raises :class:`InputError` with every problem found, sorted by place.
    """
    with paused_gc():
        return _Load(str(source), stdin, options or LoadOptions()).run()


class _Load:
    def __init__(self, source: str, stdin: TextIO | None, options: LoadOptions) -> None:
        self.source = source
        self.stdin = stdin
        self.options = options
        self.folder = Path.cwd() if source == "-" else Path(source).absolute().parent
        self.problems: list[Problem] = []
        password = options.vault_password or vault.password_from_environment(os.environ)
        self.secrets = SecretSource(password, self._folder_of)

    def _folder_of(self, file: str) -> Path:
        return self.folder if file == STDIN else Path(file).absolute().parent

    def run(self) -> Inventory:
        document = self._document()
        self.problems += document.problems
        shape = Shape()
        if document.root is not None:
            reader = read_json if self.source == "-" else read_groups
            reader(document.root, shape, self.problems)
        inventory = Inventory(self.source, self.folder, self.options, self.secrets)
        self._fill(inventory, shape)
        if not shape.hosts and not self.problems:
            self.problems.append(Problem(Position(document.name, 1, 1), "the inventory holds no host"))
        if not self.problems:
            inventory.connector = Connector(inventory)
            inventory.connector.check(self.problems)
        if self.problems:
            raise InputError(sorted_problems(self.problems))
        return inventory

    def _document(self) -> Document:
        if self.source == "-":
            stream = self.stdin or sys.stdin
            buffer = getattr(stream, "buffer", None)  # bytes, so that a wrong encoding has its place
            return parse_json(stream.read() if buffer is None else buffer.read(), STDIN)
        path = Path(self.source)
        data = read_input(path, self.source)
        document = parse_json(data, self.source) if path.suffix == ".json" else parse_yaml(data, self.source)
        foreign = _foreign(path, data, document)
        if foreign:
            raise InputError([foreign])
        return document

    def _fill(self, inventory: Inventory, shape: Shape) -> None:
        """Groups, hosts and layers into the inventory, checking every layer's variables once."""
        shape.link(self.problems)
        inventory.groups.update(_groups(shape))
        of_host = shape.groups_of_hosts()
        for name, host in shape.hosts.items():
            inventory.hosts[name] = Host(name, of_host[name], host.position, inventory)
        layers = inventory.layers
        layers.group_inline = {name: group.layers for name, group in shape.groups.items()}
        layers.host_inline = {name: host.layers for name, host in shape.hosts.items()}
        if self.source != "-":  # what --list prints has the files' variables in it already
            files = VarsFiles(Path(self.source).parent, self.secrets, self.problems)
            layers.group_files = files.layers("group_vars", shape.groups)
            layers.host_files = files.layers("host_vars", shape.hosts)
            inventory.notes = tuple(files.notes)
        self._check_layers(inventory)

    def _check_layers(self, inventory: Inventory) -> None:
        layers = inventory.layers
        seen: set[int] = set()  # hosts of one range share their layer
        for kind in (layers.group_inline, layers.group_files, layers.host_inline, layers.host_files):
            for stack in kind.values():
                for layer in stack:
                    if id(layer) not in seen:
                        seen.add(id(layer))
                        check_variables(layer.variables, self.problems)
                        self._check_tags(layer.variables)

    def _check_tags(self, variables: dict[str, Node] | object) -> None:
        assert isinstance(variables, dict)
        for name, node in variables.items():
            if node.tag is not None or not node.is_scalar:
                self.secrets.check(name, node, self.problems)


def _groups(shape: Shape) -> dict[str, Group]:
    members = shape.members()
    return {name: _group(group, members[name]) for name, group in shape.groups.items()}


def _group(shape: GroupShape, hosts: tuple[str, ...]) -> Group:
    return Group(
        name=shape.name,
        position=shape.position,
        children=tuple(shape.children),
        parents=tuple(shape.parents),
        own_hosts=tuple(shape.hosts),
        hosts=hosts,
        depth=shape.depth,
        priority=shape.priority,
    )


def _foreign(path: Path, data: bytes, document: Document) -> Problem | None:
    """An inventory of another format: an INI file, a script."""
    if document.root is not None and not document.problems and document.root.children:
        return None
    text = data[:4096].decode(errors="replace").lstrip()
    if text.startswith("#!"):
        message = f"this is a script, not YAML; run it and hand over its output: {path} --list | fleet … -"
    elif path.suffix == ".ini" or _looks_ini(text):
        message = (
            "this is Ansible's INI format; hand it over as JSON: "
            f"ansible-inventory -i {path} --list | fleet … -, or write it as YAML"
        )
    else:
        return None
    return Problem(Position(document.name, 1, 1), message)


def _looks_ini(text: str) -> bool:
    """Whether the first line that says something is ``[group]`` or ``host key=value``."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith(("#", ";"))), "")
    return (
        first.startswith("[")
        and first.endswith("]")
        and ":" not in first.replace(":children", "").replace(":vars", "")
    ) or ("=" in first and ": " not in first)
