"""An image made of this machine's own files, put into a registry by the registry's own protocol.

The image holds this Python, PyTorch and all that PyTorch's packages require, so that a container shows
the same torch as the machine, without any download. Layers are not compressed: over loopback that only
costs time. The engine never sees these files before it pulls them; the digest is computed here.
Standard library only. :func:`publish` is what :mod:`run` calls.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
LAYERS = 8  # they are read, hashed and sent side by side
COPY_BYTES = 1 << 20
# What programs in the image need of the machine besides Python: a shell, its tools, the loader, libraries.
SYSTEM = (
    "usr/bin", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64",
    "etc/passwd", "etc/group", "etc/os-release", "usr/lib/os-release", "etc/nsswitch.conf", "etc/ssl/certs",
)  # fmt: skip
LARGEST_SYSTEM_FILE = 64 << 20  # compilers and debuggers are not what a container runs here
LEFT_OUT = (".a", ".o", ".pyc")
_PRIVATE = re.compile(r"(^|/)(libnvidia-|libcuda\.so|libcudadebugger|nvidia-smi)")  # the driver is the host's


class Upload(io.RawIOBase):
    """A blob on its way into the registry, as a file to write to. ``digest`` and ``size`` count on."""

    def __init__(self, registry: str, repository: str) -> None:
        self._connection = http.client.HTTPConnection(registry, timeout=300)
        self._connection.request("POST", f"/v2/{repository}/blobs/uploads/", headers={"Content-Length": "0"})
        self._place = _location(self._connection, 202)
        self._connection.putrequest("PATCH", self._place)
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._connection.putheader("Content-Type", "application/octet-stream")
        self._connection.endheaders()
        self._hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Send and hash."""
        if data:
            self._hash.update(data)
            self._connection.send(b"%x\r\n" % len(data))
            self._connection.send(data)
            self._connection.send(b"\r\n")
            self.size += len(data)
        return len(data)

    def finish(self) -> dict[str, object]:
        """Make it a blob; {"digest", "size"}."""
        self._connection.send(b"0\r\n\r\n")
        place = _location(self._connection, 202)
        digest = "sha256:" + self._hash.hexdigest()
        mark = "&" if "?" in place else "?"
        self._connection.request("PUT", f"{place}{mark}digest={digest}", headers={"Content-Length": "0"})
        _location(self._connection, 201)
        self._connection.close()
        return {"digest": digest, "size": self.size}


def _location(connection: http.client.HTTPConnection, status: int) -> str:
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != status:
        raise SystemExit(f"the registry answers {answer.status}: {said[:300].decode('utf-8', 'replace')}")
    parts = urlsplit(answer.headers.get("Location") or "/")
    return parts.path + ("?" + parts.query if parts.query else "")


