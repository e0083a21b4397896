"""Where fleet keeps its things on a host, and the one way to write them so that they last.

Everything durable goes through :func:`write_durably`; everything here is root's alone (0700/0600).
The layout is specified in docs/protocol.md.
"""

from __future__ import annotations

import os

from fleet.agent.protocol import RUNTIME_DIR, STATE_DIR

TYPE_CHECKING = False  # the typing module costs start-up time; type checkers know this name
if TYPE_CHECKING:
    from collections.abc import Mapping

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def valid_run(run: object) -> bool:
    """Whether ``run`` can name a run: 1–64 of letters, digits, dot, dash, underscore; no leading dot."""
    return isinstance(run, str) and 0 < len(run) <= 64 and run[0] not in ".-" and _SAFE.issuperset(run)


class Paths:
    """The files and folders under the state folder (survives reboots) and the runtime folder (does not)."""

    def __init__(self, state: str = STATE_DIR, runtime: str = RUNTIME_DIR) -> None:
        self.state = state
        self.runtime = runtime

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Paths:
        """The defaults, or what FLEET_AGENT_STATE_DIR and FLEET_AGENT_RUNTIME_DIR say (unit tests set them)."""
        return cls(
            environment.get("FLEET_AGENT_STATE_DIR") or STATE_DIR,
            environment.get("FLEET_AGENT_RUNTIME_DIR") or RUNTIME_DIR,
        )

    @property
    def lease(self) -> str:
        return self.state + "/lease.json"

    @property
    def lease_lock(self) -> str:
        """Held (flock) by the live worker."""
        return self.state + "/lease.lock"

    @property
    def lease_edit(self) -> str:
        """Held (flock) for the moment it takes to read and change the lease."""
        return self.state + "/lease.edit"

    @property
    def runs(self) -> str:
        return self.state + "/runs"

    def run(self, run: str) -> str:
        return self.runs + "/" + run

    def journal(self, run: str) -> str:
        return self.run(run) + "/journal"

    def plan(self, run: str, segment: int) -> str:
        return "%s/plan-%d.json" % (self.run(run), segment)

    def closed(self, run: str) -> str:
        """The mark of a run that needs its lease no more."""
        return self.run(run) + "/closed"

    def bundle_of(self, run: str) -> str:
        """The file naming the bundle that a run was started with."""
        return self.run(run) + "/bundle"

    @property
    def bundles(self) -> str:
        return self.state + "/agent"

    @property
    def pending(self) -> str:
        return self.state + "/pending"

    def runtime_of(self, run: str) -> str:
        return self.runtime + "/" + run

    def control(self, run: str) -> str:
        return self.runtime_of(run) + "/control"


def make_private_folder(path: str) -> None:
    """Make ``path`` and its parents, mode 0700, and fsync the folder above each one made."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_private_folder(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    sync_folder(parent)


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: str, data: bytes, mode: int = 0o600) -> None:
    """Replace ``path`` by ``data``: after a crash it holds either the old bytes or these, whole.

    The folder may be another user's: a link found in place of either file is not followed.
    """
    temporary = "%s.new-%d" % (path, os.getpid())
    try:
        os.unlink(temporary)  # what a writer of this pid that died may have left
    except FileNotFoundError:
        pass  # the usual case
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        write_all(descriptor, data)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    sync_folder(os.path.dirname(path))


def remove_durably(path: str) -> bool:
    """Remove a file for good; whether it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    sync_folder(os.path.dirname(path))
    return True


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; os.write may take only some of them."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_bytes(path: str, limit: int = 64 * 1024 * 1024) -> bytes | None:
    """The bytes of a file (at most ``limit``), or None where there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read(limit)
    except (FileNotFoundError, NotADirectoryError):
        return None
