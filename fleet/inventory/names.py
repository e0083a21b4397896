"""Names of hosts and groups: what may be one, and what else a host's key may hold (a port, an IPv6 address)."""

from __future__ import annotations

import ipaddress
import re
from difflib import get_close_matches

from fleet.core.yaml import Kind, Node

BODY_KEYS = ("hosts", "vars", "children")


def address_and_port(key: str) -> tuple[str, str | None]:
    """A host's key without its port, and the port: ``gpu[1:4]:2222``, ``[2001:db8::1]:22``."""
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]*)\](?::(\d+))?", key)
    if bracketed and is_ipv6(bracketed[1]):
        return bracketed[1], bracketed[2]
    outside = re.sub(r"\[[^\]]*\]", "", key)
    if outside.count(":") == 1 and "[" not in outside:
        tail = re.fullmatch(r"(.+):(\d+)", key)
        if tail:
            return tail[1], tail[2]
    return key, None


def is_ipv6(text: str) -> bool:
    """Whether a name is an IPv6 address, not a name with a port."""
    if text.count(":") < 2:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


_FORBIDDEN = re.compile(r"[\s,;!&{}()\"'\\$`<>|*?#/\x00-\x1f\x7f]")


def wrong_name(name: str, what: str) -> str | None:
    """Why a name cannot be used: empty, or with a character that patterns, files or shells take apart."""
    if not name:
        return f"a {what} needs a name"
    bad = _FORBIDDEN.search(name)
    if bad:
        shown = "a space" if bad[0].isspace() else f'the character "{bad[0]}"'
        return f'"{name}" is not a name for a {what}: it holds {shown}'
    if name.startswith(("-", "~", "@")):
        return f'"{name}" is not a name for a {what}: it starts with {name[0]}'
    if what == "group" and re.search(r"[:\[\]]", name):
        return f'"{name}" is not a name for a group: ranges and ports belong to hosts'
    if what == "host" and ":" in name and not is_ipv6(name):
        return f'"{name}" is not a name for a host: a port is written gpu01:2222, an IPv6 address in full'
    return None


def unknown_key(group: str, key: str, value: Node) -> str:
    """Advice for a key that a group does not have: a slip, or something that belongs elsewhere."""
    near = get_close_matches(key, BODY_KEYS, 1, 0.6)
    if near:
        return f"{key} is not a key of group {group}; did you mean {near[0]}?"
    if value.kind is Kind.MAP or value.kind is Kind.NULL:
        hint = f"is {key} a group (then put it under children:) or a host (under hosts:)?"
    else:
        hint = "variables of a group stand under vars:"
    return f"{key} is not a key of group {group} ({', '.join(BODY_KEYS)}); {hint}"
