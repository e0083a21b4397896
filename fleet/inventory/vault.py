"""Ansible's vault format (1.1 and 1.2, AES256), read only: ``!vault`` blocks and whole encrypted files.

The password comes from ``--vault-password-file`` or ``ANSIBLE_VAULT_PASSWORD_FILE``; a file that may be
executed is run and prints it, as with Ansible. Format: header line, then the hexadecimal form of three
hexadecimal lines (salt, HMAC, ciphertext); keys by PBKDF2-SHA256, 10,000 rounds; AES-CTR; HMAC-SHA256.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from fleet.core.errors import InputError
from fleet.core.secret import Secret

HEADER = "$ANSIBLE_VAULT;"
HOW = "give the password with --vault-password-file FILE, or set ANSIBLE_VAULT_PASSWORD_FILE"
_ROUNDS = 10_000
_PROGRAM_SECONDS = 30


class VaultError(ValueError):
    """The text is not a vault, or the password does not open it. The message holds no secret."""


def is_vault(text: str | bytes) -> bool:
    """Whether the text starts like an encrypted file or block."""
    return text.startswith(HEADER.encode()) if isinstance(text, bytes) else text.startswith(HEADER)


def decrypt(text: str, password: Secret) -> str:
    """The plain text. Raises :class:`VaultError` for a wrong password or a damaged block."""
    salt, digest, ciphertext = unpack(text)
    keys = hashlib.pbkdf2_hmac("sha256", password.reveal().encode(), salt, _ROUNDS, dklen=80)
    cipher_key, hmac_key, counter = keys[:32], keys[32:64], keys[64:]
    if not hmac.compare_digest(hmac.new(hmac_key, ciphertext, "sha256").digest(), digest):
        raise VaultError("the vault password does not open it (or the text was changed)")
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    stream = Cipher(algorithms.AES(cipher_key), modes.CTR(counter)).decryptor()
    unpadder = PKCS7(128).unpadder()
    try:
        padded = stream.update(ciphertext) + stream.finalize()
        return (unpadder.update(padded) + unpadder.finalize()).decode()
    except ValueError:
        raise VaultError("its content is damaged or not UTF-8 text") from None


def unpack(text: str) -> tuple[bytes, bytes, bytes]:
    """Salt, HMAC and ciphertext of a vault text. Raises :class:`VaultError` if it is not one."""
    lines = text.split()
    if not lines or not lines[0].startswith(HEADER):
        raise VaultError(f"it does not start with {HEADER}1.1;AES256")
    header = lines[0].split(";")
    if header[1:3] not in (["1.1", "AES256"], ["1.2", "AES256"]):
        raise VaultError(f"only versions 1.1 and 1.2 with AES256 can be read, not {lines[0]}")
    try:
        inner = binascii.unhexlify("".join(lines[1:])).split(b"\n")
        salt, digest, ciphertext = (binascii.unhexlify(part) for part in inner)
    except (binascii.Error, ValueError):
        raise VaultError("its content is cut short or damaged") from None
    return salt, digest, ciphertext


def read_password(path: Path) -> Secret:
    """The vault password from a file, or from the output of an executable one. Raises InputError."""
    try:
        if os.access(path, os.X_OK) and path.is_file():
            done = subprocess.run(
                [str(path.resolve())], stdout=subprocess.PIPE, timeout=_PROGRAM_SECONDS, check=True
            )
            text = done.stdout.decode()
        else:
            text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"the vault password file {path} is not UTF-8 text") from None
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise InputError(f"the vault password file {path} cannot be used: {detail}", remedy=HOW) from None
    password = text.rstrip("\r\n")
    if not password:
        raise InputError(f"the vault password file {path} is empty", remedy=HOW)
    return Secret(password, "vault password")


def password_from_environment(environment: Mapping[str, str]) -> Secret | None:
    """The password that ANSIBLE_VAULT_PASSWORD_FILE names, or None where it is not set."""
    path = environment.get("ANSIBLE_VAULT_PASSWORD_FILE")
    return read_password(Path(path).expanduser()) if path else None
