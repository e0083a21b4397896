"""What was seen last, and what it depends on: while the key is equal, nothing is run again.

Where it is kept, and how reports read it: :mod:`fleet.agent.facts.checks`.
"""

from __future__ import annotations

import os

from fleet.agent.digest import sha256
from fleet.agent.driver import seen
from fleet.agent.facts import cdi, checks
from fleet.agent.files import read_bytes, write_state
from fleet.agent.protocol import Json, canonical

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Optional

    from fleet.agent.host import Host


DAEMON_JSON = "/etc/docker/daemon.json"


def key(host: Host, args: Json, image: Json, info: Json) -> Json:
    """What the outcome depends on: boot, driver, image, toolkit, engine and their configuration."""
    return {
        "boot": seen.boot_id(host) or None,
        "driver": (seen.loaded(host) or {}).get("version"),
        "image": args.get("digest") or image.get("Id"),
        "toolkit": _toolkit(host),
        "engine": info.get("ServerVersion"),
        "daemon_json": _digest(host, DAEMON_JSON),
        "cdi": [[one["path"], _digest(host, one["path"])] for one in cdi.of_gpus(host)],
        "request": [args.get("request") or "auto", args.get("gpus") or "all"],
        "addresses": list(args.get("addresses") or []),
    }


def record(host: Host) -> Optional[Json]:
    """What was found last on this host; None where there is nothing, or nothing readable."""
    try:
        return checks.read(host)
    except (OSError, ValueError):
        return None


def keep(host: Host, found: Json) -> None:
    import time

    found["checked_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    write_state(host, checks.path(host), canonical(found))


def _toolkit(host: Host) -> Optional[str]:
    """The toolkit package's version; on a host without dpkg, the size and time of its program."""
    found = host.dpkg.installed("nvidia-container-toolkit")
    if found is not None:
        return str(found)
    path = host.which("nvidia-ctk")
    if path is None:
        return None
    status = os.stat(host.path(path))
    return "%d:%d" % (status.st_size, status.st_mtime_ns)


def _digest(host: Host, path: str) -> Optional[str]:
    data = read_bytes(host, path)
    return None if data is None else sha256(data).hex()
