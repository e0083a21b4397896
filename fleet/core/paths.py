"""Where fleet keeps its own things on the controller: the store, the log. Nothing else is written there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

STATE_VARIABLE = "FLEET_STATE_DIR"


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """``$FLEET_STATE_DIR``, or ``$XDG_STATE_HOME/fleet``, or ``~/.local/state/fleet``. Not created here.

    A relative ``XDG_STATE_HOME`` is ignored, as the XDG base directory specification asks.
    """
    if chosen := environ.get(STATE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    base = Path(environ.get("XDG_STATE_HOME") or "")
    return (base if base.is_absolute() else Path("~/.local/state").expanduser()) / "fleet"


def make_private(directory: Path) -> Path:
    """Create ``directory`` (and parents) for this user only, mode 0700, and return it."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory


def shown(path: Path) -> str:
    """``path`` as a person writes it: under the home directory with ``~``."""
    home = Path("~").expanduser()
    if home != Path("/") and path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    return str(path)
