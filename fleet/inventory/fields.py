"""What variables fleet knows, and what values each of them takes: one table, checked where they are written.

Inventories hold many variables fleet has never heard of; those pass as they are. The ones below are read by
fleet, so a value of the wrong type is refused at its place, before any host is touched. Names are matched
exactly first, then by pattern, also inside nested mappings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache

from fleet.core.errors import Problem
from fleet.core.template import is_template
from fleet.core.yaml import Kind, Node, as_read, quote_advice


class Type(Enum):
    """The types of known variables."""

    ANY = "anything"
    TEXT = "text"
    ADDRESS = "a host name or address"
    USER = "a user name"
    VERSION = "a version, in quotes"
    LOOSE_VERSION = "a version, in quotes, or a whole number"
    PORT = "a number from 1 to 65535"
    BOOL = "yes or no"
    INTEGER = "a whole number"
    SECONDS = "a number of seconds above 0"
    MAC = "a MAC address, in quotes"
    WINDOW = 'a mapping with start and end, each a time such as "22:30"'
    TIME = 'a time such as "22:30"'
    FORWARDS = 'a list of "port:port" texts'
    PAIR = 'a "port:port" text'
    SECRET = "text, kept secret"  # noqa: S105 - the name of a type
    MAYBE_SECRET = "kept secret if text"  # noqa: S105
    HOSTS = "a host name, user@host:port, or a list of them"
    PATH = "a path"
    CONNECTION = "ssh, paramiko, smart or local"
    BECOME_METHOD = "sudo"
    REFUSED = "not supported"


@dataclass(frozen=True)
class Field:
    """One known variable (or pattern of names): its type and what it means."""

    name: str
    type: Type
    meaning: str


FIELDS: tuple[Field, ...] = (
    Field("ansible_host", Type.ADDRESS, "address to connect to; default: the host's name"),
    Field("ansible_port", Type.PORT, "port of sshd; default 22 or what ssh_config says"),
    Field("ansible_user", Type.USER, "user to log in as; default: what ssh_config says, else your own name"),
    Field("ansible_password", Type.SECRET, "password to log in with"),
    Field("ansible_ssh_pass", Type.SECRET, "the same, older name"),
    Field("ansible_ssh_password", Type.SECRET, "the same, another name"),
    Field("ansible_ssh_host", Type.ADDRESS, "older name of ansible_host"),
    Field("ansible_ssh_port", Type.PORT, "older name of ansible_port"),
    Field("ansible_ssh_user", Type.USER, "older name of ansible_user"),
    Field(
        "ansible_ssh_private_key_file", Type.PATH, "key to log in with; relative to the inventory's folder"
    ),
    Field("ansible_private_key_file", Type.PATH, "the same, older name"),
    Field(
        "ansible_ssh_common_args", Type.TEXT, "arguments of ssh: -J, -o ProxyJump, -o ProxyCommand and others"
    ),
    Field("ansible_ssh_extra_args", Type.TEXT, "more arguments of ssh, as above"),
    Field("ansible_ssh_args", Type.TEXT, "more arguments of ssh, as above"),
    Field("ansible_ssh_timeout", Type.SECONDS, "seconds to wait for a connection"),
    Field("ansible_timeout", Type.SECONDS, "the same, older name"),
    Field("ansible_connection", Type.CONNECTION, "how to connect; local means this machine, without SSH"),
    Field("ansible_python_interpreter", Type.TEXT, "Python on the host; auto or unset: it is searched for"),
    Field("ansible_become", Type.BOOL, "become another user (root) with sudo"),
    Field("ansible_become_user", Type.USER, "whom to become; default root"),
    Field("ansible_become_method", Type.BECOME_METHOD, "only sudo"),
    Field("ansible_become_password", Type.SECRET, "password that sudo asks for"),
    Field("ansible_become_pass", Type.SECRET, "the same, older name"),
    Field("ansible_sudo_pass", Type.SECRET, "the same, oldest name"),
    Field(
        "ansible_group_priority",
        Type.INTEGER,
        "which of two groups of equal depth wins: the higher; default 1",
    ),
    Field("ansible_host_key_checking", Type.BOOL, "no is refused: host keys are verified; see --accept-new"),
    Field("ansible_ssh_host_key_checking", Type.BOOL, "the same"),
    Field("ansible_become_exe", Type.ANY, "ignored"),
    Field("ansible_become_flags", Type.ANY, "ignored: fleet calls sudo its own way"),
    Field("ansible_pipelining", Type.ANY, "ignored: nothing to tune"),
    Field("ansible_ssh_pipelining", Type.ANY, "ignored"),
    Field("ansible_ssh_retries", Type.ANY, "ignored"),
    Field("ansible_ssh_transfer_method", Type.ANY, "ignored"),
    Field("ansible_ssh_executable", Type.ANY, "ignored"),
    Field("ansible_scp_if_ssh", Type.ANY, "ignored"),
    Field("ansible_shell_type", Type.ANY, "ignored: any login shell will do"),
    Field("ansible_shell_executable", Type.ANY, "ignored"),
    Field("ansible_remote_tmp", Type.ANY, "ignored"),
    Field(
        "fleet_jump",
        Type.HOSTS,
        "bastions in the order passed: inventory hosts or user@host:port; none: none",
    ),
    Field(
        "fleet_known_hosts", Type.PATH, "file of host keys, or a list of files; instead of ~/.ssh/known_hosts"
    ),
    Field(
        "fleet_connect_timeout", Type.SECONDS, "seconds to wait for a connection; before ansible_ssh_timeout"
    ),
    Field("nvidia_driver_version", Type.VERSION, 'driver to have: "580.159.04", or a branch: "580"'),
    Field("nvidia_driver_branch", Type.VERSION, 'driver branch: "580"'),
    Field("container_toolkit_version", Type.VERSION, "NVIDIA container toolkit to have"),
    Field("nvidia_container_toolkit_version", Type.VERSION, "the same, longer name"),
    Field("docker_version", Type.VERSION, "Docker engine to have"),
    Field("cuda_version", Type.VERSION, "CUDA version"),
    Field("maintenance_window", Type.WINDOW, "when disruptive work may be done"),
    Field("mac", Type.MAC, "MAC address"),
    Field("forwards", Type.FORWARDS, "port pairs"),
    Field("site", Type.TEXT, "name of the site"),
    Field("rack", Type.TEXT, "name of the rack"),
    Field("secure_boot", Type.BOOL, "whether Secure Boot is on"),
    Field("public_internet", Type.BOOL, "no: nothing public is contacted"),
    Field("http_proxy", Type.TEXT, "proxy of apt and Docker, http://host:port"),
    Field("https_proxy", Type.TEXT, "the same, for https addresses"),
    Field("*_mac", Type.MAC, "MAC addresses"),
    Field("*_version", Type.LOOSE_VERSION, "versions"),
    Field("*_password", Type.MAYBE_SECRET, "secrets"),
    Field("*_passwd", Type.MAYBE_SECRET, "secrets"),
    Field("*_pass", Type.MAYBE_SECRET, "secrets"),
    Field("*_token", Type.MAYBE_SECRET, "secrets"),
    Field("*_secret", Type.MAYBE_SECRET, "secrets"),
    Field("*_passphrase", Type.MAYBE_SECRET, "secrets"),
    Field("*_api_key", Type.MAYBE_SECRET, "secrets"),
    Field("password", Type.MAYBE_SECRET, "a secret"),
    Field("passphrase", Type.MAYBE_SECRET, "a secret"),
    Field("token", Type.MAYBE_SECRET, "a secret"),
)
_EXACT = {entry.name: entry for entry in FIELDS if "*" not in entry.name}
_PATTERNS = tuple(entry for entry in FIELDS if "*" in entry.name)
_NESTED = (Type.LOOSE_VERSION, Type.MAC, Type.MAYBE_SECRET, Type.VERSION)


@lru_cache(maxsize=100_000)
def field_of(name: str) -> Field | None:
    """The table's entry for a variable, by its name or by pattern; None if fleet does not know it."""
    exact = _EXACT.get(name)
    if exact is not None:
        return exact
    return next((entry for entry in _PATTERNS if fnmatchcase(name, entry.name)), None)


