"""Signed apt repositories of simulated packages, as folders to be served over HTTP.

Two layouts: *flat*, as NVIDIA's (``deb URL /``), and *dists*, as Docker's (``deb URL CODENAME stable``).
Keys are made here and are good for nothing else.
"""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet.core.errors import FleetError
from fleet.lab.simulation import deb

# A Release file that is dated later than the reader's clock is refused.
_DATE = "Wed, 01 Jan 2025 00:00:00 UTC"


_AGENT_ENDS_S = 10.0


@dataclass(frozen=True)
class Key:
    """A signing key in a GnuPG home of its own. ``owner`` is what it was made for."""

    home: Path
    owner: str

    @classmethod
    def make(cls, home: Path, owner: str) -> Key:
        """The key of ``owner`` in ``home``; made when there is none (about a second)."""
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        key = cls(home, owner)
        if not key._gpg("--list-secret-keys", "--with-colons"):
            key._gpg("--quick-generate-key", f"{owner} <lab@packages.lab>", "rsa2048", "sign", "never")
        return key

    @property
    def fingerprint(self) -> str:
        """Forty hexadecimal digits."""
        listed = self._gpg("--list-keys", "--with-colons").decode()
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))

    def armored(self) -> str:
        """The public key as text."""
        return self._gpg("--armor", "--export").decode()

    def binary(self) -> bytes:
        """The public key as a keyring."""
        return self._gpg("--export")

    def clear_sign(self, text: str) -> bytes:
        """``text`` with its signature around it, as in InRelease."""
        return self._gpg("--digest-algo", "SHA256", "--clearsign", stdin=text.encode())

    def detach_sign(self, text: str) -> bytes:
        """The signature of ``text`` alone, as in Release.gpg."""
        return self._gpg("--digest-algo", "SHA256", "--armor", "--detach-sign", stdin=text.encode())

    def _gpg(self, *arguments: str, stdin: bytes = b"") -> bytes:
        with self._short_home() as home:
            argv = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--no-tty", "--passphrase", ""]
            argv += ["--pinentry-mode", "loopback", "--no-options", *arguments]
            done = subprocess.run(argv, input=stdin, capture_output=True, timeout=120, check=False)
        if done.returncode != 0:
            raise FleetError(f"gpg failed for the key of {self.owner}: {done.stderr.decode()[-500:]}")
        return done.stdout

    @contextmanager
    def _short_home(self) -> Iterator[Path]:
        """The home by a short name: its agent listens on a socket there, whose path may have 107 bytes.

        The agent that gpg starts on the way is ended, so nothing stays behind. It takes its socket away last: who came
        before that would be spoken to by one that is ending.
        """
        with tempfile.TemporaryDirectory(prefix="gpg-") as folder:
            home = Path(folder) / "home"
            home.symlink_to(self.home.absolute())
            try:
                yield home
            finally:
                argv = ["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"]
                subprocess.run(argv, capture_output=True, timeout=30, check=False)
                until = time.monotonic() + _AGENT_ENDS_S
                while (home / "S.gpg-agent").exists() and time.monotonic() < until:
                    time.sleep(0.01)


def publish_flat(
    folder: Path, packages: Iterable[deb.Package], key: Key, *, origin: str, label: str | None = None
) -> None:
    """Write ``packages`` and a signed index into ``folder``; ``deb [signed-by=…] URL /`` reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    index = _index(folder, "", packages)
    files = {"Packages": index, "Packages.gz": gzip.compress(index, mtime=0)}
    write_signed(folder, files, key, origin, {"Label": label or origin})
    (folder / "key.asc").write_text(key.armored())


def publish_dists(
    folder: Path, codename: str, packages: Iterable[deb.Package], key: Key, *, origin: str
) -> None:
    """Write the suite ``codename`` with the component ``stable`` below ``folder``."""
    pool = f"dists/{codename}/pool/stable/amd64"
    (folder / pool).mkdir(parents=True, exist_ok=True)
    for stale in (folder / pool).glob("*.deb"):
        stale.unlink()
    index = _index(folder, pool, packages)
    suite = folder / "dists" / codename
    where = "stable/binary-amd64"
    (suite / where).mkdir(parents=True, exist_ok=True)
    fields = {
        "Label": origin,
        "Suite": codename,
        "Codename": codename,
        "Architectures": "amd64",
        "Components": "stable",
    }
    files = {f"{where}/Packages": index, f"{where}/Packages.gz": gzip.compress(index, mtime=0)}
    write_signed(suite, files, key, origin, fields)
    (folder / "gpg").write_text(key.armored())


def resign(release: Path, key: Key) -> None:
    """Sign the repository whose Release file is ``release`` with another key: a rotated key."""
    text = release.read_text()
    (release.parent / "InRelease").write_bytes(key.clear_sign(text))
    (release.parent / "Release.gpg").write_bytes(key.detach_sign(text))


def _index(folder: Path, prefix: str, packages: Iterable[deb.Package]) -> bytes:
    paragraphs = []
    for package in packages:
        content = deb.build(package)
        path = f"{prefix}/{package.file_name}" if prefix else f"./{package.file_name}"
        (folder / path).write_bytes(content)
        head, _, description = package.control().partition("Description: ")
        paragraphs.append(
            f"{head}Filename: {path}\nSize: {len(content)}\nMD5sum: {hashlib.md5(content).hexdigest()}\n"  # noqa: S324
            f"SHA256: {hashlib.sha256(content).hexdigest()}\nDescription: {description}"
        )
    return "\n".join(paragraphs).encode()


def write_signed(
    folder: Path, files: Mapping[str, bytes], key: Key, origin: str, fields: Mapping[str, str]
) -> None:
    """Write ``files`` (index files, by name) and a Release over them, signed with ``key``."""
    lines = [f"Origin: {origin}", *(f"{name}: {value}" for name, value in fields.items())]
    lines += [f"Date: {_DATE}", "SHA256:"]
    for name, content in files.items():
        (folder / name).write_bytes(content)
        lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}")
    release = folder / "Release"
    release.write_text("\n".join(lines) + "\n")
    resign(release, key)
