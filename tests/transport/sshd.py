"""A real sshd on loopback for the tests: own keys, own configuration, own log."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin:" + os.environ.get("PATH", ""))


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair at ``path``."""
    bits = ["-b", "2048"] if kind == "rsa" else []
    command = ["ssh-keygen", "-q", "-t", kind, *bits, "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


def public(path: Path) -> str:
    """``type base64`` of the key pair at ``path``."""
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as stream:
        stream.bind(("127.0.0.1", 0))
        port: int = stream.getsockname()[1]
        return port


class Sshd:
    """One running server. ``options`` are lines of sshd_config; ``key`` logs in as ``user``."""

    user = pwd.getpwuid(os.getuid()).pw_name

    def __init__(self, folder: Path, *, options: str = "", host_keys: tuple[str, ...] = ("ed25519",)) -> None:
        assert SSHD, "these tests need sshd: install openssh-server"
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self.key = make_key(folder / "user_key")
        self.open_folder = Path(tempfile.mkdtemp(prefix="fleet-sshd-"))  # pytest's is closed to other users
        self.open_folder.chmod(0o755)
        self.authorized_keys = self.open_folder / "authorized_keys"
        self.authorized_keys.write_text(public(self.key) + "\n")
        self.host_keys = {kind: make_key(folder / f"host_{kind}", kind) for kind in host_keys}
        self.log = folder / "log"
        # A clean PATH of the interpreter running the tests, wherever it is.
        path = f"{Path(sys.executable).resolve().parent}:/usr/local/bin:/usr/bin:/bin"
        defaults = f"""
Port {self.port}
ListenAddress 127.0.0.1
PidFile none
UsePAM no
StrictModes no
AuthorizedKeysFile {self.authorized_keys}
LogLevel VERBOSE
MaxAuthTries 6
"""
        lines = [f"HostKey {key}" for key in self.host_keys.values()]
        if "SetEnv" not in options:
            lines.append(f"SetEnv PATH={path} FLEET_AGENT_STATE_DIR={folder}/state")
        # In sshd_config the first value of a keyword counts, so a test's own options come first.
        self.config = folder / "sshd_config"
        self.config.write_text(options + defaults + "\n".join(lines) + "\n")
        self.start()

    def start(self) -> None:
        """Run it and wait until it takes connections."""
        assert SSHD
        command = [SSHD, "-D", "-f", str(self.config), "-E", str(self.log)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        for _ in range(500):
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection(("127.0.0.1", self.port), 1),
            ):
                return
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.01)  # polling for a condition with a limit
        raise AssertionError("sshd did not start")

    def stop(self) -> None:
        """End the server and every process of it that is left."""
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def remove(self) -> None:
        """Stop it and take away what lies outside of the test's folder."""
        self.stop()
        shutil.rmtree(self.open_folder, ignore_errors=True)

    def sessions(self) -> list[int]:
        """Processes of this server below the listener, theirs included."""
        found: list[int] = []
        parents = [self.process.pid]
        while parents:
            children = _children(parents.pop())
            found += children
            parents += children
        return found

    def known_hosts(self, *kinds: str) -> str:
        """known_hosts lines for this server's keys of ``kinds`` (all without)."""
        lines = (
            f"[127.0.0.1]:{self.port} {public(self.host_keys[kind])}" for kind in kinds or self.host_keys
        )
        return "\n".join(lines) + "\n"

    def logged(self, text: str) -> int:
        """How often the log has ``text``."""
        return self.log.read_text().count(text)


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
