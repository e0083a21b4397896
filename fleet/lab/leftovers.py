"""``python -m fleet.lab.leftovers``: remove every lab of this machine, whichever checkout made it.

For machines that test one commit after another, where a session that ended early leaves hosts
behind. On a machine where people work, ``fleet lab down INVENTORY`` is the right command.
"""

from __future__ import annotations

import sys

from fleet.lab.engine import LABEL, Engine
from fleet.lab.lab import remove_lab


def labs(engine: Engine) -> set[str]:
    """Names of the labs that own a container, volume or network here."""
    found: set[str] = set()
    for kind in ("container", "volume", "network"):
        everything = ["--all"] if kind == "container" else []
        column = f'{{{{.Label "{LABEL}"}}}}'
        listed = engine.docker(kind, "ls", *everything, "--filter", f"label={LABEL}", "--format", column)
        found |= set(listed.stdout.split())
    return found


def main() -> None:
    """Remove them all, saying which."""
    engine = Engine()
    engine.require()
    for name in sorted(labs(engine)):
        removed = remove_lab(engine, name)
        sys.stderr.write(f"removed what was left of lab {name}: {len(removed)} things\n")


if __name__ == "__main__":
    main()
