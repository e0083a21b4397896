"""Is this the host we know? The verdict on a server's key, and the words for a bad one.

Fabric hard-codes a policy that accepts every key, silently, even over a mismatching known_hosts
entry. Here the policy is the only judge: the SSH client is given no known hosts of its own, so every
key comes to :meth:`HostKeyPolicyCheck.missing_host_key`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import paramiko

from fleet.core.connection import Endpoint, HostKeyPolicy
from fleet.core.errors import HostKeyMismatch, HostKeyUnknown
from fleet.transport.known_hosts import Entry, KnownHosts, fingerprint, lookup_name

# A key type on file, and the signature algorithms that prove possession of such a key.
ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


def default_files(home: Path) -> tuple[Path, ...]:
    """Where OpenSSH looks: the user's file first (new keys go there), then the machine's."""
    return home / ".ssh" / "known_hosts", Path("/etc/ssh/ssh_known_hosts")


class HostKeyPolicyCheck(paramiko.MissingHostKeyPolicy):
    """Judges the key of one connection to ``endpoint``; ``host`` is the inventory host it is for."""

    def __init__(
        self, endpoint: Endpoint, host: str, known: KnownHosts, files: Sequence[Path], *, accept_new: bool
    ) -> None:
        self._endpoint = endpoint
        self._host = host
        self._known = known
        self._files = endpoint.known_hosts or tuple(files)
        self._accept_new = accept_new or endpoint.host_key_policy is HostKeyPolicy.ACCEPT_NEW
        self._name = lookup_name(endpoint.address, endpoint.port, endpoint.host_key_alias)
        self.entries = known.lookup(self._files, self._name)
        self._bare = self._find_bare()

    def preferred(self, supported: Sequence[str]) -> list[str]:
        """``supported`` key algorithms with those on file first.

        A server with several keys then shows the one we know, and a correct ssh-rsa line is no
        mismatch (paramiko #2411). The others stay: a server that has none of the known types must be
        told as a changed key with its fingerprint, not as a failed negotiation.
        """
        known: list[str] = []
        for entry in self.entries or self._bare:
            if not entry.revoked:
                known.extend(ALGORITHMS.get(entry.key_type, (entry.key_type,)))
        first = [name for name in dict.fromkeys(known) if name in supported]
        return first + [name for name in supported if name not in first]

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Called by paramiko with every server key. HostKeyMismatch or HostKeyUnknown refuse it."""
        del client, hostname
        blob = key.asbytes()
        if not self.entries and any(entry.key == blob and not entry.revoked for entry in self._bare):
            return
        if not self.entries and self._accept_new:
            self.entries = self._pin(key.get_name(), blob)
        revoked = [entry for entry in self.entries if entry.revoked and entry.key == blob]
        if revoked:
            raise self._revoked(blob, revoked[0])
        usable = [entry for entry in self.entries if not entry.revoked]
        if any(entry.key == blob for entry in usable):
            return
        if usable:
            raise self._mismatch(blob, key.get_name(), usable)
        raise self._unknown(blob, key.get_name())

    def _find_bare(self) -> list[Entry]:
        """Off port 22: entries of the address without the port. They can vouch for a key, never against one.

        As in OpenSSH: several servers may sit behind one address.
        """
        if self._endpoint.port == 22 or self._endpoint.host_key_alias:
            return []
        return self._known.lookup(self._files, self._endpoint.address.lower())

    def _pin(self, key_type: str, blob: bytes) -> list[Entry]:
        file = self._files[0]
        try:
            return self._known.pin(file, self._name, key_type, blob)
        except OSError as error:
            raise HostKeyUnknown(
                f"the new host key of {self._name} could not be written to {file}: {error.strerror}",
                host=self._host,
                remedy=f"make {file} writable, or add the key with ssh-keyscan and check its fingerprint",
            ) from error

    def _mismatch(self, blob: bytes, key_type: str, entries: Sequence[Entry]) -> HostKeyMismatch:
        entry = next((entry for entry in entries if entry.key_type == key_type), entries[0])
        return HostKeyMismatch(
            f"the host key of {self._name} is not the one on file: it shows {key_type} {fingerprint(blob)}, "
            f"{entry.where} has {entry.key_type} {fingerprint(entry.key)}. "
            "Either the host was reinstalled or somebody is in between",
            host=self._host,
            remedy=f"if the new key is right: ssh-keygen -R '{self._name}' -f {entry.file}, "
            "then connect again with --accept-new",
        )

    def _revoked(self, blob: bytes, entry: Entry) -> HostKeyMismatch:
        return HostKeyMismatch(
            f"the host key of {self._name}, {fingerprint(blob)}, is marked @revoked in {entry.where}",
            host=self._host,
            remedy="give the host a new key; a revoked one must not be trusted",
        )

    def _unknown(self, blob: bytes, key_type: str) -> HostKeyUnknown:
        return HostKeyUnknown(
            f"no host key on file for {self._name}; it shows {key_type} {fingerprint(blob)}",
            host=self._host,
            remedy="compare the fingerprint with the host's own, then run again with --accept-new "
            f"(it is then pinned in {self._files[0]})",
        )
