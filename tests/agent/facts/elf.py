"""Kernel module files for tests: a small ELF file with the sections that are looked at."""

from __future__ import annotations

import struct

COMMON_NAME = b"\x06\x03\x55\x04\x03"


def module(
    fields: dict[str, str], *, gap: int = 0, name: bytes = b".modinfo", signer: str | None = None
) -> bytes:
    """An ELF file with ``fields`` in its .modinfo; ``gap`` zero bytes, as of code, before that section."""
    info = b"".join(f"{key}={value}\0".encode() for key, value in fields.items())
    names = b"\0" + name + b"\0.shstrtab\0"
    info_at = 64 + gap
    names_at = info_at + len(info)
    table = names_at + len(names)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    sections = (
        section(0, 0, 0) + section(1, info_at, len(info)) + section(len(name) + 2, names_at, len(names))
    )
    return header + bytes(gap) + info + names + sections + (signature(signer) if signer is not None else b"")


def section(name: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, 0, 0, 1, 0)


def signature(signer: str) -> bytes:
    """What sign-file appends: a message with the signer's common name in it, its length, a marker."""
    text = signer.encode()
    name = COMMON_NAME + b"\x0c" + bytes([len(text)]) + text if signer else b""
    message = b"\x30\x80" + name + bytes(40)
    return message + struct.pack(">5B3xI", 0, 4, 2, 0, 0, len(message)) + b"~Module signature appended~\n"
