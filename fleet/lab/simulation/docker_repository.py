"""A stand-in for Docker's own package repository: its names and layout, Debian's real engine inside.

``docker-ce`` and ``docker-ce-cli`` come in two versions. One is what Debian 13 has; the other is the same
program that says another version of itself. Debian 13's programs run from glibc 2.34 on, so there is nothing
here for Debian 11. Next: :mod:`.repository` publishes, :mod:`fleet.lab.images` fetches Debian's packages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fleet.lab.simulation import deb
from fleet.lab.simulation.contents import service_scripts
from fleet.lab.simulation.deb import Entry, Package
from fleet.lab.simulation.repository import Key, publish_dists

# Which of Debian's packages hold the programs; runc is Debian 12's, whose glibc is the older.
SOURCES: Mapping[str, tuple[str, ...]] = {
    "trixie": ("docker.io", "docker-cli", "containerd", "docker-buildx", "docker-compose"),
    "bookworm": ("runc", "tini"),
}
# (codename, operating system, what a version of Docker's ends with) by NVIDIA's name for the system.
SUITES: Mapping[str, tuple[str, str, str]] = {
    "debian12": ("bookworm", "debian", "debian.12~bookworm"),
    "debian13": ("trixie", "debian", "debian.13~trixie"),
    "ubuntu2204": ("jammy", "ubuntu", "ubuntu.22.04~jammy"),
    "ubuntu2404": ("noble", "ubuntu", "ubuntu.24.04~noble"),
}
_UNITS = "usr/lib/systemd/system"
_PLUGINS = "usr/libexec/docker/cli-plugins"


def build(
    folder: Path,
    keys: Path,
    systems: frozenset[str],
    made_from: str,
    fetch: Callable[[str, tuple[str, ...]], list[bytes]],
    progress: Callable[[str], None],
) -> None:
    """Make ``linux/{debian,ubuntu}`` in ``folder`` for ``systems`` (keys of :data:`SUITES`), unless it is there.

    ``fetch(release, names)`` gives Debian's packages; ``made_from`` is what they depend on.
    """
    stamp, recipe = folder / ".made-from", f"{made_from} {sorted(systems)} {_own_code()}"
    if stamp.exists() and stamp.read_text() == recipe:
        return
    progress(f"packages: Docker's repository for {', '.join(sorted(systems))}, with Debian's engine in it")
    files: dict[str, Entry] = {}
    for release, names in SOURCES.items():
        for archive in fetch(release, names):
            files |= deb.unpack(archive)
    key = key_of(keys)
    for system in sorted(systems):
        codename, operating_system, suffix = SUITES[system]
        target = folder / "linux" / operating_system
        publish_dists(target, codename, _packages(files, suffix), key, origin="Docker")
        (target / "gpg").write_text(key.armored())
    stamp.write_text(recipe)


def key_of(keys: Path) -> Key:
    """The key that signs it."""
    return Key.make(keys / "docker", "Docker Release (CE deb)")


def versions(files: Mapping[str, Entry]) -> tuple[str, str]:
    """The version that Debian's dockerd says, without ``+dfsg1``, and one made of it that is as long."""
    content = files["usr/sbin/dockerd"].content
    end = content.index(b"+dfsg1")
    begin = end
    while content[begin - 1 : begin] in b"0123456789." and begin > 0:
        begin -= 1
    genuine = content[begin:end].decode()
    last = int(genuine[-1])
    return genuine, f"{genuine[:-1]}{last - 1 if last else 1}"


