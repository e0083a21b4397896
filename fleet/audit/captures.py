"""Captures: what nvidia-smi printed on some host, saved to a file, as the probe document of that host.

Read by the agent's own parsers (:mod:`fleet.agent.nvidia_smi`), so that a file is judged as a host is.
"""

from __future__ import annotations

import re
from pathlib import Path

from fleet.agent.nvidia_smi import csv, fill, states, table, text, xml
from fleet.agent.protocol import Json
from fleet.core.errors import InputError, Position, Problem

LARGEST = 64 * 1024 * 1024
_REMEDY = (
    "save one of: nvidia-smi -q -x, nvidia-smi -q, nvidia-smi --query-gpu=… --format=csv (with its header)"
)
_TEXT = re.compile(
    r"^=+NVSMI LOG=+|^GPU [0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]\s*$", re.M
)
_TABLE = re.compile(r"^\|\s*NVIDIA-SMI \d|^\|\s*\d+\s+.*\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:", re.M)


def load(path: str | Path) -> Json:
    """The probe document of a file with ``-q -x``, ``-q``, the CSV of a query with header, or the plain table.

    A file that holds only one of nvidia-smi's failures gives a document of that status. InputError, with the
    file's name, where it cannot be read or holds none of these.
    """
    content = _read(Path(path))
    if "<" + xml.ROOT in content:
        return xml.parse(content)
    if _TEXT.search(content):
        return text.parse(content)
    if csv.header_of(content) is not None:
        return csv.parse_query(None, content)
    if _TABLE.search(content):
        return table.parse(content)
    called = states.classify(content, "", 0)
    if called["status"] in ("ok", "error"):
        what = "is empty" if not content.strip() else "is no output of nvidia-smi that fleet knows"
        raise InputError([Problem(Position(str(path), 1, 1), f"the capture {what}")], remedy=_REMEDY)
    document = fill.document([], content)
    document["status"], document["message"] = called["status"], called["message"]
    return document


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(
                [Problem(Position(str(path), 1, 1), "the capture is larger than 64 MiB")], remedy=_REMEDY
            )
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read the capture {path}: {error.strerror}", remedy="check its path"
        ) from None
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"  # Windows shells save so
    return raw.decode(encoding, errors="replace").replace("\r\n", "\n")
