"""A host that is a folder: files are written into it, and the facts are read from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.agent.host import Host


class FolderHost(Host):
    """A :class:`Host` whose root is a folder; ``write`` puts a file of the host there."""

    def write(self, path: str, content: str | bytes) -> Path:
        real = Path(self.path(path))
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(content.encode() if isinstance(content, str) else content)
        return real


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    return FolderHost(str(tmp_path), state_dir=str(tmp_path / "state"), runtime_dir=str(tmp_path / "runtime"))
