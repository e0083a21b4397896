"""Finds the files that tasks name: next to the playbook, or by absolute path."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def find_file(kind: str, name: str, directories: Iterable[Path]) -> Path | None:
    """``name`` in ``<directory>/<kind>/`` or ``<directory>/``, the first that is a file; or None."""
    path = Path(name).expanduser()
    if path.is_absolute():
        return path if path.is_file() else None
    candidates = (base for directory in directories for base in (directory / kind / name, directory / name))
    return next((each for each in candidates if each.is_file()), None)
