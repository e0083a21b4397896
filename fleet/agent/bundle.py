"""The agent's own code on the host's disk: one folder per bundle, named by its SHA-256.

A read-only session runs from memory and writes nothing. Only when a worker must run, which outlives
the connection, is the bundle unpacked: beside its place, compiled, synced, renamed. The three newest
are kept, those that open runs were started with, and the one that ``current`` names: the timer's
(:mod:`fleet.agent.resources.agent_bundle`).
"""

from __future__ import annotations

import os

from fleet.agent.paths import make_private_folder, read_bytes, remove_durably, sync_folder, write_durably
from fleet.agent.runs import remove_folder, run_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from fleet.agent.paths import Paths

KEEP = 3
CURRENT = "current"
_DIGITS = frozenset("0123456789abcdef")


class BadBundle(Exception):
    """The bundle cannot be used; the message says why."""


def running_from() -> str:
    """The folder, or the archive, that this very code was imported from."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def running_digest() -> Optional[str]:
    """The SHA-256 of the bundle that this very code came in; None where it is no bundle but a checkout."""
    place = running_from()
    if os.path.isfile(place):  # the zip itself: a session from memory
        from fleet.agent.digest import sha256

        return sha256(read_bytes(place) or b"").hex()
    name = os.path.basename(place)
    return name if len(name) == 64 and _DIGITS.issuperset(name) else None


class Bundles:
    """The bundles under one state folder."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def folder(self, digest: str) -> str:
        return self._paths.bundles + "/" + digest

    def installed(self, digest: str) -> bool:
        """Whether this bundle is there, whole (it is renamed into place last)."""
        return os.path.isdir(self.folder(digest) + "/fleet")

    def install(self, data: bytes, expected: Optional[str] = None) -> str:
        """Unpack a bundle unless it is there; its folder. Raises BadBundle and OSError."""
        import hashlib

        digest = hashlib.sha256(data).hexdigest()
        if expected is not None and digest != expected:
            raise BadBundle("the bundle's SHA-256 is %s, not %s" % (digest, expected))
        if not self.installed(digest):
            make_private_folder(self._paths.bundles)
            self._unpack(data, digest)
        os.utime(self.folder(digest))
        self.prune(digest)
        return self.folder(digest)

    def _unpack(self, data: bytes, digest: str) -> None:
        import compileall
        import io
        import zipfile

        temporary = "%s.new-%d" % (self.folder(digest), os.getpid())
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for name in archive.namelist():
                    if name.startswith("/") or ".." in name.split("/"):
                        raise BadBundle("the bundle holds a file outside of itself: %s" % name)
                archive.extractall(temporary)
            if not os.path.isfile(temporary + "/fleet/agent/__init__.py"):
                raise BadBundle("the bundle holds no fleet.agent")
            compileall.compile_dir(temporary, quiet=2)
            _sync_tree(temporary)
            os.rename(temporary, self.folder(digest))
        except zipfile.BadZipFile as error:
            raise BadBundle("the bundle is not a zip archive: %s" % error) from None
        except OSError:
            if not self.installed(digest):  # else another session was faster, with the same bytes
                raise
        finally:
            remove_folder(temporary)
        sync_folder(self._paths.bundles)

    def remember(self, run: str, digest: str) -> None:
        """Keep this bundle for as long as ``run`` is open."""
        write_durably(self._paths.bundle_of(run), digest.encode("ascii") + b"\n")

    def of_run(self, run: str) -> Optional[str]:
        """The bundle a run was started with, where it is still there."""
        raw = read_bytes(self._paths.bundle_of(run), 100)
        digest = raw.decode("ascii", "replace").strip() if raw is not None else ""
        return digest if digest and self.installed(digest) else None

    def current(self) -> Optional[str]:
        """What the link ``current`` names, there or not; None where there is no such link."""
        try:
            return os.readlink(self.folder(CURRENT))
        except FileNotFoundError:
            return None

    def make_current(self, digest: Optional[str]) -> None:
        """Let ``current`` name this bundle, or nothing. There is never a moment without the link."""
        if digest is None:
            remove_durably(self.folder(CURRENT))
            return
        temporary = "%s.new-%d" % (self.folder(CURRENT), os.getpid())
        remove_durably(temporary)  # left by a worker that was killed
        os.symlink(digest, temporary)
        os.rename(temporary, self.folder(CURRENT))
        sync_folder(self._paths.bundles)

    def version(self, digest: str) -> Optional[str]:
        """The version of fleet whose bundle this is; None where that cannot be read."""
        import re

        raw = read_bytes(self.folder(digest) + "/fleet/__init__.py", 65536) or b""
        found = re.search(rb'^__version__ = "([^"]+)"', raw, re.MULTILINE)
        return found.group(1).decode("utf-8", "replace") if found is not None else None

    def prune(self, in_use: str) -> list[str]:
        """Remove the oldest bundles beyond three, never one in use; the digests removed."""
        needed = {in_use, os.path.basename(running_from())}
        for run in run_names(self._paths):
            if not os.path.exists(self._paths.closed(run)):
                digest = self.of_run(run)
                needed.update([digest] if digest is not None else [])
        found = []
        with os.scandir(self._paths.bundles) as entries:
            for entry in entries:
                if entry.is_symlink():  # ``current``
                    needed.add(os.readlink(entry.path))
                elif ".new-" not in entry.name:
                    found.append((entry.stat().st_mtime, entry.name))
        gone = [name for _, name in sorted(found, reverse=True)[KEEP:] if name not in needed]
        for name in gone:
            remove_folder(self.folder(name))
        return gone


def _sync_tree(folder: str) -> None:
    """Make every file and name under ``folder`` durable."""
    for place, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(place + "/" + name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(place)