def _packages(files: Mapping[str, Entry], suffix: str) -> Iterator[Package]:
    genuine, other = versions(files)
    yield _containerd(files, suffix)
    for name, upstream in (("buildx", "0.13.1"), ("compose", "2.26.1")):
        plugin = {f"{_PLUGINS}/docker-{name}": files[f"{_PLUGINS}/docker-{name}"]}
        yield Package(
            f"docker-{name}-plugin", f"{upstream}-1~{suffix}", f"Docker {name} plugin", files=plugin
        )
    for version in (genuine, other):

        def saying(path: str, mode: int = 0o755, version: str = version) -> Entry:
            content = files[path].content
            return Entry(content.replace(f"{genuine}+dfsg1".encode(), f"{version}+dfsg1".encode()), mode)

        packaged = f"5:{version}-1~{suffix}"
        yield Package(
            "docker-ce-cli", packaged, "Docker CLI",
            {"Depends": ("libc6 (>= 2.34)",), "Recommends": ("docker-buildx-plugin", "docker-compose-plugin"),
             "Conflicts": ("docker.io", "docker-cli"), "Replaces": ("docker.io", "docker-cli")},
            {"usr/bin/docker": saying("usr/bin/docker")},
        )  # fmt: skip
        yield Package(
            "docker-ce", packaged, "Docker: the open-source application container engine",
            {"Depends": ("containerd.io", "docker-ce-cli", "iptables", "libsystemd0", "libc6 (>= 2.34)"),
             "Conflicts": ("docker.io", "docker-engine"), "Replaces": ("docker.io", "docker-engine")},
            {
                "usr/bin/dockerd": saying("usr/sbin/dockerd"),
                "usr/bin/docker-proxy": files["usr/sbin/docker-proxy"],
                "usr/bin/docker-init": files["usr/bin/tini-static"],
                f"{_UNITS}/docker.service": Entry(_SERVICE.encode()),
                f"{_UNITS}/docker.socket": Entry(_SOCKET.encode()),
            },
            _engine_scripts(),
        )  # fmt: skip


def _containerd(files: Mapping[str, Entry], suffix: str) -> Package:
    named = {f"usr/bin/{name}": files[f"usr/bin/{name}"] for name in ("containerd", "ctr")}
    named["usr/bin/containerd-shim-runc-v2"] = files["usr/bin/containerd-shim-runc-v2"]
    named["usr/bin/runc"] = files["usr/sbin/runc"]
    named[f"{_UNITS}/containerd.service"] = Entry(_CONTAINERD.encode())
    named["etc/containerd/config.toml"] = Entry(b'disabled_plugins = ["cri"]\n')
    only_one = ("containerd", "runc")
    return Package(
        "containerd.io", f"1.7.24-1~{suffix}", "An open and reliable container runtime",
        {"Depends": ("libseccomp2 (>= 2.5.0)", "libc6 (>= 2.34)"), "Provides": only_one, "Conflicts": only_one,
         "Replaces": only_one},
        named, service_scripts("containerd.service", start=True), ("etc/containerd/config.toml",),
    )  # fmt: skip


def _engine_scripts() -> dict[str, str]:
    """Docker's own: the group docker; service and socket enabled and started."""
    scripts = service_scripts("docker.service", start=True)
    group = "getent group docker >/dev/null || groupadd --system docker\n"
    socket = "deb-systemd-helper enable docker.socket >/dev/null || true\n"
    return {**scripts, "postinst": f'[ "$1" = configure ] || exit 0\n{group}{socket}{scripts["postinst"]}'}


def _own_code() -> str:
    code = Path(__file__).read_bytes() + Path(deb.__file__).read_bytes()
    return hashlib.sha256(code).hexdigest()[:12]


_SERVICE = """\
[Unit]
Description=Docker Application Container Engine
Documentation=https://docs.docker.com
After=network-online.target docker.socket containerd.service
Wants=network-online.target containerd.service
Requires=docker.socket

[Service]
Type=notify
ExecStart=/usr/bin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock
ExecReload=/bin/kill -s HUP $MAINPID
TimeoutStartSec=0
RestartSec=2
Restart=always
LimitCORE=infinity
TasksMax=infinity
Delegate=yes
KillMode=process
OOMScoreAdjust=-500

[Install]
WantedBy=multi-user.target
"""
_SOCKET = """\
[Unit]
Description=Docker Socket for the API

[Socket]
ListenStream=/run/docker.sock
SocketMode=0660
SocketUser=root
SocketGroup=docker

[Install]
WantedBy=sockets.target
"""
_CONTAINERD = """\
[Unit]
Description=containerd container runtime
Documentation=https://containerd.io
After=network.target local-fs.target

[Service]
ExecStart=/usr/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitCORE=infinity
TasksMax=infinity

[Install]
WantedBy=multi-user.target
"""