_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([^\"']+)[\"']")


def required(name: str) -> list[importlib.metadata.Distribution]:
    """The installed package ``name`` (or ``name[extra]``) and all it requires, extras as they are asked for.

    PyTorch asks for NVIDIA's libraries as extras of one package: ``cuda-toolkit[cublas,cudart]``.
    """
    found: dict[str, importlib.metadata.Distribution] = {}
    seen: set[tuple[str, str | None]] = set()
    waiting = [name]
    while waiting:
        match = _REQUIREMENT.match(waiting.pop())
        if match is None:
            continue
        key = _normal(match.group(1))
        extras = [_normal(extra) for extra in (match.group(2) or "").split(",") if extra.strip()]
        try:
            distribution = found.get(key) or importlib.metadata.distribution(key)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform or Python; where it is needed, the import in a container says so
        found[key] = distribution
        for asked in {None, *extras} - {extra for place, extra in seen if place == key}:
            seen.add((key, asked))
            for line in distribution.requires or []:
                extra = _EXTRA.search(line)
                if (_normal(extra.group(1)) if extra else None) == asked:
                    waiting.append(line)
    return list(found.values())


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def loaded_libraries(packages: Iterable[str]) -> list[Path]:
    """Libraries that a Python with these packages has in memory after some work, wherever they are from."""
    answer = subprocess.run(
        [sys.executable, "-c", _LOOK, *packages], capture_output=True, text=True, check=False
    )
    places = [Path(line.split(maxsplit=5)[5]) for line in answer.stdout.splitlines() if ".so" in line]
    return sorted({place for place in places if place.is_file() and not _PRIVATE.search(str(place))})


_LOOK = """\
import importlib, sys
for name in sys.argv[1:]:
    try:
        module = importlib.import_module(name)
    except ImportError:
        continue
    if name == "torch" and module.cuda.is_available():
        a = module.randn(1, 3, 64, 64, device="cuda")
        module.nn.Conv2d(3, 8, 3).cuda()(a); (a @ a); module.linalg.inv(a); module.cuda.synchronize()
for line in open("/proc/self/maps"):
    if "/" in line:
        print(line.strip())
"""


def package_files(names: Iterable[str]) -> Iterator[Path]:
    """Every installed file of these packages and of what they require."""
    for name in names:
        for distribution in required(name):
            for entry in distribution.files or []:
                path = Path(os.path.normpath(str(distribution.locate_file(entry))))
                if path.is_file():
                    yield path


def python_files() -> Iterator[Path]:
    """The interpreter this script runs on, its environment's own files, its standard library."""
    for place in {sys.prefix, sys.base_prefix}:
        yield from sorted(Path(place, "bin").glob("python*"))
        yield Path(place, "pyvenv.cfg")
    library = Path(sysconfig.get_path("stdlib"))
    yield from tree(library, lambda path: path.name not in ("site-packages", "dist-packages", "test"))
    if sys.base_prefix not in ("/usr", "/usr/local"):
        yield from Path(sys.base_prefix, "lib").glob("libpython*")


def system_files() -> Iterator[Path]:
    """The machine's shell, tools and libraries, without its driver and without very large files."""
    for each in SYSTEM:
        place = Path("/", each)
        if place.is_dir():
            yield from tree(place, lambda path: True)
        elif place.exists():
            yield place


def tree(top: Path, wanted: Callable[[Path], bool]) -> Iterator[Path]:
    """Files and links below ``top``, in order; folders that ``wanted`` refuses are not entered."""
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if wanted(Path(folder, name)))
        for name in sorted(names):
            yield Path(folder, name)
        for name in folders:
            if Path(folder, name).is_symlink():
                yield Path(folder, name)


def kept(path: Path) -> bool:
    """Whether a file of the system goes into the image."""
    if path.name.endswith(LEFT_OUT) or _PRIVATE.search(str(path)):
        return False
    try:
        status = path.lstat()
    except OSError:
        return False
    return path.is_symlink() or status.st_size <= LARGEST_SYSTEM_FILE


def with_targets(paths: Iterable[Path]) -> dict[str, Path]:
    """Name in the image → file here; a link brings what it leads to, under its real name."""
    found: dict[str, Path] = {}
    for first in paths:
        path = first
        while True:
            # Folders that are links (/bin, /lib) are made in the base layer: files go by their real folder.
            name = str(Path(os.path.realpath(path.parent), path.name)).lstrip("/")
            if name in found or not (path.is_file() or path.is_symlink()):
                break
            found[name] = Path("/", name)
            if not path.is_symlink():
                break
            path = Path(os.path.normpath(Path("/", name).parent / os.readlink(path)))
    return found


def shares(files: dict[str, Path], count: int) -> list[list[tuple[str, Path]]]:
    """``files`` in ``count`` parts of about the same number of bytes."""
    parts: list[list[tuple[str, Path]]] = [[] for _ in range(count)]
    sizes = [0] * count
    for name, path in sorted(files.items(), key=lambda entry: -entry[1].lstat().st_size):
        least = sizes.index(min(sizes))
        parts[least].append((name, path))
        sizes[least] += path.lstat().st_size
    return [sorted(part) for part in parts if part]


