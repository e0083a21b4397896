"""Where outputs of real GPUs lie, for those who have them beside the checkout; nothing of them is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no outputs of real GPUs beside the checkout")
_HEADING = re.compile(r"^#{20,}\n# (.+? :: .+?)\n(?:# .*\n)*#{20,}\n", re.MULTILINE)


def names(pattern: str) -> list[str]:
    """The files of that pattern; one that is not there where there are none, so that tests show as skipped."""
    return sorted(path.name for path in SAMPLES.glob(pattern)) or ["none"]


def read(name: str) -> str:
    return (SAMPLES / name).read_text()


def sections(name: str) -> dict[str, str]:
    """What each command of a capture of many commands printed, by the capture's own headings."""
    parts = _HEADING.split(read(name))
    return dict(zip(parts[1::2], (body.rstrip("\n") + "\n" for body in parts[2::2]), strict=True))


def section(name: str, phase: str, what: str) -> str:
    """The one section whose heading begins with ``phase`` and holds ``what``; blank lines after it as printed."""
    found = [
        body for heading, body in sections(name).items() if heading.startswith(phase) and what in heading
    ]
    assert len(found) == 1, (name, phase, what)
    return found[0] + "\n"
