"""A host that is a folder: files are written into it, and the facts are read from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.agent.host import Host


class FolderHost(Host):
    """A :class:`Host` whose root is a folder; ``write`` and ``link`` put what is on the host there."""

    def write(self, path: str, content: str | bytes) -> Path:
        real = Path(self.path(path))
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(content.encode() if isinstance(content, str) else content)
        return real

    def link(self, path: str, target: str) -> None:
        """A symbolic link as the host has it: an absolute target is one of the host's paths."""
        real = Path(self.path(path))
        real.parent.mkdir(parents=True, exist_ok=True)
        real.unlink(missing_ok=True)
        real.symlink_to(target)

    def remove(self, path: str) -> None:
        Path(self.path(path)).unlink()


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    return FolderHost(str(tmp_path), state_dir=str(tmp_path / "state"), runtime_dir=str(tmp_path / "runtime"))
