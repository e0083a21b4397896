"""OpenSSH's client configuration, as far as it says how to reach a host.

Paramiko's parser knows no Include and stumbles over ``ProxyJump none``; asking ``ssh -G`` costs a process
per host. This one reads Host (with negation), Match (all, host, originalhost, user, localuser), Include
and the keywords of :class:`Entry`, and passes over the rest. ``Match exec`` and others that need a running
ssh never match. The first value found for a keyword counts, as in ssh.
"""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fleet.core.errors import InputError, Position, Problem

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_DEEPEST_INCLUDE = 16


@dataclass(frozen=True)
class Entry:
    """What ssh_config says of one host; None or empty where it says nothing."""

    hostname: str | None = None
    port: int | None = None
    user: str | None = None
    identity_files: tuple[str, ...] = ()
    identities_only: bool | None = None
    proxy_jump: str | None = None
    proxy_command: str | None = None
    known_hosts: tuple[str, ...] = ()
    strict: str | None = None
    host_key_alias: str | None = None
    connect_timeout: float | None = None


NOTHING = Entry()


@dataclass(frozen=True)
class _Asked:
    """Whom a block is matched against. ``names``: what the user calls the host and its address."""

    names: tuple[str, ...]
    user: str
    local_user: str


_Condition = Callable[[_Asked, dict[str, str]], bool]


@dataclass(frozen=True)
class _Line:
    """One keyword with its value, under the conditions of the blocks it stands in."""

    conditions: tuple[_Condition, ...]
    keyword: str
    value: str
    position: Position


class SshConfig:
    """One or more configuration files; :meth:`entry` looks a host up. Lookups are remembered."""

    def __init__(self, files: tuple[Path, ...], *, home: Path, local_user: str) -> None:
        self.home = home
        self.local_user = local_user
        self.lines: list[_Line] = []
        for path in files:
            self.lines += _Reader(home, path).lines()
        self._known: dict[tuple[tuple[str, ...], str], Entry] = {}

    @classmethod
    def load(cls, path: Path | None, *, home: Path, local_user: str) -> SshConfig:
        """The given file (InputError if it does not exist), or the user's and the system's."""
        if path is not None:
            if not path.is_file():
                raise InputError(f"the ssh_config {path} does not exist", remedy="check --ssh-config")
            return cls((path,), home=home, local_user=local_user)
        usual = (home / ".ssh" / "config", SYSTEM_CONFIG)
        return cls(tuple(path for path in usual if path.is_file()), home=home, local_user=local_user)

    def entry(self, *names: str, user: str | None = None) -> Entry:
        """What is said of a host that goes by ``names``. Raises InputError at a line with a bad value."""
        if not self.lines:
            return NOTHING
        key = (tuple(dict.fromkeys(names)), user or self.local_user)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._look_up(_Asked(key[0], key[1], self.local_user))
        return found

    def _look_up(self, asked: _Asked) -> Entry:
        values: dict[str, str] = {}
        places: dict[str, Position] = {}
        identity_files: list[str] = []
        outcomes: dict[int, bool] = {}
        for line in self.lines:
            if not all(_holds(condition, asked, values, outcomes) for condition in line.conditions):
                continue
            if line.keyword == "identityfile":
                identity_files.append(line.value)
            elif line.keyword in ("proxyjump", "proxycommand"):
                _proxy(line, values)
            elif line.keyword not in values:
                values[line.keyword] = line.value
                places[line.keyword] = line.position
        return _entry(values, places, tuple(identity_files), asked.names[0])


def _proxy(line: _Line, values: dict[str, str]) -> None:
    """The first of ProxyJump and ProxyCommand counts, but "ProxyJump none" still lets a command follow."""
    if "proxycommand" in values:
        return
    if line.keyword == "proxyjump":
        values.setdefault("proxyjump", line.value)
    elif values.get("proxyjump", "none").lower() == "none":
        values.pop("proxyjump", None)
        values["proxycommand"] = line.value


def _holds(condition: _Condition, asked: _Asked, values: dict[str, str], outcomes: dict[int, bool]) -> bool:
    """Whether a block applies: decided where the block begins, not again at each of its lines."""
    known = outcomes.get(id(condition))
    if known is None:
        known = outcomes[id(condition)] = condition(asked, values)
    return known


def _entry(
    values: dict[str, str], places: dict[str, Position], identity_files: tuple[str, ...], name: str
) -> Entry:
    hostname = values.get("hostname")
    return Entry(
        hostname=hostname.replace("%%", "\0").replace("%h", name).replace("\0", "%") if hostname else None,
        port=_port(values, places),
        user=values.get("user"),
        identity_files=tuple(dict.fromkeys(path for path in identity_files if path.lower() != "none")),
        identities_only=_flag(values.get("identitiesonly")),
        proxy_jump=values.get("proxyjump"),
        proxy_command=values.get("proxycommand"),
        known_hosts=tuple(_words(values.get("userknownhostsfile", ""))),
        strict=values.get("stricthostkeychecking", "").lower() or None,
        host_key_alias=values.get("hostkeyalias"),
        connect_timeout=_timeout(values, places),
    )


def _port(values: dict[str, str], places: dict[str, Position]) -> int | None:
    text = values.get("port")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise InputError([Problem(places["port"], f'Port must be a number from 1 to 65535, not "{text}"')])
    return int(text)


