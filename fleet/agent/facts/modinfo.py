"""What a kernel module file says of itself: version, licence, who signed it.

A plain ELF file is read here, its section headers and its end only: nvidia.ko has 100 MB. One compressed
by xz is unpacked in memory. Anything else is asked of modinfo, a process.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import BinaryIO, Dict, Optional

    from fleet.agent.host import Host

    Fields = Dict[str, str]


UNNAMED_SIGNER = "a key without a name"

_MAGIC = b"~Module signature appended~\n"
_COMMON_NAME = b"\x06\x03\x55\x04\x03"  # the object identifier 2.5.4.3 in DER
_MOST_SECTIONS = 1 << 20
_MOST_UNPACKED = 1 << 29


class NotPlain(Exception):
    """Not a 64-bit little-endian ELF file with a .modinfo section."""


def fields_of(host: Host, path: str) -> Optional[Fields]:
    """The fields of the module file ``path`` of the host: version, license, signer and more, those it has.

    None when it cannot be read: gone, or of a kind that needs modinfo, which is not there.
    """
    try:
        if path.endswith(".xz"):
            return _of_xz(host.path(path))
        with open(host.path(path), "rb") as stream:
            return read(stream)
    except (NotPlain, ImportError):
        return _ask_modinfo(host, path)
    except OSError:
        return None


def _of_xz(path: str) -> Fields:
    import io
    import lzma

    with open(path, "rb") as stream:
        try:
            return read(io.BytesIO(lzma.LZMADecompressor().decompress(stream.read(), _MOST_UNPACKED)))
        except lzma.LZMAError as error:
            raise NotPlain(str(error)) from None


def read(stream: BinaryIO) -> Fields:
    """The fields of an open ELF module file. Raises NotPlain."""
    header = stream.read(64)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        raise NotPlain("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", header, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", header, 0x3A)
    if size != 64 or not table:
        raise NotPlain("no section headers")
    first = _section(stream, table)
    # More sections than 16 bits can count: the numbers are in the first header.
    count = count or min(first["size"], _MOST_SECTIONS)
    names_at = first["link"] if names_at == 0xFFFF else names_at
    stream.seek(table)
    headers = stream.read(count * 64)
    if len(headers) < count * 64 or names_at >= count:
        raise NotPlain("the section headers are cut off")
    names = _content(stream, headers, names_at)
    for place in range(count):
        (name,) = struct.unpack_from("<I", headers, place * 64)
        if names.startswith(b".modinfo\0", name):
            fields = parse_section(_content(stream, headers, place))
            signer = _signer(stream)
            if signer is not None:
                fields["signer"] = signer
            return fields
    raise NotPlain("no .modinfo section")


def _section(stream: BinaryIO, offset: int) -> Dict[str, int]:
    stream.seek(offset)
    raw = stream.read(64)
    if len(raw) < 64:
        raise NotPlain("the section headers are cut off")
    size, link = struct.unpack_from("<QI", raw, 32)
    return {"size": size, "link": link}


def _content(stream: BinaryIO, headers: bytes, place: int) -> bytes:
    offset, size = struct.unpack_from("<QQ", headers, place * 64 + 24)
    stream.seek(offset)
    return stream.read(min(size, 1 << 24))


def parse_section(data: bytes) -> Fields:
    """The ``key=value`` texts of a .modinfo section, NUL after each; of a repeated key the first."""
    fields: Fields = {}
    for item in data.split(b"\0"):
        key, equals, value = item.partition(b"=")
        if equals:
            fields.setdefault(key.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
    return fields


def _signer(stream: BinaryIO) -> Optional[str]:
    """Who signed the module, by the PKCS#7 message at its end; None when nobody did."""
    trailer = len(_MAGIC) + 12
    stream.seek(0, os.SEEK_END)
    end = stream.tell()
    if end < trailer:
        return None
    stream.seek(end - trailer)
    tail = stream.read(trailer)
    if tail[12:] != _MAGIC:
        return None
    # struct module_signature: algorithm, hash, kind of id, two lengths, padding, length of the signature.
    _, _, _, name_length, key_length, length = struct.unpack(">5B3xI", tail[:12])
    stream.seek(max(0, end - trailer - length - name_length - key_length))
    raw = stream.read(name_length + key_length + length)
    if name_length:
        return raw[:name_length].decode("utf-8", "replace")
    return common_name(raw) or UNNAMED_SIGNER


def common_name(message: bytes) -> Optional[str]:
    """The first common name in a DER message: module signatures hold one name, the issuer's."""
    place = message.find(_COMMON_NAME)
    if place < 0:
        return None
    place += len(_COMMON_NAME)
    length, start = message[place + 1 : place + 2], place + 2
    if length == b"\x81":
        length, start = message[place + 2 : place + 3], place + 3
    if not length:
        return None
    text = message[start : start + length[0]]
    wide = message[place : place + 1] == b"\x1e"  # BMPString
    return text.decode("utf-16-be" if wide else "utf-8", "replace") or None


def parse_output(text: str) -> Fields:
    """The fields that modinfo prints, ``name:   value`` a line; of a repeated name the first."""
    fields: Fields = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key and key == key.strip():
            fields.setdefault(key, value.strip())
    return fields


def _ask_modinfo(host: Host, path: str) -> Optional[Fields]:
    from fleet.agent.resources.base import StepFailed

    try:
        result = host.run(["modinfo", path], deadline_s=10.0)
    except StepFailed:
        return None  # no modinfo here
    return parse_output(result.stdout) if result.ok else None


def flavour(license_text: Optional[str]) -> Optional[str]:
    """ "open" or "proprietary" by the module's licence; None for one that is neither of NVIDIA's."""
    if not license_text:
        return None
    if "MIT" in license_text or "GPL" in license_text:
        return "open"
    return "proprietary" if license_text.strip() == "NVIDIA" else None
