"""What an inventory is once loaded: hosts, groups, and variables that know where they came from.

Built by :mod:`fleet.inventory.load`; who wins among the layers of a variable is decided in
:mod:`fleet.inventory.merge`; how a host is reached in :mod:`fleet.inventory.connection`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import Position
from fleet.core.secret import Secret
from fleet.core.template import Templar
from fleet.inventory.merge import Chain, Layer, Variables, merged
from fleet.inventory.secrets import SecretSource

if TYPE_CHECKING:
    from fleet.inventory.connection import Connector


@dataclass(frozen=True)
class LoadOptions:
    """What the command line adds to an inventory.

    ``ssh_config``: which file to read (None: ``~/.ssh/config``; a path that does not exist is an error).
    ``accept_new``: pin unknown host keys on first use. ``become_password``: from ``-K``, used where the
    inventory gives none. ``extra_vars`` override every other layer.
    """

    vault_password: Secret | None = None
    ssh_config: Path | None = None
    accept_new: bool = False
    become_password: Secret | None = None
    extra_vars: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """Where a value came from: its place, the layer (``group gpu`` …), and what it overrode, nearest first.

    ``position`` is None for values given on the command line and for magic variables.
    """

    position: Position | None
    layer: str
    overrides: tuple[Origin, ...] = ()

    def __str__(self) -> str:
        return f"{self.position} ({self.layer})" if self.position else self.layer


@dataclass
class Group:
    """A group: ``hosts`` are all its hosts, those of its children included, in file order."""

    name: str
    position: Position | None
    children: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    own_hosts: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    depth: int = 0
    priority: int = 1


class Host:
    """One host: its groups (parents first, without ``all``), its merged variables, and how to reach it."""

    def __init__(self, name: str, groups: tuple[str, ...], position: Position, inventory: Inventory) -> None:
        self.name = name
        self.groups = groups
        self.position = position
        self.inventory = inventory

    @cached_property
    def variables(self) -> Variables:
        """Merged variables as plain values; tagged secrets are fetched when first looked at."""
        return self.inventory.variables_of(self)

    @cached_property
    def templar(self) -> Templar:
        """Renders templates over this host's variables."""
        return Templar(self.variables)

    def origin(self, *path: str | int) -> Origin:
        """Where a variable, or part of one (``origin("labels", "a", 0)``), came from. KeyError if unknown."""
        name, *parts = path
        assigned = self.variables.assigned(str(name))
        origins = [Origin(each.position(parts), each.layer) for each in assigned]
        return Origin(origins[0].position, origins[0].layer, tuple(origins[1:]))

    def connection(self) -> ConnectionSettings:
        """How to reach this host, secrets included. Raises InputError at the variable that is wrong."""
        return self.inventory.connector.settings(self)

    def __repr__(self) -> str:
        return f"<Host {self.name}>"


class Inventory:
    """Hosts and groups of one inventory. ``hosts`` is in file order, each once; ``notes`` are remarks.

    ``inventory_dir`` is the folder of the file (the working directory for standard input); ``source`` is
    what the user called it.
    """

    def __init__(self, source: str, inventory_dir: Path, options: LoadOptions, secrets: SecretSource) -> None:
        self.source = source
        self.inventory_dir = inventory_dir
        self.options = options
        self.hosts: dict[str, Host] = {}
        self.groups: dict[str, Group] = {}
        self.notes: tuple[str, ...] = ()
        self.layers = Layers()
        self.connector: Connector
        self._secrets = secrets
        self._inherited: dict[tuple[str, ...], dict[str, Chain]] = {}

    def select(self, limit: str | None) -> list[Host]:
        """Hosts that ``limit`` (Ansible's patterns) names, in file order; all of them for None.

        Raises InputError, with near matches, for a pattern that names nothing.
        """
        from fleet.inventory.patterns import select

        return select(self, limit)

    def variables_of(self, host: Host) -> Variables:
        """The merged variables of a host, over layers shared with hosts of the same groups."""
        inherited = self._inherited.get(host.groups)
        if inherited is None:
            inherited = merged(self.layers.of_groups(host.groups))
            self._inherited[host.groups] = inherited
        return Variables(
            self.layers.of_host(host.name),
            inherited,
            self.options.extra_vars,
            self._magic(host),
            self._secrets.fetch,
        )

    def _magic(self, host: Host) -> dict[str, Callable[[], object]]:
        return {
            "inventory_hostname": lambda: host.name,
            "inventory_hostname_short": lambda: host.name.split(".")[0],
            "inventory_dir": lambda: str(self.inventory_dir),
            "inventory_file": lambda: None if self.source == "-" else str(Path(self.source).absolute()),
            "group_names": lambda: sorted(host.groups),
            "groups": lambda: self._groups_shown,
            "hostvars": lambda: self._hostvars,
        }

    @cached_property
    def _groups_shown(self) -> dict[str, list[str]]:
        return {name: list(group.hosts) for name, group in self.groups.items()}

    @cached_property
    def _hostvars(self) -> Mapping[str, Variables]:
        return HostVariables(self.hosts)


class HostVariables(Mapping[str, Variables]):
    """``hostvars``: every host's variables by name, merged when first looked at."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self._hosts = hosts

    def __getitem__(self, name: str) -> Variables:
        return self._hosts[name].variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)


@dataclass
class Layers:
    """All layers of an inventory, by whom they are for. Lists are weakest first."""

    group_inline: dict[str, list[Layer]] = field(default_factory=dict)
    group_files: dict[str, list[Layer]] = field(default_factory=dict)
    host_inline: dict[str, list[Layer]] = field(default_factory=dict)
    host_files: dict[str, list[Layer]] = field(default_factory=dict)

    def of_groups(self, groups: tuple[str, ...]) -> list[Layer]:
        """Layers of ``all`` and ``groups`` (parents first), in the order of :mod:`fleet.inventory.merge`."""
        names = ("all", *groups)
        inline = [layer for name in names for layer in self.group_inline.get(name, ())]
        return inline + [layer for name in names for layer in self.group_files.get(name, ())]

    def of_host(self, name: str) -> list[Layer]:
        """The host's own layers."""
        return [*self.host_inline.get(name, ()), *self.host_files.get(name, ())]