def _timeout(values: dict[str, str], places: dict[str, Position]) -> float | None:
    text = values.get("connecttimeout")
    if text is None or text.lower() == "none":
        return None
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) == 0:
        raise InputError(
            [Problem(places["connecttimeout"], f'ConnectTimeout must be whole seconds, not "{text}"')]
        )
    return float(text)


def _flag(text: str | None) -> bool | None:
    return None if text is None else text.lower() in ("yes", "true")


_KEPT = frozenset(
    (
        "hostname",
        "port",
        "user",
        "identityfile",
        "identitiesonly",
        "proxyjump",
        "proxycommand",
        "connecttimeout",
    )
) | {"userknownhostsfile", "stricthostkeychecking", "hostkeyalias"}
_LINE = re.compile(r"\s*([A-Za-z0-9]+)(?:\s*=\s*|\s+)(.*?)\s*\Z")


class _Reader:
    """Turns files into lines under conditions, following Include."""

    def __init__(self, home: Path, path: Path) -> None:
        self.home = home
        self.top = path

    def lines(self) -> list[_Line]:
        return list(self._file(self.top, (), 0))

    def _file(self, path: Path, outer: tuple[_Condition, ...], depth: int) -> Iterator[_Line]:
        try:
            text = path.read_text(encoding="utf-8-sig", errors="replace")
        except OSError as error:
            raise InputError(f"the ssh_config {path} cannot be read: {error.strerror}") from None
        conditions = outer
        for number, raw in enumerate(text.splitlines(), 1):
            match = _LINE.match(raw)
            if match is None or raw.lstrip().startswith("#"):
                continue
            keyword, value = match[1].lower(), match[2]
            position = Position(str(path), number, raw.index(match[1]) + 1)
            if keyword == "host":
                conditions = (*outer, _host_condition(tuple(_words(value))))
            elif keyword == "match":
                conditions = (*outer, _match_condition(_words(value)))
            elif keyword == "include":
                yield from self._include(value, conditions, depth, position)
            elif keyword in _KEPT:
                yield _Line(conditions, keyword, _value(keyword, value), position)

    def _include(
        self, value: str, conditions: tuple[_Condition, ...], depth: int, position: Position
    ) -> Iterator[_Line]:
        if depth >= _DEEPEST_INCLUDE:
            raise InputError([Problem(position, f"Include goes more than {_DEEPEST_INCLUDE} files deep")])
        for word in _words(value):
            path = Path(word.replace("~", str(self.home), 1) if word.startswith("~/") else word)
            if not path.is_absolute():
                base = self.home / ".ssh" if self.top != SYSTEM_CONFIG else SYSTEM_CONFIG.parent
                path = base / path
            for found in sorted(glob.glob(str(path))):
                if Path(found).is_file():
                    yield from self._file(Path(found), conditions, depth + 1)


def _value(keyword: str, value: str) -> str:
    if keyword in ("proxycommand", "userknownhostsfile"):
        return value
    words = _words(value)
    return words[0] if words else ""


def _words(value: str) -> list[str]:
    """Words of a value: double quotes hold spaces together, # starts a comment."""
    try:
        lexer = shlex.shlex(value, posix=True, punctuation_chars=False)
        lexer.whitespace_split = True
        lexer.quotes = '"'
        lexer.escape = ""
        return list(lexer)
    except ValueError:  # a quote left open: ssh refuses the line, the words are still the best reading
        return value.replace('"', "").split()


@lru_cache(maxsize=10_000)
def _pattern(text: str) -> re.Pattern[str]:
    """ssh's patterns know * and ? only."""
    return re.compile(
        "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in text) + r"\Z", re.DOTALL
    )


def _matches(patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Any positive pattern matches any name, and no negated one does."""
    for pattern in patterns:
        if pattern.startswith("!") and any(_pattern(pattern[1:]).match(name) for name in names):
            return False
    return any(
        _pattern(pattern).match(name) for pattern in patterns if not pattern.startswith("!") for name in names
    )


def _host_condition(patterns: tuple[str, ...]) -> _Condition:
    return lambda asked, _: _matches(patterns, asked.names)


def _match_condition(words: list[str]) -> _Condition:
    """The criteria of a Match line, all of which must hold."""
    criteria: list[_Condition] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        negated = word.startswith("!")
        name, _, inline = word.lstrip("!").partition("=")
        criterion = _criterion(name.lower(), inline, rest)
        criteria.append(_negation(criterion) if negated else criterion)
    return lambda asked, values: bool(criteria) and all(each(asked, values) for each in criteria)


def _negation(criterion: _Condition) -> _Condition:
    return lambda asked, values: not criterion(asked, values)


def _criterion(name: str, inline: str, rest: list[str]) -> _Condition:
    if name == "all":
        return lambda _, __: True
    if name in ("canonical", "final"):
        return lambda _, __: False
    argument = inline or (rest.pop(0) if rest else "")
    patterns = tuple(argument.split(","))
    if name == "originalhost":
        return lambda asked, _: _matches(patterns, asked.names)
    if name == "host":
        return lambda asked, values: _matches(
            patterns,
            (values["hostname"].replace("%h", asked.names[0]),) if "hostname" in values else asked.names,
        )
    if name == "user":
        return lambda asked, values: _matches(patterns, (values.get("user", asked.user),))
    if name == "localuser":
        return lambda asked, _: _matches(patterns, (asked.local_user,))
    return lambda _, __: False  # exec, localnetwork, tagged …: only a running ssh can tell
