"""Is the lab an inventory describes there at all?

Without this question, a command on a lab that is down would end in whatever fails first: a password
file that is missing, an address where nobody answers. The answer is the command that helps.
"""

from __future__ import annotations

import os
from pathlib import Path

from fleet.core.errors import InputError, RefusedError


def refuse_if_down(inventory: str) -> None:
    """Raise RefusedError (exit 2) where the file ``inventory`` describes a lab, and that lab is down.

    Does nothing for every other inventory, one that cannot be read included; for those it costs
    looking for one word in the file.
    """
    path = Path(inventory)
    try:
        if b"lab_release" not in path.read_bytes():
            return
    except OSError:  # standard input, or no such file: for whoever loads the inventory to say
        return
    named = os.environ.get("FLEET_LAB_STATE")
    if named and (Path(named) / path.stem / "lab.json").is_file():
        return
    from fleet.lab.definition import load_definition

    try:
        definition = load_definition(path)
    except InputError:
        return
    common = next(iter(definition.variables.values()))
    # A lab brought up as --name OTHER is not where its inventory's file name says; lab_state knows.
    states = [definition.state, *(Path(str(common[key])) for key in ("lab_state",) if key in common)]
    if not any((state / "lab.json").is_file() for state in states):
        raise RefusedError(f"the lab of {inventory} is down", remedy=f"run fleet lab up {inventory}")