def is_secret_name(name: str) -> bool:
    """Whether a text under this name is kept secret."""
    known = field_of(name)
    return known is not None and known.type in (Type.SECRET, Type.MAYBE_SECRET)


def check_variables(variables: Mapping[str, Node], problems: list[Problem]) -> None:
    """Check one layer's variables against the table; what is wrong is added to ``problems``."""
    for name, node in variables.items():
        known = field_of(name)
        if known is None:
            _suggest(name, node, problems)
        elif node.tag is None or known.type is Type.REFUSED:
            check_value(name, known.type, node, problems)
        if not node.is_scalar:
            _check_nested(node, problems)


def check_value(name: str, wanted: Type, node: Node, problems: list[Problem]) -> None:
    """Check one value. Templates are checked again once rendered (connection variables)."""
    if node.kind is Kind.NULL or is_template(node.value):
        return
    message = _CHECKS.get(wanted, _fine)(name, wanted, node, problems)
    if message:
        problems.append(Problem(node.position, message))


def text_of(node: Node, wanted: Type) -> object:
    """The value of a checked node, made the type its field wants: ``550`` becomes the text "550"."""
    if node.kind is Kind.INT and wanted in _TEXTS:
        return node.text
    return node.value


_TEXTS = (Type.TEXT, Type.ADDRESS, Type.USER, Type.VERSION, Type.PATH, Type.SECRET, Type.MAYBE_SECRET)


