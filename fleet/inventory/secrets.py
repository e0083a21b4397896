"""Values with a tag: ``!secret env|file|command``, ``!vault`` and ``!unsafe``, made plain when first used.

The form of every tagged value is checked when the inventory is loaded; its content is fetched only when a
host that was selected uses it, so a missing file that nobody reads stops nobody. A command runs once per
process, however many hosts share it. The inner tag ``!decrypted`` marks text of a file that was encrypted
as a whole (:mod:`fleet.inventory.vars_files`).
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from fleet.core.errors import InputError, Problem
from fleet.core.secret import Secret
from fleet.core.template import SecretTemplate, Unsafe, is_template
from fleet.core.yaml import Node, plain
from fleet.inventory import vault

FORMS = "!secret env NAME, !secret file PATH or !secret command COMMAND"
COMMAND_SECONDS = 30.0


class SecretSource:
    """Fetches the content of tagged values. ``folder_of`` maps a node's file name to the folder it is in."""

    def __init__(self, vault_password: Secret | None, folder_of: Callable[[str], Path]) -> None:
        self.vault_password = vault_password
        self._folder_of = folder_of
        self._opened: dict[str, str] = {}

    def check(self, name: str, node: Node, problems: list[Problem]) -> None:
        """Check the form of every tagged value in ``node``, which is the variable ``name``."""
        if node.tag is not None:
            message = self._wrong(name, node)
            if message:
                problems.append(Problem(node.position, message))
        for key, child in node.children.items():
            self.check(f"{name}: {key}", child, problems)
        for item in node.items:
            self.check(name, item, problems)

    def _wrong(self, name: str, node: Node) -> str | None:
        if node.tag in ("!unsafe", "!decrypted"):
            return None
        if not node.is_scalar:
            return f"{name}: {node.tag} takes text, not a {node.kind.value}"
        if node.tag == "!secret":
            return None if _split(node) else f"{name}: this !secret names no source; write {FORMS}"
        if self.vault_password is None:
            return f"{name} is encrypted with !vault and there is no password; {vault.HOW}"
        try:
            if self._opened:
                vault.unpack(node.text)
            else:  # the first is opened at once, so that a wrong password is noticed before any host is
                self._open(node.text, self.vault_password)
        except vault.VaultError as error:
            return f"{name}: this !vault cannot be read: {error}"
        return None

    def fetch(self, name: str, node: Node) -> object:
        """The value of a tagged node. Raises InputError at its position."""
        if node.tag == "!unsafe":
            return _unsafe(node)
        if node.tag == "!decrypted":
            return SecretTemplate(node.text, name) if is_template(node.text) else Secret(node.text, name)
        try:
            return Secret(self._text(node), name)
        except vault.VaultError as error:
            raise InputError(
                [Problem(node.position, f"{name}: this !vault cannot be read: {error}")]
            ) from None
        except _Unavailable as error:
            raise InputError([Problem(node.position, f"{name}: {error}")], remedy=error.remedy) from None

    def value(self, node: Node) -> object:
        """As :meth:`fetch`, for a tagged value that is no variable (in a playbook): named by its place."""
        return self.fetch(f"the value at {node.position}", node)

    def _text(self, node: Node) -> str:
        if node.tag == "!vault":
            if self.vault_password is None:
                raise vault.VaultError(f"there is no password; {vault.HOW}")
            return self._open(node.text, self.vault_password)
        parts = _split(node)
        if parts is None:
            raise _Unavailable("this !secret names no source", f"write {FORMS}")
        form, argument = parts
        if form == "env":
            return _from_environment(argument)
        if form == "file":
            return _from_file(self._folder_of(node.file) / Path(argument).expanduser())
        return _from_command(argument)

    def _open(self, text: str, password: Secret) -> str:
        if text not in self._opened:
            self._opened[text] = vault.decrypt(text, password)
        return self._opened[text]


class _Unavailable(ValueError):
    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def _split(node: Node) -> tuple[str, str] | None:
    form, _, argument = node.text.strip().partition(" ")
    argument = argument.strip()
    return (form, argument) if form in ("env", "file", "command") and argument else None


def _unsafe(node: Node) -> object:
    """Every text in it is kept from being a template."""
    value = plain(node)
    return _marked(value)


def _marked(value: object) -> object:
    if isinstance(value, str):
        return Unsafe(value)
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    return [_marked(item) for item in value] if isinstance(value, list) else value


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise _Unavailable(f"the environment variable {name} is not set", f"export {name}, then run again")
    return value


def _from_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise _Unavailable(
            f"the secret file {path} cannot be read: {error.strerror}",
            "write the secret there, or correct the path",
        ) from None
    except UnicodeDecodeError:
        raise _Unavailable(f"the secret file {path} is not UTF-8 text", "secrets are text") from None


_command_lock = threading.Lock()
_command_results: dict[str, str | _Unavailable] = {}


def _from_command(command: str) -> str:
    """Standard output of the command, once per process, successes and failures alike."""
    with _command_lock:
        if command not in _command_results:
            try:
                _command_results[command] = _run(command)
            except _Unavailable as error:
                _command_results[command] = error
        result = _command_results[command]
    if isinstance(result, _Unavailable):
        raise result
    return result


def _run(command: str) -> str:
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    by_hand = f"run it by hand: {command}"
    try:
        output, errors = process.communicate(timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise _Unavailable(
            f"the secret's command did not end within {COMMAND_SECONDS:.0f} s", by_hand
        ) from None
    if process.returncode != 0:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        detail = f": {last[0]}" if last else ""
        raise _Unavailable(f"the secret's command ended with {process.returncode}{detail}", by_hand)
    text = output.decode(errors="replace").rstrip("\r\n")
    if not text:
        raise _Unavailable("the secret's command printed nothing", by_hand)
    return text
