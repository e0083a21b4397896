"""Graphical sessions: a desktop holds the GPU, and a module reload would end it."""

from __future__ import annotations

import os

from fleet.agent.facts import os_release, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


KEYS = ("desktop_sessions",)
DIRECTORY = "/run/systemd/sessions"
GRAPHICAL = ("x11", "wayland", "mir")


def session(identifier: str, text: str) -> Optional[Json]:
    """One file of logind's; None when that session is not graphical or is ending.

    ``class`` is user, or greeter for a login screen, which holds the GPU as well.
    """
    fields = os_release.parse(text)  # the same format
    if fields.get("TYPE") not in GRAPHICAL or fields.get("STATE") == "closing":
        return None
    return {
        "id": identifier,
        "user": fields.get("USER") or fields.get("UID") or "?",
        "type": fields["TYPE"],
        "class": fields.get("CLASS") or "user",
        "seat": fields.get("SEAT") or None,
    }


def collect(host: Host) -> Json:
    """The ``desktop_sessions`` part; no logind, no sessions."""
    try:
        names = sorted(os.listdir(host.path(DIRECTORY)))
    except FileNotFoundError:
        names = []
    found: List[Json] = []
    for name in names:
        if name.endswith(".ref") or name.startswith("."):
            continue
        try:
            entry = session(name, read_text(host, DIRECTORY + "/" + name))
        except FileNotFoundError:
            continue  # it ended meanwhile
        if entry is not None:
            found.append(entry)
    return {"desktop_sessions": found}