def _suggest(name: str, node: Node, problems: list[Problem]) -> None:
    """A name that is nearly a connection variable is a slip: the variable would do nothing, in silence."""
    if not name.startswith(("ansible_", "fleet_")) or name in _ANSIBLE_OTHERS:
        return
    near = get_close_matches(name, [known for known in _EXACT if known.startswith(name[:6])], 1, 0.88)
    if near:
        message = f"{name} is not a variable that anything reads; did you mean {near[0]}?"
        problems.append(Problem(node.position, message))


# Facts and others whose names lie near a connection variable's.
_ANSIBLE_OTHERS = frozenset(
    (
        "ansible_become_timeout",
        "ansible_hostname",
        "ansible_python",
        "ansible_python_version",
        "ansible_user_dir",
        "ansible_user_gid",
        "ansible_user_id",
        "ansible_user_uid",
    )
)


def _check_nested(node: Node, problems: list[Problem]) -> None:
    for name, child in node.children.items():
        known = field_of(name)
        if known is not None and known.type in _NESTED and child.tag is None:
            check_value(name, known.type, child, problems)
        if not child.is_scalar:
            _check_nested(child, problems)
    for item in node.items:
        if not item.is_scalar:
            _check_nested(item, problems)


_Check = Callable[[str, Type, Node, list[Problem]], "str | None"]


def _fine(name: str, wanted: Type, node: Node, problems: list[Problem]) -> None:
    return None


def _shown(node: Node) -> str:
    return f'"{node.text}"' if node.is_scalar else as_read(node)


def _canonical_int(node: Node) -> bool:
    return node.kind is Kind.INT and str(node.value) == node.text


