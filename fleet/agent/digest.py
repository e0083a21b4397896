"""SHA-256 without OpenSSL: loading that costs a no-op 3 ms, and Python has the algorithm built in."""

from __future__ import annotations

import sys


def sha256(data: bytes) -> bytes:
    """The 32 bytes of the digest."""
    try:
        return _builtin_sha256(data)
    except ImportError:
        import hashlib

        return hashlib.sha256(data).digest()


def _builtin_sha256(data: bytes) -> bytes:
    name = "_sha2" if sys.version_info >= (3, 12) else "_sha256"
    digest: bytes = __import__(name).sha256(data).digest()
    return digest