def send_layer(
    registry: str, repository: str, entries: list[tuple[str, Path]], base: bool
) -> dict[str, object]:
    """One layer into the registry; ``base`` also makes the folders and the links of the top."""
    upload = Upload(registry, repository)
    # Typeshed knows neither copybufsize nor a file object that can only be written to.
    options: Any = {"fileobj": upload, "bufsize": COPY_BYTES, "copybufsize": COPY_BYTES}
    with tarfile.open(mode="w|", **options) as archive:
        for member in _top() if base else []:
            archive.addfile(member)
        for name, path in entries:
            member = archive.gettarinfo(path, arcname=name)
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            if member.islnk():  # the tar stream knows only this layer; send the bytes again
                member.type, member.size = tarfile.REGTYPE, path.stat().st_size
            if member.isreg():
                with path.open("rb") as content:
                    archive.addfile(member, content)
            else:
                archive.addfile(member)
    return {"mediaType": LAYER_TYPE, **upload.finish()}


def _top() -> Iterator[tarfile.TarInfo]:
    """Folders every container needs, and /bin, /lib… as this machine has them."""
    for name, mode in (
        ("tmp", 0o1777),
        ("proc", 0o555),
        ("sys", 0o555),
        ("dev", 0o755),
        ("root", 0o700),
        ("run", 0o755),
    ):
        member = tarfile.TarInfo(name)
        member.type, member.mode = tarfile.DIRTYPE, mode
        yield member
    for name in ("bin", "sbin", "lib", "lib64", "usr/sbin"):
        if os.path.islink("/" + name):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink("/" + name)
            yield member


def configuration(layers: list[dict[str, object]]) -> bytes:
    """The image's configuration: where programs and the driver's libraries are looked for."""
    path = (
        f"{sys.prefix}/bin:/usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    )
    document = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": {
            "Env": [f"PATH={path}", "LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64"],
            "Cmd": ["/bin/sh"],
        },
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        "history": [{"created_by": "files of the machine it runs on"} for _ in layers],
    }
    return json.dumps(document, sort_keys=True).encode()


def publish(registry: str, repository: str, tag: str, packages: Iterable[str]) -> dict[str, object]:
    """Make the image and put it into ``registry`` (host:port, plain HTTP).

    Returns {"digest", "bytes", "files", "layers", "packages", …}. ``packages`` that are not installed are left out.
    """
    base = with_targets([*filter(kept, system_files()), *python_files()])
    packages = list(packages)
    wanted = with_targets(package_files(packages))
    # A requirement that metadata does not tell would else be missed only in the container.
    untold = {
        name: path for name, path in with_targets(loaded_libraries(packages)).items() if name not in wanted
    }
    more = {name: path for name, path in {**wanted, **untold}.items() if name not in base}
    parts = [(sorted(base.items()), True), *((part, False) for part in shares(more, LAYERS))]
    with ThreadPoolExecutor(LAYERS + 1) as pool:
        layers = list(pool.map(lambda part: send_layer(registry, repository, *part), parts))
    upload = Upload(registry, repository)
    upload.write(configuration(layers))
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {"mediaType": CONFIG_TYPE, **upload.finish()},
        "layers": layers,
    }
    body = json.dumps(manifest, sort_keys=True).encode()
    connection = http.client.HTTPConnection(registry, timeout=60)
    connection.request("PUT", f"/v2/{repository}/manifests/{tag}", body, {"Content-Type": MANIFEST_TYPE})
    _location(connection, 201)
    connection.close()
    return {
        "digest": "sha256:" + hashlib.sha256(body).hexdigest(),
        "bytes": sum(int(str(layer["size"])) for layer in layers),
        "files": len(base) + len(more),
        "layers": len(layers),
        "packages": sorted({each.metadata["Name"] for name in packages for each in required(name)}),
        "libraries_not_of_those_packages": sorted(name for name in untold if name in more),
    }
