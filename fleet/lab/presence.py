"""Is the lab an inventory describes there at all?

A lab that is down has no passwords, so its inventory cannot be read. The command line asks here when
an inventory cannot be read, or none of its hosts answers, so that the answer is the command that helps.
"""

from __future__ import annotations

from pathlib import Path

from fleet.core.errors import InputError, RefusedError
from fleet.lab.definition import load_definition


def refuse_if_down(inventory: Path) -> None:
    """Raise RefusedError (exit 2) where ``inventory`` describes a lab, and that lab is down.

    Does nothing for every other inventory, one that cannot be read included.
    """
    try:
        definition = load_definition(inventory)
    except InputError:
        return
    if not (definition.state / "lab.json").is_file():
        raise RefusedError(f"the lab of {inventory} is down", remedy=f"run fleet lab up {inventory}")
