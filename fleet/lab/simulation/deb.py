"""Debian packages made, and unpacked, in memory: an ``ar`` of two tar files, as deb(5) says.

Next: :mod:`.packages` says which packages there are, :mod:`.repository` publishes them.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# One date for everything, so that the same package is the same file each time.
_DATE = 1_700_000_000
# From here on packing fast counts for more than packing small.
_LARGE = 8 << 20


@dataclass(frozen=True)
class Entry:
    """One file of a package: its content and mode, or, with ``link``, a symbolic link."""

    content: bytes = b""
    mode: int = 0o644
    link: str | None = None


@dataclass(frozen=True)
class Package:
    """One binary package.

    ``relations``: ``{"Depends": ("a (= 1)", …), "Conflicts": …}``. ``files``: by path without the first
    slash. ``scripts``: preinst, postinst, prerm, postrm as shell text without the first line.
    """

    name: str
    version: str
    description: str
    relations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, Entry] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    configuration: tuple[str, ...] = ()
    architecture: str = "amd64"
    section: str = "non-free/libs"

    @property
    def file_name(self) -> str:
        """``NAME_VERSION_ARCHITECTURE.deb``; an epoch is not part of it."""
        return f"{self.name}_{self.version.rpartition(':')[2]}_{self.architecture}.deb"

    def control(self) -> str:
        """The control paragraph, without what only an index knows."""
        size = sum(len(entry.content) for entry in self.files.values())
        lines = [f"Package: {self.name}", f"Version: {self.version}", f"Architecture: {self.architecture}"]
        lines += ["Maintainer: fleet lab <lab@packages.lab>", f"Installed-Size: {size // 1024 + 1}"]
        lines += [f"{kind}: {', '.join(names)}" for kind, names in self.relations.items() if names]
        lines += [f"Section: {self.section}", "Priority: optional", f"Description: {self.description}"]
        lines += [" Simulated by the lab: it installs no driver that could drive a GPU."]
        return "\n".join(lines) + "\n"


def build(package: Package) -> bytes:
    """The bytes of the ``.deb``."""
    control = {"control": Entry(package.control().encode())}
    for name, text in package.scripts.items():
        control[name] = Entry(f"#!/bin/sh\nset -e\n{text}".encode(), 0o755)
    if package.configuration:
        control["conffiles"] = Entry("".join(f"/{path}\n" for path in package.configuration).encode())
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", _tar(control)),
        ("data.tar.gz", _tar(package.files)),
    ]
    return b"!<arch>\n" + b"".join(_member(name, content) for name, content in members)


def unpack(archive: bytes) -> dict[str, Entry]:
    """The files of a ``.deb``, by path, links included. ValueError where it is none, or packed with zstd."""
    offset = 8
    while archive.startswith(b"!<arch>\n") and offset + 60 <= len(archive):
        name = archive[offset : offset + 16].decode().strip().rstrip("/")
        size = int(archive[offset + 48 : offset + 58])
        if name.startswith("data.tar") and not name.endswith(".zst"):
            return _untar(archive[offset + 60 : offset + 60 + size])
        offset += 60 + size + size % 2
    raise ValueError("this is not a Debian package that can be unpacked here")


def _untar(content: bytes) -> dict[str, Entry]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            path = member.name.removeprefix("./")
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                found[path] = Entry(stream.read(), member.mode)
            elif member.issym():
                found[path] = Entry(link=member.linkname)
    return found


def _member(name: str, content: bytes) -> bytes:
    header = f"{name:<16}{_DATE:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
    return header.encode() + content + (b"\n" if len(content) % 2 else b"")


def _tar(files: Mapping[str, Entry]) -> bytes:
    buffer = io.BytesIO()
    large = sum(len(file.content) for file in files.values()) > _LARGE
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=1 if large else 6, mtime=_DATE) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for folder in _folders(files):
            entry = tarfile.TarInfo(f"./{folder}/" if folder else "./")
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, _DATE
            archive.addfile(entry)
        for path, file in sorted(files.items()):
            entry = tarfile.TarInfo(f"./{path}")
            entry.mode, entry.mtime = file.mode, _DATE
            if file.link is not None:
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, file.link, 0o777
                archive.addfile(entry)
            else:
                entry.size = len(file.content)
                archive.addfile(entry, io.BytesIO(file.content))
    return buffer.getvalue()


def _folders(paths: Iterable[str]) -> list[str]:
    folders = {""}
    for path in paths:
        parts = path.split("/")[:-1]
        folders |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    return sorted(folders)
