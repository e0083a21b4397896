"""A folder of its own for each test, with no ssh_config but the one the test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from fleet.core.errors import InputError
from fleet.inventory import Inventory, LoadOptions, load_inventory
from fleet.inventory import ssh_config as ssh_config_module

Load = Callable[..., Inventory]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; the home directory lies in it and the user is called me."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOGNAME", "me")
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    monkeypatch.setattr(ssh_config_module, "SYSTEM_CONFIG", tmp_path / "no_system_config")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Callable[[str, str], Path]:
    """Write a file below the folder; the text is dedented."""

    def write_file(name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dedent(text).encode())
        return path

    return write_file


@pytest.fixture
def load(write: Callable[[str, str], Path]) -> Load:
    """Load an inventory from its text, written as site.yaml."""

    def load_text(text: str, **options: object) -> Inventory:
        write("site.yaml", text)
        return load_inventory("site.yaml", options=LoadOptions(**options))  # type: ignore[arg-type]

    return load_text


@pytest.fixture
def refused(load: Load) -> Callable[..., list[str]]:
    """The messages of the InputError that loading must raise."""

    def messages(text: str, **options: object) -> list[str]:
        with pytest.raises(InputError) as caught:
            load(text, **options)
        assert caught.value.exit_code == 2
        return [str(problem) for problem in caught.value.problems]

    return messages
