"""Proxies in apt's own words, for a private apt root: pure.

apt knows no domains and no ``no_proxy`` in its settings, only servers by their names; those that are about to be
asked are known, so the exempt ones among them are named.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Iterable, List, Mapping, Optional


def servers(text: str) -> List[str]:
    """The names of the servers whose addresses stand in a text, such as a list of sources; each once."""
    import re

    found = re.findall(r"https?://(?:[^\s/@]*@)?([^\s/:@\]]+)", text)
    return list(dict.fromkeys(name.lower() for name in found))


def settings(proxies: Mapping[str, Optional[str]], exempt: Iterable[str], asked: Iterable[str]) -> str:
    """Text of an apt.conf. ``proxies``: by scheme; ``exempt``: entries of no_proxy; ``asked``: the servers."""
    entries = list(exempt)
    direct = [name for name in asked if is_exempt(name, entries)]
    lines = []
    for scheme in ("http", "https"):
        if proxies.get(scheme):
            lines.append('Acquire::%s::Proxy "%s";' % (scheme, proxies[scheme]))
            lines += ['Acquire::%s::Proxy::%s "DIRECT";' % (scheme, name) for name in direct]
    return "".join(line + "\n" for line in lines)


def is_exempt(server: str, entries: Iterable[str]) -> bool:
    """Whether a server is reached without a proxy: ``name`` and what is below it, ``.domain``: below it only."""
    for entry in entries:
        name = entry.lower().lstrip("*") if entry != "*" else entry
        if name in ("*", server) or server.endswith(name if name.startswith(".") else "." + name):
            return True
    return False
