"""Arguments of ssh as inventories carry them (``ansible_ssh_common_args``, a ProxyCommand), understood.

What changes the way to a host is honoured; what only tunes OpenSSH is passed over; everything else is
refused by name, because an argument dropped in silence may be the one that mattered (a bastion, say).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from functools import lru_cache


class SshArgsError(ValueError):
    """An argument that is not understood or not allowed."""

    def __init__(self, what: str, remedy: str | None = None, *, refused: bool = False) -> None:
        super().__init__(what)
        self.remedy = remedy
        self.refused = refused


@dataclass(frozen=True)
class Jump:
    """One bastion as written: user and port where given, and keys and options of an inner ssh command."""

    host: str
    user: str | None = None
    port: int | None = None
    identity_files: tuple[str, ...] = ()


@dataclass
class SshArgs:
    """What a string of arguments says. ``options`` are the honoured -o options, keywords in lower case."""

    options: dict[str, str] = field(default_factory=dict)
    identity_files: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    forward: str | None = None

    def set(self, keyword: str, value: str) -> None:
        """As in ssh, the first value of an option counts."""
        self.options.setdefault(keyword, value)


_HONOURED = frozenset(
    (
        "proxyjump",
        "proxycommand",
        "stricthostkeychecking",
        "userknownhostsfile",
        "port",
        "user",
        "identitiesonly",
        "hostkeyalias",
        "connecttimeout",
    )
)
_PASSED_OVER = frozenset(
    (
        "controlmaster",
        "controlpersist",
        "controlpath",
        "compression",
        "serveraliveinterval",
        "serveralivecountmax",
        "tcpkeepalive",
        "forwardagent",
        "forwardx11",
        "forwardx11trusted",
        "loglevel",
        "batchmode",
        "requesttty",
        "preferredauthentications",
        "passwordauthentication",
        "kbdinteractiveauthentication",
        "updatehostkeys",
        "pubkeyauthentication",
        "gssapiauthentication",
        "gssapidelegatecredentials",
        "connectionattempts",
        "challengeresponseauthentication",
        "checkhostip",
        "hashknownhosts",
        "visualhostkey",
        "addkeystoagent",
        "permitlocalcommand",
        "clearallforwardings",
        "exitonforwardfailure",
        "ipqos",
        "sendenv",
        "setenv",
        "escapechar",
        "numberofpasswordprompts",
        "globalknownhostsfile",
        "addressfamily",
    )
)
_FLAGS_PASSED_OVER = frozenset("CqAaxXYTtvkKn46N")
_FLAGS_WITH_VALUE = frozenset("oJiplWSFLRDbBcDEeImOQwPL")


@lru_cache(maxsize=10_000)
def parse(text: str) -> SshArgs:
    """Understand arguments of ssh. Raises :class:`SshArgsError`; the caller must not change the result."""
    found = _parse(text, positional=False)
    if found.rest:
        raise SshArgsError(f'"{found.rest[0]}" is not an option of ssh')
    return found


def _parse(text: str, *, positional: bool) -> SshArgs:
    try:
        words = shlex.split(text)
    except ValueError:
        raise SshArgsError("a quote is left open") from None
    found = SshArgs()
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            found.rest.append(word)
            if positional and len(found.rest) > 1:  # what follows the host is the remote command
                found.rest += words
                break
            continue
        _flags(word, words, found)
    return found


def _flags(word: str, words: list[str], found: SshArgs) -> None:
    """One word of flags: ``-C``, ``-qA``, ``-p2222``, ``-o Keyword=value``."""
    for index, flag in enumerate(word[1:], 1):
        if flag in _FLAGS_PASSED_OVER:
            continue
        if flag not in _FLAGS_WITH_VALUE:
            raise SshArgsError(f"{word} is not understood")
        value = word[index + 1 :] or (words.pop(0) if words else "")
        if not value:
            raise SshArgsError(f"-{flag} needs a value")
        _valued(flag, value, found)
        return


def _valued(flag: str, value: str, found: SshArgs) -> None:
    named = {"J": "proxyjump", "p": "port", "l": "user"}
    if flag == "o":
        _option(value, found)
    elif flag in named:
        found.set(named[flag], value)
    elif flag == "i":
        found.identity_files.append(value)
    elif flag == "W":
        found.forward = value
    elif flag == "F":
        raise SshArgsError(f"-F {value} is not read from here", "give it with --ssh-config FILE")
    elif flag != "S":  # -S names a control socket: passed over
        raise SshArgsError(f"-{flag} {value} is not understood")


def _option(text: str, found: SshArgs) -> None:
    match = re.fullmatch(r"\s*([A-Za-z0-9]+)(?:\s*=\s*|\s+)(.*?)\s*", text)
    if match is None:
        raise SshArgsError(f'"-o {text}" is not an option: write -o Keyword=value')
    keyword, value = match[1].lower(), match[2]
    if keyword == "stricthostkeychecking" and value.lower() in ("no", "off"):
        raise SshArgsError(
            f"StrictHostKeyChecking={value} would accept any host key",
            "use StrictHostKeyChecking=accept-new (or --accept-new): it pins new keys, refuses changed ones",
            refused=True,
        )
    if keyword == "userknownhostsfile" and value.split() == ["/dev/null"]:
        raise SshArgsError(
            "UserKnownHostsFile=/dev/null would forget every host key",
            "leave it out, or name a file with fleet_known_hosts",
            refused=True,
        )
    if keyword == "identityfile":
        found.identity_files.append(value)
    elif keyword in _HONOURED:
        found.set(keyword, value)
    elif keyword not in _PASSED_OVER:
        raise SshArgsError(f"the option {match[1]} is not understood")


@lru_cache(maxsize=10_000)
def jumps_of(text: str) -> tuple[Jump, ...]:
    """The bastions of a ProxyJump value: ``[user@]host[:port]``, comma-separated. Raises SshArgsError."""
    return tuple(_jump(part.strip()) for part in text.split(","))


def _jump(text: str) -> Jump:
    match = re.fullmatch(
        r"(?:ssh://)?(?:([^@\s]+)@)?(?:\[([^\]\s]+)\]|([^@:\s/]+|[0-9A-Fa-f:]+:[0-9A-Fa-f:]+))(?::(\d+))?/?",
        text,
    )
    if match is None:
        raise SshArgsError(f'"{text}" is not a jump host: write user@host:port')
    port = int(match[4]) if match[4] else None
    if port is not None and not 1 <= port <= 65535:
        raise SshArgsError(f'"{text}" has no port from 1 to 65535')
    return Jump(match[2] or match[3], match[1], port)


@lru_cache(maxsize=10_000)
def jumps_of_command(command: str) -> tuple[Jump, ...] | None:
    """The bastions of a ProxyCommand that is ``ssh … -W %h:%p … host`` (or ``ssh … host nc %h %p``).

    None if it is anything else and must be run as it is. Raises :class:`SshArgsError` if it is such a command
    but switches the checking of host keys off.
    """
    command = re.sub(r"\s*2>\s*/dev/null\s*$", "", command.strip())
    if re.search(r"[|;&<>`]|\$\(", command):
        return None
    match = re.match(r"(?:exec\s+)?(?:/usr/bin/)?ssh\s+(.*)\Z", command, re.DOTALL)
    if match is None:
        return None
    try:
        inner = _parse(match[1], positional=True)
        return _inner_jumps(inner)
    except SshArgsError as error:
        if error.refused:
            raise
        return None


def _inner_jumps(inner: SshArgs) -> tuple[Jump, ...] | None:
    forwarded = inner.forward in ("%h:%p", "[%h]:%p") and len(inner.rest) == 1
    netcat = inner.forward is None and re.fullmatch(
        r"(?:nc|netcat|ncat)(?: -[qw] ?\d+)* %h %p", " ".join(inner.rest[1:])
    )
    if not forwarded and not netcat:
        return None
    understood = {"proxyjump", "port", "user", "stricthostkeychecking", "identitiesonly", "connecttimeout"}
    if set(inner.options) - understood:
        return None
    last = _jump(inner.rest[0])
    port = last.port or (_jump(f"x:{inner.options['port']}").port if "port" in inner.options else None)
    user = last.user or inner.options.get("user")
    before = jumps_of(inner.options["proxyjump"]) if "proxyjump" in inner.options else ()
    return (*before, Jump(last.host, user, port, tuple(inner.identity_files)))
