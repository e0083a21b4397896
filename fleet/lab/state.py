"""Keys, passwords and what else a lab remembers, in one directory that git ignores.

::

    lab.json                 token, addresses, images; written last: its presence says "up"
    id_ed25519[.pub]         the operator's key, accepted by every host and by the bastion
    known_hosts              the public host keys of all hosts
    ssh_config               for people: ssh -F ssh_config gpu01
    ca.crt, registry.crt …   the lab's certificate authority and the registry's certificate
    registry_password, NAME.sudo_password
    variables.yaml           what inventories read: image digests, fingerprints of keys
    nvidia_driver.asc …      the keys that sign the package server's repositories
    hosts/NAME/              address and private host keys, so that a recreated host keeps its identity
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import secrets
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from fleet.lab.definition import REGISTRY_NAME, LabDefinition

CA_NAME = "ca.crt"
PRIVATE = 0o600
ADDRESS = "address"


class State:
    """The state directory of one lab. Every getter makes what is missing, once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def is_up(self) -> bool:
        """Whether ``up`` came to its end here. Says nothing about hosts stopped since."""
        return (self.directory / "lab.json").is_file()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One ``up`` or ``down`` of a lab at a time."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        lock = self.directory.parent / f".{self.directory.name}.lock"
        with lock.open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def remove(self) -> None:
        """Forget everything; the parent too where nothing else is left in it."""
        shutil.rmtree(self.directory, ignore_errors=True)
        (self.directory.parent / f".{self.directory.name}.lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.directory.parent.rmdir()

    def token(self) -> str:
        """Ties containers to this directory: a lab of the same name from elsewhere has another."""
        return self._text("token", lambda: secrets.token_hex(8))

    def password(self, name: str) -> str:
        """A random password, kept in the file ``name``."""
        return self._text(name, lambda: secrets.token_urlsafe(15))

    def public_key(self) -> str:
        """The operator's public key line; the private key lies beside it."""
        private = self.directory / "id_ed25519"
        if not private.exists():
            key = ed25519.Ed25519PrivateKey.generate()
            public = f"{_openssh_public(key)} fleet-lab\n"
            self.write("id_ed25519.pub", public, 0o644)
            self.write("id_ed25519", _openssh_private(key))
        return (self.directory / "id_ed25519.pub").read_text()

    def host_keys(self, host: str, address: str) -> dict[str, str]:
        """``{"ssh_host_ed25519_key": private, "ssh_host_ed25519_key.pub": public, …}`` of one host."""
        folder = f"hosts/{host}"
        if not (self.directory / folder / ADDRESS).is_file():
            for name, text in new_host_keys(host).items():
                self.write(f"{folder}/{name}", text, 0o644 if name.endswith(".pub") else PRIVATE)
        self.write(f"{folder}/{ADDRESS}", address + "\n")
        return {path.name: path.read_text() for path in sorted((self.directory / folder).glob("ssh_host_*"))}

    def forget_host(self, host: str) -> None:
        """Remove the keys of one host, so that the next ones are new."""
        shutil.rmtree(self.directory / "hosts" / host, ignore_errors=True)

    def certificates(self) -> dict[str, str]:
        """``ca.crt`` and the registry's ``registry.crt`` and ``registry.key``, PEM."""
        if not (self.directory / CA_NAME).exists():
            for name, text in _make_certificates().items():
                self.write(name, text, 0o644 if name.endswith(".crt") else PRIVATE)
        return {
            name: (self.directory / name).read_text() for name in (CA_NAME, "registry.crt", "registry.key")
        }

    def write_known_hosts(self) -> None:
        """``known_hosts`` of every host that has keys here."""
        lines = []
        for folder in sorted((self.directory / "hosts").iterdir()):
            address = (folder / ADDRESS).read_text().strip()
            for public in sorted(folder.glob("*.pub")):
                lines.append(f"{address} {' '.join(public.read_text().split()[:2])}")
        self.write("known_hosts", "\n".join(lines) + "\n", 0o644)

    def write_ssh_config(self, logins: dict[str, tuple[str, str, str | None]]) -> None:
        """``ssh_config`` from {host: (address, user, host it is reached by, or None)}, for people."""
        common = {"IdentityFile": "id_ed25519", "UserKnownHostsFile": "known_hosts"}
        lines = []
        for host, (address, user, jump) in sorted(logins.items()):
            lines += [f"Host {host}", f"  HostName {address}", f"  User {user}", "  IdentitiesOnly yes"]
            lines += [f"  {option} {self.directory / name}" for option, name in common.items()]
            lines += [f"  ProxyJump {jump}"] if jump else []
        self.write("ssh_config", "\n".join(lines) + "\n", 0o644)

    def write_variables(self, variables: dict[str, Any]) -> None:
        """What the lab's inventory takes from the lab (image digests)."""
        head = "# Written by `fleet lab up`; read by the inventory of this lab.\n"
        self.write("variables.yaml", head + yaml.safe_dump(variables, sort_keys=True), 0o644)

    def finish(self, definition: LabDefinition, more: dict[str, Any]) -> None:
        """Write ``lab.json``: the lab is up."""
        document = {
            "lab": definition.name,
            "token": self.token(),
            "hosts": {host.name: host.address for host in definition.hosts},
            **more,
        }
        self.write("lab.json", json.dumps(document, indent=2) + "\n", 0o644)

    def write(self, name: str, text: str, mode: int = PRIVATE) -> None:
        """Write a file whole or not at all; never readable by others while it is being written."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.directory.chmod(0o700)
        fresh = path.with_name(f".{path.name}.new")
        fresh.touch(mode=PRIVATE)
        fresh.write_text(text)
        fresh.chmod(mode)
        fresh.replace(path)

    def _text(self, name: str, make: Any) -> str:
        path = self.directory / name
        if not path.exists():
            self.write(name, make())
        return path.read_text().strip()


def new_host_keys(host: str) -> dict[str, str]:
    """Fresh host keys of two kinds, as files under ``/etc/ssh``."""
    files = {}
    for kind, key in (
        ("ed25519", ed25519.Ed25519PrivateKey.generate()),
        ("ecdsa", ec.generate_private_key(ec.SECP256R1())),
    ):
        files[f"ssh_host_{kind}_key"] = _openssh_private(key)
        files[f"ssh_host_{kind}_key.pub"] = f"{_openssh_public(key)} root@{host}\n"
    return files


def _openssh_private(key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    ).decode()


def _openssh_public(key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        .decode()
    )


def _make_certificates() -> dict[str, str]:
    """A certificate authority whose private key is thrown away, and one certificate of the registry."""
    authority = ec.generate_private_key(ec.SECP256R1())
    server = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fleet lab authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, REGISTRY_NAME)])
    now = datetime.now(timezone.utc)

    def certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=3650))
        )

    ca = certificate(issuer, authority).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    leaf = certificate(subject, server).add_extension(
        x509.SubjectAlternativeName([x509.DNSName(REGISTRY_NAME), x509.DNSName("localhost")]), False
    )
    pem = serialization.Encoding.PEM
    return {
        "registry.crt": leaf.sign(authority, hashes.SHA256()).public_bytes(pem).decode(),
        "registry.key": server.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        CA_NAME: ca.sign(authority, hashes.SHA256()).public_bytes(pem).decode(),
    }
