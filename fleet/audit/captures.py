"""Captures: what nvidia-smi printed on some host, saved to a file, as the probe document of that host.

Read by the agent's own parsers (:mod:`fleet.agent.nvidia_smi`), so that a file is judged as a host is. A file may
also be what a host's own timer wrote down, or its facts (:func:`facts_of`).
"""

from __future__ import annotations

import re
from pathlib import Path

from fleet.agent import strict_json
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
_LOG = re.compile(r"^=+NVSMI LOG=+\s*$", re.M)
# What stands between the outputs of several commands in one file: a comment, a prompt, a table's edge, another log.
_OTHER_OUTPUT = re.compile(r"^(?:#|\$ |\+-|=+NVSMI LOG=+\s*$)", re.M)
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
        return text.parse(_last_log(content))
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
    document["nvml_version"] = called["library_version"]
    return document


def facts_of(path: str | Path) -> Json | None:
    """The facts in a file that is an agent's report (``report.json`` of a host's timer) or a facts document.

    None for a file that is no JSON object at all. InputError for one that is neither, or that breaks its schema.
    """
    from fleet.core.schema import validate

    content = _read(Path(path))
    if not content.lstrip().startswith("{"):
        return None
    where = Position(str(path), 1, 1)
    try:
        found = strict_json.loads(content)
    except ValueError as error:
        problem = Problem(where, f"this begins as JSON and is none: {error}")
        raise InputError([problem], remedy=_REMEDY) from None
    name = {"fleet.agent-report/1": "agent-report", "fleet.facts/1": "facts"}.get(str(found.get("schema")))
    if name is None:
        problem = Problem(where, "this JSON is neither a host's report nor its facts")
        raise InputError([problem], remedy=_REMEDY)
    problems = validate(found, name)
    if problems:
        raise InputError(
            [Problem(where, f"this is no {name}: {problems[0]}")], remedy=f"fleet schema show {name}"
        )
    facts: Json = found["facts"] if name == "agent-report" else found
    return facts


def _last_log(content: str) -> str:
    """The last output of ``-q`` in a file that may hold those of several commands, one after the other."""
    logs = list(_LOG.finditer(content))
    if not logs:
        return content
    begin = logs[-1].end()
    other = _OTHER_OUTPUT.search(content, begin)
    return content[logs[-1].start() : other.start() if other else len(content)]


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
