"""Where schemas and playbooks lie: inside the wheel, or at the top of a source checkout."""

from __future__ import annotations

from pathlib import Path

import fleet


def data_dir(kind: str) -> Path:
    """The folder of shipped data files of ``kind`` (``schemas`` or ``playbooks``)."""
    package = Path(fleet.__file__).resolve().parent
    installed = package / "_data" / kind
    return installed if installed.is_dir() else package.parent / kind
