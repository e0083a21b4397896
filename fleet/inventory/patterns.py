"""Which hosts a pattern names: Ansible's ``--limit`` and ``hosts:``.

Parts are separated by commas (or colons): names and globs of hosts and groups, ``~regex``, ``group[0]``,
``group[0:2]``, ``group[-1]``, ``@file`` with one pattern a line. All plain parts are united, then narrowed
by each ``&part``, then each ``!part`` is taken away, in whatever order they are written. A part that names
nothing is an error: a slip in a limit must not shrink a run, nor a slip in an exclusion widen it (only an
exclusion by glob or regular expression may name nothing). Where no group is called gpu, ``gpu[01:04]`` is
the range of hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.core.errors import InputError
from fleet.inventory.names import is_ipv6
from fleet.inventory.ranges import RangeError, expand

if TYPE_CHECKING:
    from fleet.inventory.model import Host, Inventory

_SUBSCRIPT = re.compile(r"(.+)\[(-?\d+)\]\Z")
_SLICE = re.compile(r"(.+)\[(\d*)[:-](\d*)\]\Z")


def select(inventory: Inventory, limit: str | None) -> list[Host]:
    """Hosts that ``limit`` names, in file order; all for None.

    Raises :class:`InputError` naming the part that matches nothing, with near matches.
    """
    if limit is None:
        return list(inventory.hosts.values())
    parts = _parts(limit)
    plain = [part for part in parts if part[0] not in "&!"]
    chosen = set(_united(inventory, plain or ["all"]))
    for part in parts:
        if part.startswith("&"):
            chosen &= set(_named(inventory, part[1:]))
    for part in parts:
        if part.startswith("!"):
            chosen -= set(_excluded(inventory, part[1:]))
    if not chosen:
        raise InputError(
            f'the pattern "{limit}" matches no host', remedy="fleet inventory lists hosts and groups"
        )
    return [host for name, host in inventory.hosts.items() if name in chosen]


def _united(inventory: Inventory, parts: Iterable[str]) -> Iterable[str]:
    for part in parts:
        yield from _named(inventory, part)


def _excluded(inventory: Inventory, part: str) -> Iterable[str]:
    """As :func:`_named`, but a glob or regular expression may name nothing (``!test-*`` with no test)."""
    if re.search(r"[*?]|^~", part) and not _names_anything(inventory, part):
        return ()
    return _named(inventory, part)


def _parts(limit: str) -> list[str]:
    """The parts of a limit, with ``@file`` replaced by the parts in that file."""
    found: list[str] = []
    for part in split(limit):
        if part.startswith("@"):
            found += _from_file(Path(part[1:]))
        else:
            found.append(part)
    if not found:
        raise InputError(
            f'the pattern "{limit}" is empty', remedy="name hosts or groups, or leave --limit out"
        )
    return found


def _from_file(path: Path) -> list[str]:
    try:
        lines = path.expanduser().read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"the file of patterns {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"the file of patterns {path} is not UTF-8 text") from None
    wanted = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not wanted:
        raise InputError(f"the file of patterns {path} names nothing", remedy="one pattern a line")
    return [part for line in wanted for part in split(line)]


def split(limit: str) -> list[str]:
    """Take a limit apart. Commas win; else colons separate, but not inside brackets nor in IPv6 addresses."""
    if "," in limit:
        pieces = re.split(r",(?![^\[]*\])", limit)
    elif is_ipv6(limit.lstrip("&!").removeprefix("[").removesuffix("]")) or limit.startswith("~"):
        pieces = [limit]
    else:
        pieces = re.split(r":(?![^\[]*\])", limit)
    return [piece.strip() for piece in pieces if piece.strip() and piece.strip() not in ("&", "!")]


def _named(inventory: Inventory, part: str) -> list[str]:
    """Names of the hosts that one part means (``&`` and ``!`` already taken off)."""
    exact = _exact(inventory, part)
    if exact is not None:
        return exact
    base, pick = _subscript(part)
    if pick is not None and not _names_anything(inventory, base):
        return _range(inventory, part)
    names = _base(inventory, base)
    if pick is None:
        return names
    picked = names[pick]
    if not picked:
        raise InputError(f'"{part}" matches no host: {base} has {len(names)}, counted from 0')
    return picked


def _exact(inventory: Inventory, name: str) -> list[str] | None:
    """A host or group of exactly this name, or both; brackets around an IPv6 address may be left out."""
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    group = inventory.groups.get(name)
    host = [bare] if bare in inventory.hosts else []
    if group is not None:
        return [*group.hosts, *host]
    return host or None


def _range(inventory: Inventory, part: str) -> list[str]:
    """``gpu[01:04]`` where nothing is called gpu: hosts named as in the inventory; ``gpu[1-4]``: a glob."""
    try:
        names = expand(part)
    except RangeError:
        return _base(inventory, part)
    return [found for name in names for found in _base(inventory, name)]


def _names_anything(inventory: Inventory, base: str) -> bool:
    """Whether a name, glob or regular expression names any host or group."""
    if base in inventory.hosts or base in inventory.groups:
        return True
    expression = _compiled(base)
    return any(expression.match(name) for names in (inventory.groups, inventory.hosts) for name in names)


def _subscript(part: str) -> tuple[str, slice | None]:
    """``gpu[0]`` and ``gpu[0:2]`` (inclusive, as in Ansible) as a base and a slice."""
    if part.startswith("~"):
        return part, None
    one = _SUBSCRIPT.match(part)
    if one:
        index = int(one[2])
        return one[1], slice(index, index + 1 or None)
    several = _SLICE.match(part)
    if several:
        return several[1], slice(int(several[2] or 0), int(several[3]) + 1 if several[3] else None)
    return part, None


def _base(inventory: Inventory, base: str) -> list[str]:
    exact = _exact(inventory, base)
    if exact is not None:
        return exact
    if base in ("all", "*"):
        return list(inventory.hosts)
    if not base.startswith("~") and not re.search(r"[*?\[]", base):
        raise InputError(
            f'"{base}" is neither a host nor a group of this inventory', remedy=_near(inventory, base)
        )
    expression = _compiled(base)
    found = [name for name in inventory.hosts if expression.match(name)]
    for name, group in inventory.groups.items():
        if expression.match(name):
            found += group.hosts
    if not found:
        raise InputError(f'"{base}" matches no host and no group', remedy=_near(inventory, base.strip("~*?")))
    return list(dict.fromkeys(found))


@lru_cache(maxsize=1000)
def _compiled(base: str) -> re.Pattern[str]:
    if not base.startswith("~"):
        return re.compile(translate(base))
    try:
        return re.compile(base[1:])
    except re.error as error:
        raise InputError(f'"{base}" is not a regular expression: {error}') from None


def _near(inventory: Inventory, name: str) -> str:
    near = get_close_matches(name, [*inventory.groups, *inventory.hosts], 3, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else "fleet inventory lists hosts and groups"
