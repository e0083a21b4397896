"""Logging in: the configured key first, then the agent's keys, then the usual ones, then a password.

sshd closes after six tries (MaxAuthTries), so we stop at five. Unlike Fabric's and paramiko's own
strategies this one honours ``IdentitiesOnly``, never asks on the terminal, does not hang on a stale
agent socket, and says of each key why it did not serve.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.agent import AgentSSH
from paramiko.pkey import PublicBlob, UnknownKeyType

from fleet.core.connection import Endpoint
from fleet.core.errors import AuthenticationFailed
from fleet.transport.text import printable

MOST_TRIES = 5
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")


@dataclass(frozen=True)
class Identities:
    """Where the operator's keys are: the agent's socket, and the folder of default keys."""

    agent_socket: str | None
    key_folder: Path

    def default_keys(self) -> list[Path]:
        """The default key files that exist."""
        return [self.key_folder / name for name in DEFAULT_KEYS if (self.key_folder / name).is_file()]


class KeyFiles:
    """Private keys by file, loaded once per process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[Path, paramiko.PKey | str] = {}

    def load(self, file: Path) -> paramiko.PKey | str:
        """The key in ``file``, or why it cannot be used."""
        with self._lock:
            if file not in self._loaded:
                self._loaded[file] = _load(file)
            return self._loaded[file]


def _load(file: Path) -> paramiko.PKey | str:
    try:
        return paramiko.PKey.from_path(file)
    except (paramiko.PasswordRequiredException, TypeError):  # cryptography says TypeError for "needs one"
        return f"{file} has a passphrase and the SSH agent does not hold it: ssh-add {file}"
    except OSError as error:
        return f"{file}: {error.strerror}"
    except (ValueError, paramiko.SSHException, UnknownKeyType) as error:
        if "password" in str(error).lower() or "encrypted" in str(error).lower():
            return f"{file} has a passphrase and the SSH agent does not hold it: ssh-add {file}"
        return f"{file} is no private key that can be used ({printable(str(error), 80)})"


class _Agent(AgentSSH):
    """An SSH agent reached under a deadline: paramiko's own waits for ever (fabric #2306)."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__()
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            stream.settimeout(seconds)
            stream.connect(path)
            self._connect(stream)  # type: ignore[attr-defined]  # the stubs lack it
        except BaseException:
            stream.close()
            raise

    def close(self) -> None:
        """Let go of the socket."""
        self._close()  # type: ignore[attr-defined]  # the stubs lack it


class Login:
    """Authenticates one connection. paramiko calls :meth:`authenticate` as its "auth strategy"."""

    def __init__(
        self, endpoint: Endpoint, host: str, identities: Identities, files: KeyFiles, seconds: float
    ):
        self._endpoint = endpoint
        self._host = host
        self._identities = identities
        self._files = files
        self._seconds = seconds
        self._tried: list[str] = []
        self._notes: list[str] = []
        self._attempts = 0

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Log in or raise AuthenticationFailed; paramiko's other errors mean that the connection broke."""
        agent = self._open_agent()
        try:
            if not self._try_keys(transport, agent) and not self._try_password(transport):
                raise self._failed()
        finally:
            if agent:
                agent.close()

    def _open_agent(self) -> _Agent | None:
        path = self._identities.agent_socket
        if not path:
            return None
        try:
            return _Agent(path, min(5.0, self._seconds))
        except TimeoutError:
            self._notes.append(f"the SSH agent at {path} does not answer: check SSH_AUTH_SOCK")
        except (OSError, paramiko.SSHException, IndexError) as error:
            self._notes.append(f"the SSH agent at {path} cannot be used ({printable(str(error), 80)})")
        return None

    def _keys(self, agent: _Agent | None) -> Iterator[tuple[str, Any]]:
        """What to offer, in order: (name for messages, key)."""
        held = list(agent.get_keys()) if agent else []
        by_blob = {key.asbytes(): key for key in held}
        offered: set[bytes] = set()
        for file in self._endpoint.key_files:
            key = self._files.load(file)
            if isinstance(key, str):
                blob = _public_blob(file)
                if blob not in by_blob:
                    self._notes.append(key)
                    continue
                key = by_blob[blob]
            offered.add(key.asbytes())
            yield str(file), key
        for key in held:
            if not self._endpoint.identities_only and key.asbytes() not in offered:
                yield f"agent key {printable(key.comment, 60) or key.get_name()}", key
        if not self._endpoint.key_files:
            for file in self._identities.default_keys():
                key = self._files.load(file)
                if isinstance(key, str):
                    if _public_blob(file) not in by_blob:
                        self._notes.append(key)
                elif self._endpoint.identities_only or key.asbytes() not in by_blob:
                    yield str(file), key

    def _try_keys(self, transport: paramiko.Transport, agent: _Agent | None) -> bool:
        most = MOST_TRIES - (self._endpoint.password is not None)
        for name, key in self._keys(agent):
            if self._attempts >= most:
                self._notes.append(
                    f"stopped after {most} keys, before sshd's limit: name the right one as "
                    "ansible_ssh_private_key_file"
                )
                return False
            self._attempts += 1
            self._tried.append(name)
            try:
                more = transport.auth_publickey(self._endpoint.user, key)
            except paramiko.BadAuthenticationType:
                self._notes.append("the server takes no public keys for this user")
                return False
            except paramiko.AuthenticationException as error:
                self._raise_if_over(transport, error)
                continue
            # The key was right, but the server wants a second factor as well.
            return not more or self._second_factor(transport, more)
        return False

    def _second_factor(self, transport: paramiko.Transport, more: list[str]) -> bool:
        if {"password", "keyboard-interactive"} & set(more) and self._try_password(transport):
            return True
        self._notes.append(f"the key was accepted but the server also wants: {', '.join(more)}")
        return False

    def _try_password(self, transport: paramiko.Transport) -> bool:
        if self._endpoint.password is None:
            return False
        self._tried.append("password")
        try:
            more = transport.auth_password(self._endpoint.user, self._endpoint.password.reveal())
        except paramiko.AuthenticationException as error:
            self._raise_if_over(transport, error)
            return False
        return not more

    def _raise_if_over(self, transport: paramiko.Transport, error: Exception) -> None:
        """Once sshd has hung up, the next try would say "No existing session" and hide the reason."""
        if "timeout" in str(error).lower():
            raise self._failed(f"no answer within {self._seconds:.0f} s")
        if not transport.is_active():
            raise self._failed("the server closed the connection")

    def _failed(self, why: str = "permission denied") -> AuthenticationFailed:
        tried = ", ".join(self._tried) or "nothing, there was nothing to offer"
        notes = "".join(f"; {note}" for note in dict.fromkeys(self._notes))
        return AuthenticationFailed(
            f"cannot log in as {self._endpoint.shown}: {why}; tried {tried}{notes}",
            host=self._host,
            remedy=f"check ansible_user and the key, and that the key is in the host's authorized_keys: "
            f"ssh -p {self._endpoint.port} {self._endpoint.user}@{self._endpoint.address}",
        )


def _public_blob(file: Path) -> bytes | None:
    """The public half beside a private key, if it is there: tells which agent key it is."""
    with contextlib.suppress(OSError, ValueError, paramiko.SSHException):
        fields = file.with_name(file.name + ".pub").read_text("utf-8").split()
        blob: bytes = PublicBlob.from_string(" ".join(fields[:2])).key_blob
        return blob
    return None
