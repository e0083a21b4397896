"""Which distribution this is, from os-release (freedesktop.org, os-release(5)).

Values are given as written: mapping a derivative (Pop!_OS, Rocky) to what it derives from is the
catalogue's business, by ``like`` and ``base_codename``, never by guessing from a name.
"""

from __future__ import annotations

from fleet.agent.facts import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict

    from fleet.agent.host import Host


KEYS = ("os",)
PATHS = ("/etc/os-release", "/usr/lib/os-release")


def parse(text: str) -> Dict[str, str]:
    """``KEY=value`` lines; values bare, or in single or double quotes with backslash escapes."""
    fields: Dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and key and not key.startswith("#"):
            fields[key] = _unquote(value.strip())
    return fields


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return value[1:-1]
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    out, escaped = [], False
    for character in value:
        if character == "\\" and not escaped:
            escaped = True
            continue
        out.append(character)
        escaped = False
    return "".join(out)


def document(fields: Dict[str, str]) -> Dict[str, Any]:
    """The ``os`` part: {"id", "version_id", "codename", "name", "like", "base_codename", "platform_id"}."""
    part: Dict[str, Any] = {
        "id": fields.get("ID") or "linux",  # os-release(5): the default
        "version_id": fields.get("VERSION_ID") or None,
        "codename": fields.get("VERSION_CODENAME") or None,
        "name": fields.get("PRETTY_NAME") or fields.get("NAME") or "Linux",
        "like": fields.get("ID_LIKE", "").split(),
        "base_codename": fields.get("UBUNTU_CODENAME") or fields.get("DEBIAN_CODENAME") or None,
        "platform_id": fields.get("PLATFORM_ID") or None,
    }
    for key in ("version_id", "codename", "base_codename", "platform_id"):
        if part[key] is None:
            part[key + "_reason"] = "not_supported"
    return part


def collect(host: Host) -> Dict[str, Any]:
    """The ``os`` part; FileNotFoundError where there is no os-release."""
    try:
        text = read_text(host, PATHS[0])
    except FileNotFoundError:
        text = read_text(host, PATHS[1])
    return {"os": document(parse(text))}
