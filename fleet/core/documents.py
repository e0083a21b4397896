"""JSON documents on their way to a file, the store or the screen: scrubbed, finite, written whole."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Scrub = Callable[[str], str]


def json_text(document: Any, scrub: Scrub | None = None, *, indent: int | None = None) -> str:
    """``document`` as ASCII JSON without any secret ``scrub`` knows.

    ASCII because host output may hold lone surrogates, which no file or database takes. Raises
    ValueError for NaN and infinity. A secret that happens to be a JSON word (``null``) must not break
    the document, so when the text as a whole needs scrubbing, its strings are scrubbed one by one.
    """
    text = _dump(document, indent)
    if scrub is None or scrub(text) == text:
        return text
    return _dump(scrubbed(document, scrub), indent)


def _dump(document: Any, indent: int | None) -> str:
    separators = (",", ":") if indent is None else None
    return json.dumps(document, indent=indent, separators=separators, allow_nan=False)


def lines_text(document: Mapping[str, Any], scrub: Scrub | None = None) -> str:
    """``document`` as JSON text with one line per member, and one per entry of a member that is a list.

    Ten times as fast as an indented text, which Python writes without its C encoder.
    """
    text = _members(document)
    if scrub is None or scrub(text) == text:
        return text
    return _members(scrubbed(document, scrub))


def _members(document: Mapping[str, Any]) -> str:
    return "{\n" + ",\n".join(f"  {_dump(key, None)}: {_member(document[key])}" for key in document) + "\n}\n"


def _member(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return _dump(value, None)
    return "[\n" + ",\n".join(f"    {_dump(item, None)}" for item in value) + "\n  ]"


def scrubbed(value: Any, scrub: Scrub) -> Any:
    """A copy of a JSON value with every string in it, keys too, passed through ``scrub``."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {scrub(key): scrubbed(item, scrub) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrubbed(item, scrub) for item in value]
    return value


def write_whole(path: Path, text: str, *, mode: int = 0o644, sync: bool = True) -> None:
    """Write ``text`` to ``path`` so that a reader sees the old file or the new one, never a part.

    Without ``sync`` a power cut may lose it: for what is kept elsewhere, too.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
