"""The agent's own sources in a folder that a container can mount, and the folders around a benchmark.

The bundle's folder is root's alone, and a session runs from a zip in memory; so what is mounted is always a copy,
readable by whatever user the container's root is on the host. It lies in the runtime folder and is removed at the
end.
"""

from __future__ import annotations

import os

from fleet.agent.bundle import running_from
from fleet.agent.runs import remove_folder

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Iterator, Tuple

    from fleet.agent.host import Host


# What is copied: paths in the bundle that begin so.
PARTS = ("fleet/__init__.py", "fleet/agent/")


class Folders:
    """A context manager: ``code`` holds the package ``fleet``; ``shared`` is for the lock and caches."""

    def __init__(self, host: Host) -> None:
        self._folder = os.path.join(host.runtime_dir, "bench")
        self.code = self._folder + "/code"
        self.shared = self._folder + "/shared"

    def __enter__(self) -> Folders:
        remove_folder(self._folder)  # what a worker that died may have left
        os.makedirs(os.path.dirname(self._folder), mode=0o700, exist_ok=True)
        for folder, mode in ((self._folder, 0o755), (self.code, 0o755), (self.shared, 0o1777)):
            os.mkdir(folder)
            os.chmod(folder, mode)
        for name, data in sources():
            _write(os.path.join(self.code, name), data, self.code)
        return self

    def __exit__(self, *unused: object) -> None:
        remove_folder(self._folder)


def sources() -> Iterator[Tuple[str, bytes]]:
    """(path in the bundle, contents) of the agent's sources, from the folder or the zip that they run from."""
    place = running_from()
    if os.path.isfile(place):
        import zipfile

        with zipfile.ZipFile(place) as archive:
            for name in archive.namelist():
                if name.endswith(".py") and name.startswith(PARTS):
                    yield name, archive.read(name)
        return
    yield from _of_folder(place)


def _of_folder(place: str) -> Iterator[Tuple[str, bytes]]:
    found = [os.path.join(place, "fleet", "__init__.py")]
    for folder, folders, names in os.walk(os.path.join(place, "fleet", "agent")):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [os.path.join(folder, name) for name in names if name.endswith(".py")]
    for path in found:
        with open(path, "rb") as stream:
            yield os.path.relpath(path, place), stream.read()


def _write(path: str, data: bytes, above: str) -> None:
    """A file that everybody may read, in folders that everybody may enter, whatever the umask."""
    missing = []
    folder = os.path.dirname(path)
    while folder != above and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(missing):
        os.mkdir(folder)
        os.chmod(folder, 0o755)
    with open(path, "wb") as stream:
        stream.write(data)
    os.chmod(path, 0o644)
