"""``group_vars/`` and ``host_vars/`` beside an inventory: a file per group or host, or a folder of files.

As with Ansible the first of ``NAME``, ``NAME.yml``, ``NAME.yaml`` and ``NAME.json`` counts; a folder's
files are read in the order of their names. Files may be encrypted as a whole with ansible-vault: every text
in such a file is kept secret.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path

from fleet.core.errors import Position, Problem
from fleet.core.json_nodes import parse_json
from fleet.core.yaml import Kind, Node, as_read, parse_yaml
from fleet.inventory import vault
from fleet.inventory.merge import Layer
from fleet.inventory.secrets import SecretSource

_SUFFIXES = ("", ".yml", ".yaml", ".json")


class VarsFiles:
    """Reads the two folders. Problems and notes (things that are legal but likely slips) are collected."""

    def __init__(self, folder: Path, secrets: SecretSource, problems: list[Problem]) -> None:
        self.folder = folder
        self.secrets = secrets
        self.problems = problems
        self.notes: list[str] = []

    def layers(self, kind: str, names: Collection[str]) -> dict[str, list[Layer]]:
        """Layers of each group (``group_vars``) or host (``host_vars``) that has files, weakest first."""
        base = self.folder / kind
        if not base.is_dir():
            return {}
        present = {path.name: path for path in sorted(base.iterdir()) if _usable(path)}
        if not present:
            return {}
        used: set[str] = set()
        found: dict[str, list[Layer]] = {}
        for name in names:
            matching = [name + suffix for suffix in _SUFFIXES if name + suffix in present]
            if matching:
                used.update(matching)
                found[name] = self._read(present[matching[0]])
                self.notes += [
                    f"{base / other} is not read: {base / matching[0]} comes before it"
                    for other in matching[1:]
                ]
        owner = "group" if kind == "group_vars" else "host"
        self._note_slips(owner, [path for name, path in present.items() if name not in used], list(names))
        return found

    def _note_slips(self, owner: str, unused: list[Path], names: list[str]) -> None:
        """Files that nearly bear a name of this inventory. Others may serve another inventory of the folder."""
        for path in unused:
            near = get_close_matches(path.name.split(".yml")[0], names, 1, 0.75)
            if near:
                self.notes.append(f"{path} belongs to no {owner} of this inventory; is it for {near[0]}?")

    def _read(self, path: Path) -> list[Layer]:
        if path.is_dir():
            return [
                layer for inner in sorted(path.iterdir()) if _counts(inner) for layer in self._read(inner)
            ]
        root = self._root(path)
        if root is None or root.kind is Kind.NULL:
            return []
        if root.kind is not Kind.MAP:
            message = f"a file of variables is a mapping, not {as_read(root)}"
            self.problems.append(Problem(root.position, message))
            return []
        return [Layer(str(path), root.children)]

    def _root(self, path: Path) -> Node | None:
        try:
            data = path.read_bytes()
        except OSError as error:
            self.problems.append(Problem(Position(str(path), 1, 1), f"this cannot be read: {error.strerror}"))
            return None
        encrypted = vault.is_vault(data)
        if encrypted:
            text = self._decrypted(path, data)
            if text is None:
                return None
            data = text.encode()
        document = (parse_json if path.suffix == ".json" else parse_yaml)(data, str(path))
        self.problems += document.problems
        if encrypted and document.root is not None:
            _keep_secret(document.root)
        return document.root

    def _decrypted(self, path: Path, data: bytes) -> str | None:
        password = self.secrets.vault_password
        try:
            if password is None:
                raise vault.VaultError(f"there is no password; {vault.HOW}")
            return vault.decrypt(data.decode(errors="replace"), password)
        except vault.VaultError as error:
            message = f"this file is encrypted with ansible-vault: {error}"
            self.problems.append(Problem(Position(str(path), 1, 1), message))
            return None


def _keep_secret(node: Node) -> None:
    """Tag every text of a decrypted file, so that it becomes a Secret when used."""
    if node.kind is Kind.TEXT and node.tag is None:
        node.tag = "!decrypted"
    for child in (*node.items, *node.children.values()):
        _keep_secret(child)


def _usable(path: Path) -> bool:
    """Neither hidden, nor an editor's copy, nor a pipe that would never end."""
    name = path.name
    skipped = name.startswith(".") or name.endswith(("~", ".bak", ".orig", ".swp", ".retry"))
    return not skipped and (path.is_file() or path.is_dir())


def _counts(path: Path) -> bool:
    return _usable(path) and (path.is_dir() or path.suffix in _SUFFIXES)
