"""The Python that runs the agent, and whether its standard library is whole (python3-minimal is not)."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, Dict, List

    from fleet.agent.host import Host


KEYS = ("python",)

# Of the standard library, what the agent or a tool on a host needs beyond python3-minimal.
EXPECTED = ("shutil", "ctypes", "http", "urllib", "ssl", "uuid", "multiprocessing", "email")


def missing_modules(directory: str) -> List[str]:
    """Those of :data:`EXPECTED` that the standard library at ``directory`` lacks; nothing is imported."""
    return [
        name
        for name in EXPECTED
        if not os.path.exists(os.path.join(directory, name + ".py"))
        and not os.path.isdir(os.path.join(directory, name))
    ]


def collect(host: Host) -> Dict[str, Any]:
    """The ``python`` part."""
    missing = missing_modules(os.path.dirname(os.__file__))
    return {
        "python": {
            "version": "%d.%d.%d" % sys.version_info[:3],
            "complete": not missing,
            "missing_modules": missing,
            "executable": sys.executable or "/usr/bin/python3",
        }
    }
