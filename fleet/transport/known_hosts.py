"""known_hosts files: parsed once, shared read-only, matched, and appended to safely.

Neither Fabric nor paramiko will do: Fabric never loads the file, paramiko parses it once per
connection (0.5 s for 2,000 hashed lines), gives up on the first bad line and appends without a lock.
Here a line that does not parse is skipped, as OpenSSH does. The decision about a key is
:mod:`fleet.transport.host_key`.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import fnmatch
import hashlib
import hmac
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

REVOKED = "@revoked"
AUTHORITY = "@cert-authority"


@dataclass(frozen=True)
class Entry:
    """One usable line. ``names`` are plain names, patterns or ``|1|salt|hash``; ``key`` is the raw blob."""

    names: tuple[str, ...]
    key_type: str
    key: bytes
    file: Path
    line: int
    revoked: bool = False

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"

    def matches(self, name: str) -> bool:
        """Whether this line speaks of ``name`` (an address, or ``[address]:port``), in lower case."""
        found = False
        for pattern in self.names:
            negated = pattern.startswith("!")
            if _matches(pattern[negated:], name):
                if negated:
                    return False
                found = True
        return found


def lookup_name(address: str, port: int, alias: str | None = None) -> str:
    """The name a server goes by in known_hosts: an alias as it is, ``[address]:port`` off port 22."""
    if alias:
        return alias.lower()
    return address.lower() if port == 22 else f"[{address.lower()}]:{port}"


def fingerprint(key: bytes) -> str:
    """``SHA256:…`` of a key blob, as ssh-keygen -l prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def parse(text: str, file: Path) -> list[Entry]:
    """The usable lines of a known_hosts file; others (comments, damaged, authorities) are left out."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = _parse_line(line, file, number)
        if entry:
            entries.append(entry)
    return entries


def _parse_line(line: str, file: Path, number: int) -> Entry | None:
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return None
    marker = fields.pop(0) if fields[0].startswith("@") else None
    if len(fields) < 3 or marker not in (None, REVOKED):
        return None
    names, key_type, encoded = fields[:3]
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    # The blob begins with its own type: a length and the name.
    if not key[4:].startswith(key_type.encode()):
        return None
    split = tuple(name if name.startswith("|") else name.lower() for name in names.split(",") if name)
    return Entry(split, key_type, key, file, number, revoked=marker == REVOKED)


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("|"):
        hashed = _decode_hashed(pattern)
        return hashed is not None and hmac.digest(hashed[0], name.encode(), "sha1") == hashed[1]
    if "*" in pattern or "?" in pattern:
        # In ssh patterns only * and ? are special; fnmatch also knows [...], which [host]:port uses.
        return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
    return pattern == name


def _decode_hashed(pattern: str) -> tuple[bytes, bytes] | None:
    """(salt, digest) of ``|1|salt|digest``; None for other names and for damaged ones."""
    if not pattern.startswith("|1|"):
        return None
    _, _, salt, digest = [*pattern.split("|", 3), "", "", ""][:4]
    try:
        return base64.b64decode(salt), base64.b64decode(digest)
    except (binascii.Error, ValueError):
        return None


class KnownHosts:
    """All known_hosts files of a process, each parsed once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Path, _Index] = {}

    def lookup(self, files: Sequence[Path], name: str) -> list[Entry]:
        """Every entry for ``name`` in ``files``, in the order of the files. A missing file has none."""
        return [entry for file in files for entry in self._index(file).lookup(name)]

    def pin(self, file: Path, name: str, key_type: str, key: bytes) -> list[Entry]:
        """Append ``name`` with ``key`` to ``file``, unless the file has gained an entry for it meanwhile.

        Returns the entries the file then holds for ``name``: another process may have pinned first,
        and its key decides. One locked write of one line; the file is made 0600 if it is new.
        OSError when it cannot be written.
        """
        encoded = base64.b64encode(key).decode()
        with self._lock:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open(descriptor, "r+b", buffering=0) as handle:
                fcntl.flock(handle, fcntl.LOCK_EX)
                text = handle.read() or b""
                index = _Index(parse(text.decode("utf-8", "replace"), file))
                if not index.lookup(name):
                    lead = b"" if not text or text.endswith(b"\n") else b"\n"
                    line = lead + f"{name} {key_type} {encoded}\n".encode()
                    handle.write(line)
                    os.fsync(handle.fileno())
                    index = _Index(parse((text + line).decode("utf-8", "replace"), file))
            self._files[file] = index
            return index.lookup(name)

    def _index(self, file: Path) -> _Index:
        with self._lock:
            index = self._files.get(file)
            if index is None:
                index = self._files[file] = _Index(_read(file))
            return index


class _Index:
    """Entries by plain name; hashed names, decoded once, and patterns are tried one by one."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._plain: dict[str, list[Entry]] = {}
        self._hashed: list[tuple[bytes, bytes, Entry]] = []
        self._others: list[Entry] = []
        for entry in entries:
            hashed = _decode_hashed(entry.names[0]) if len(entry.names) == 1 else None
            if hashed:
                self._hashed.append((*hashed, entry))
            elif any(name[0] in "|!" or "*" in name or "?" in name for name in entry.names):
                self._others.append(entry)
            else:
                for name in entry.names:
                    self._plain.setdefault(name, []).append(entry)

    def lookup(self, name: str) -> list[Entry]:
        data = name.encode()
        found = self._plain.get(name, []) + [entry for entry in self._others if entry.matches(name)]
        found += [entry for salt, digest, entry in self._hashed if hmac.digest(salt, data, "sha1") == digest]
        return sorted(found, key=lambda entry: entry.line)


def _read(file: Path) -> list[Entry]:
    try:
        text = file.read_text("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return []
    return parse(text, file)
