"""OpenPGP key fingerprints without a gpg binary: minimal hosts have none.

Only what is needed to compare a repository's key with the fingerprint an operator pinned (RFC 9580 §4.2,
§5.5.4.2, §6): armor, packet headers, and the version 4 fingerprint. A key that came over the network is kept as
:func:`canonical` writes it, so that no other program reads another key in the same bytes.
"""

from __future__ import annotations

import binascii

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Iterator, List, Tuple

_SIGNATURE, _PUBLIC_KEY, _USER_ID, _PUBLIC_SUBKEY = 2, 6, 13, 14
_SECRET = (5, 7)


class BadKey(ValueError):
    """Not an OpenPGP public key, or one of a version fleet cannot fingerprint."""


def key_bytes(content: str) -> Tuple[bytes, bool]:
    """(binary key, whether ``content`` was ASCII armor). ``content``: armor, or base64 of a binary key."""
    if "-----BEGIN PGP" in content:
        return dearmor(content), True
    try:
        return binascii.a2b_base64(content.encode("ascii")), False
    except (ValueError, binascii.Error):
        raise BadKey("the key is neither ASCII armor nor base64") from None


def dearmor(text: str) -> bytes:
    """The bytes of every public key block in ``text``."""
    blocks: List[bytes] = []
    body: List[str] = []
    inside = headers = False
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----"):
            inside, headers, body = True, True, []
        elif line.startswith("-----END PGP PUBLIC KEY BLOCK-----") and inside:
            inside = False
            try:
                blocks.append(binascii.a2b_base64("".join(body).encode("ascii")))
            except (ValueError, binascii.Error):
                raise BadKey("the ASCII armor is damaged") from None
        elif inside and headers and (not line or ":" not in line):
            headers = False
            if line:
                body.append(line)
        elif inside and not headers and not (line.startswith("=") and len(line) == 5):
            body.append(line)
    if not blocks:
        raise BadKey("there is no complete PGP public key block in it")
    return b"".join(blocks)


def packets(data: bytes) -> Iterator[Tuple[int, bytes]]:
    """(tag, body) of each packet. Raises :class:`BadKey` for a broken length."""
    position = 0
    while position < len(data):
        header = data[position]
        if not header & 0x80:
            raise BadKey("not OpenPGP data (byte %d)" % position)
        tag, size, start = _new_header(data, position) if header & 0x40 else _old_header(data, position)
        if start + size > len(data):
            raise BadKey("the key is cut short")
        yield tag, data[start : start + size]
        position = start + size


def _new_header(data: bytes, position: int) -> Tuple[int, int, int]:
    tag = data[position] & 0x3F
    first = _byte(data, position + 1)
    if first < 192:
        return tag, first, position + 2
    if first < 224:
        return tag, ((first - 192) << 8) + _byte(data, position + 2) + 192, position + 3
    if first == 255:
        return tag, int.from_bytes(data[position + 2 : position + 6], "big"), position + 6
    raise BadKey("a key with partial packet lengths")


def _old_header(data: bytes, position: int) -> Tuple[int, int, int]:
    tag = (data[position] >> 2) & 0x0F
    width = (1, 2, 4, 0)[data[position] & 3]
    if width == 0:
        return tag, len(data) - position - 1, position + 1
    return tag, int.from_bytes(data[position + 1 : position + 1 + width], "big"), position + 1 + width


def _byte(data: bytes, position: int) -> int:
    if position >= len(data):
        raise BadKey("the key is cut short")
    return data[position]


def fingerprints(data: bytes) -> List[str]:
    """The fingerprints of the primary keys in ``data``, 40 upper-case hex digits each."""
    import hashlib

    found: List[str] = []
    for tag, body in packets(data):
        if tag != _PUBLIC_KEY:
            continue
        if not body or body[0] != 4:
            raise BadKey(
                "a key of version %s; only version 4 keys are supported" % (body[0] if body else "?")
            )
        # SHA-1 is what the format defines as the key's name; it is not used to sign anything here.
        digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body)
        found.append(digest.hexdigest().upper())
    if not found:
        raise BadKey("there is no public key in it")
    return found


def canonical(data: bytes) -> bytes:
    """The public keys in ``data`` with their subkeys, names and signatures, in packet headers of our own.

    Everything else is left out. Headers are of the old format with two bytes of length, which every apt takes
    (its first byte, 0x99, is how apt knows a keyring). Raises :class:`BadKey` where there is no public key.
    """
    kept: List[bytes] = []
    for tag, body in packets(data):
        if tag in _SECRET:
            raise BadKey("there is a secret key in it")
        if tag not in (_SIGNATURE, _PUBLIC_KEY, _USER_ID, _PUBLIC_SUBKEY) or not (kept or tag == _PUBLIC_KEY):
            continue
        if len(body) > 0xFFFF:
            raise BadKey("a packet of %d bytes" % len(body))
        kept.append(bytes([0x80 | tag << 2 | 1]) + len(body).to_bytes(2, "big") + body)
    found = b"".join(kept)
    fingerprints(found)
    return found


def normalise(fingerprint: str) -> str:
    """A fingerprint as typed or printed (spaces, colons, 0x, any case) in the form compared."""
    text = fingerprint.replace(" ", "").replace(":", "").upper()
    return text[2:] if text.startswith("0X") else text