def _text(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    if node.kind is Kind.TEXT or _canonical_int(node):
        return None if node.text else f"{name} must be {wanted.value}, not empty"
    if node.is_scalar:
        return f"{name} must be {wanted.value}; {quote_advice(node)}"
    return f"{name} must be {wanted.value}, not {as_read(node)}"


def _word(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    """An address or a user: one word, which no command could take for an option."""
    message = _text(name, wanted, node, problems)
    if message:
        return message
    if wanted is Type.ADDRESS and re.fullmatch(r"[^:\[\]]+:[0-9]+", node.text):
        return f"{name} must be {wanted.value}, not {_shown(node)}; the port goes to ansible_port"
    if re.search(r"[\s\x00-\x1f\x7f]", node.text) or node.text.startswith("-"):
        return f"{name} must be {wanted.value}, not {_shown(node)}"
    return None


def _version(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    if node.kind is Kind.TEXT or _canonical_int(node):
        return None
    if wanted is Type.LOOSE_VERSION and node.kind not in (Kind.FLOAT, Kind.BASE60):
        return None
    if node.is_scalar:
        return f"{name} {quote_advice(node)}"
    return f"{name} must be {wanted.value}, not {as_read(node)}"


def _whole(node: Node) -> int | None:
    if node.kind is Kind.INT and _canonical_int(node):
        return int(node.text)
    if node.kind is Kind.TEXT and re.fullmatch(r"[0-9]{1,9}", node.text):
        return int(node.text)
    return None


def _port(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    number = _whole(node)
    if number is not None and 1 <= number <= 65535:
        return None
    return f"{name} must be {wanted.value}, not {_shown(node)}"


def _integer(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    return None if _whole(node) is not None else f"{name} must be {wanted.value}, not {_shown(node)}"


def _seconds(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    try:
        if node.kind in (Kind.INT, Kind.FLOAT, Kind.TEXT) and 0 < float(node.text) < 86_400:
            return None
    except ValueError:
        pass
    return f"{name} must be {wanted.value}, not {_shown(node)}"


TRUE_WORDS = frozenset(("yes", "true", "on", "1", "y", "t"))
FALSE_WORDS = frozenset(("no", "false", "off", "0", "n", "f"))


def _bool(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    if node.kind is Kind.BOOL or (node.is_scalar and node.text.lower() in TRUE_WORDS | FALSE_WORDS):
        return None
    return f"{name} must be {wanted.value}, not {_shown(node)}"


_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}([:-]))(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}\Z|[0-9A-Fa-f]{12}\Z")


def _mac(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    if not node.is_scalar:
        return f"{name} must be {wanted.value}, not {as_read(node)}"
    if node.kind is not Kind.TEXT:
        return f"{name} {quote_advice(node)}"
    return None if _MAC.match(node.text) else f"{name} must be {wanted.value}, not {_shown(node)}"


_TIME = re.compile(r"(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?\Z")


def _time(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    if node.is_scalar and node.kind is not Kind.TEXT:
        return f"{name} {quote_advice(node)}"
    return None if _TIME.match(node.text) else f"{name} must be {wanted.value}, not {_shown(node)}"


def _window(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    if node.kind is Kind.LIST:
        for item in node.items:
            check_value(name, Type.WINDOW, item, problems)
        return None
    if node.kind is Kind.BASE60:
        return f"{name} {quote_advice(node)}"
    for part in ("start", "end"):
        if part in node.children:
            check_value(f"{name}: {part}", Type.TIME, node.children[part], problems)
    return (
        None if node.kind in (Kind.MAP, Kind.TEXT) else f"{name} must be {wanted.value}, not {_shown(node)}"
    )


def _forwards(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    if node.kind is not Kind.LIST:
        return _pair(name, wanted, node, problems)
    for item in node.items:
        check_value(name, Type.PAIR, item, problems)
    return None


def _pair(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    if node.kind in (Kind.TEXT, Kind.MAP):
        return None
    if node.is_scalar:
        return f"{name} {quote_advice(node)}"
    return f"{name} must be {wanted.value}, not {as_read(node)}"


def _secret(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    """The value itself must not appear in the message."""
    if node.kind is Kind.TEXT or _canonical_int(node):
        return None
    if wanted is Type.MAYBE_SECRET and (not node.is_scalar or node.kind is Kind.BOOL):
        return None
    if node.is_scalar:
        return f"{name} is read by YAML as a {node.kind.value}, not as text; write it in quotes"
    return f"{name} must be text, not {as_read(node)}"


def _hosts(name: str, wanted: Type, node: Node, problems: list[Problem]) -> str | None:
    if node.kind is Kind.LIST:
        for item in node.items:
            check_value(name, Type.TEXT, item, problems)
        return None
    return _text(name, wanted, node, problems)


def _one_of(name: str, node: Node, allowed: tuple[str, ...]) -> str | None:
    if node.is_scalar and node.text.removeprefix("ansible.builtin.") in allowed:
        return None
    return f"{name} must be {' or '.join(allowed)}, not {_shown(node)}"


_CHECKS: dict[Type, _Check] = {
    Type.TEXT: _text,
    Type.ADDRESS: _word,
    Type.USER: _word,
    Type.PATH: _hosts,
    Type.HOSTS: _hosts,
    Type.VERSION: _version,
    Type.LOOSE_VERSION: _version,
    Type.PORT: _port,
    Type.INTEGER: _integer,
    Type.SECONDS: _seconds,
    Type.BOOL: _bool,
    Type.MAC: _mac,
    Type.TIME: _time,
    Type.WINDOW: _window,
    Type.FORWARDS: _forwards,
    Type.PAIR: _pair,
    Type.SECRET: _secret,
    Type.MAYBE_SECRET: _secret,
    Type.CONNECTION: lambda name, _, node, __: _one_of(name, node, ("ssh", "paramiko", "smart", "local")),
    Type.BECOME_METHOD: lambda name, _, node, __: _one_of(name, node, ("sudo",)),
}
