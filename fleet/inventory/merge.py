"""Which layer of a variable wins. The order is the one Ansible documents, weakest first:

1. variables in the inventory file of ``all``, then of other groups: parents before children (by depth), then
   by ``ansible_group_priority``, then by name;
2. ``group_vars/all``, then ``group_vars/`` of the other groups in the same order;
3. variables of the host in the inventory file; 4. ``host_vars/``; 5. extra variables of the command line.

A later layer replaces a value whole: mappings are not merged. What was overridden is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.core.errors import Position
from fleet.core.secret import Secret
from fleet.core.template import SecretTemplate, is_template
from fleet.core.yaml import Kind, Node, plain
from fleet.inventory.fields import Type, field_of, is_secret_name, text_of


@dataclass(frozen=True)
class Layer:
    """One place that sets variables: ``name`` is shown (``group gpu``, ``group_vars/gpu.yml``)."""

    name: str
    variables: Mapping[str, Node]


@dataclass(frozen=True)
class Assigned:
    """One layer's value of a variable. ``node`` is None for values that no file holds."""

    layer: str
    node: Node | None

    def position(self, path: Sequence[str | int] = ()) -> Position | None:
        """Where the value, or a part of it, stands; the nearest place where the part does not exist."""
        node = self.node
        for part in path:
            if node is None:
                break
            if isinstance(part, int):
                child = node.items[part] if -len(node.items) <= part < len(node.items) else None
            else:
                child = node.children.get(part)
            if child is None:
                break
            node = child
        return node.position if node else None


Chain = tuple[Assigned, ...]


def merged(layers: Iterable[Layer]) -> dict[str, Chain]:
    """Variables of several layers, weakest first: name to assignments, the winning one first."""
    chains: dict[str, Chain] = {}
    for layer in layers:
        for name, node in layer.variables.items():
            chains[name] = (Assigned(layer.name, node), *chains.get(name, ()))
    return chains


class Variables(Mapping[str, object]):
    """A host's merged variables. A value is built when first looked at, then kept.

    ``own`` are the host's layers, weakest first; ``inherited`` those of its groups, merged and shared among
    hosts of the same groups; ``extra`` and ``magic`` are values that no file holds: the first override
    everything, and so do the second.
    """

    def __init__(
        self,
        own: Sequence[Layer],
        inherited: Mapping[str, Chain],
        extra: Mapping[str, object],
        magic: Mapping[str, Callable[[], object]],
        fetch: Callable[[str, Node], object],
    ) -> None:
        self._own = own
        self._inherited = inherited
        self._extra = extra
        self._magic = magic
        self._fetch = fetch
        self._values: dict[str, object] = {}
        self._names: dict[str, None] | None = None

    def __getitem__(self, name: str) -> object:
        if name in self._values:
            return self._values[name]
        if name in self._magic:
            value = self._magic[name]()
        elif name in self._extra:
            value = self._extra[name]
        else:
            value = self._built(name)
        self._values[name] = value
        return value

    def _built(self, name: str) -> object:
        for layer in reversed(self._own):
            node = layer.variables.get(name)
            if node is not None:
                return value_of(name, node, self._fetch)
        node = self._inherited[name][0].node
        assert node is not None, "groups are set by files only"
        return value_of(name, node, self._fetch)

    def assigned(self, name: str) -> Chain:
        """Who set the variable, the winner first. Raises KeyError if nobody did."""
        chain: list[Assigned] = []
        if name in self._magic:
            return (Assigned("set by fleet", None),)
        if name in self._extra:
            chain.append(Assigned("extra variables", None))
        for layer in reversed(self._own):
            if name in layer.variables:
                chain.append(Assigned(layer.name, layer.variables[name]))
        chain.extend(self._inherited.get(name, ()))
        if not chain:
            raise KeyError(name)
        return tuple(chain)

    def __contains__(self, name: object) -> bool:
        # A loop, not any(): this is asked some twenty times per host, of thousands of hosts.
        for layer in self._own:
            if name in layer.variables:
                return True
        return name in self._inherited or name in self._extra or name in self._magic

    def _all_names(self) -> dict[str, None]:
        if self._names is None:
            names = dict.fromkeys(self._inherited)
            for layer in self._own:
                names.update(dict.fromkeys(layer.variables))
            names.update(dict.fromkeys((*self._extra, *self._magic)))
            self._names = names
        return self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._all_names())

    def __len__(self) -> int:
        return len(self._all_names())

    @property
    def magic(self) -> frozenset[str]:
        """Names that fleet sets itself (inventory_hostname …)."""
        return frozenset(self._magic)


def value_of(name: str, node: Node, fetch: Callable[[str, Node], object]) -> object:
    """A node's plain value: tags fetched, known fields in their type, text under secret names made Secret."""
    known = field_of(name)
    if node.is_scalar and node.tag is None:
        value = text_of(node, known.type) if known else node.value
        if known and known.type in (Type.SECRET, Type.MAYBE_SECRET) and isinstance(value, str):
            return _secret(name, value)
        return value
    if node.tag is not None:
        return fetch(name, node)
    return _container(name, node, fetch)


def _container(name: str, node: Node, fetch: Callable[[str, Node], object]) -> object:
    if node.kind is Kind.LIST:
        secret = is_secret_name(name)
        return [
            _secret(name, item.text)
            if secret and item.tag is None and item.kind is Kind.TEXT
            else _part(name, item, fetch)
            for item in node.items
        ]
    return {key: value_of(key, child, fetch) for key, child in node.children.items()}


def _part(name: str, node: Node, fetch: Callable[[str, Node], object]) -> object:
    if node.tag is not None:
        return fetch(name, node)
    return plain(node) if node.is_scalar else _container("", node, fetch)


def _secret(name: str, text: str) -> Secret:
    return SecretTemplate(text, name) if is_template(text) else Secret(text, name)
