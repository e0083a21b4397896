"""What the package manager says of this host: versions, holds, interrupted work, who holds the lock.

dpkg is asked by reading its status file (about 1 ms for 700 packages), never by running it. The same
reader serves the ``package`` resource (:mod:`fleet.agent.resources.package`); transactions are in
:mod:`fleet.agent.package_manager`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, List, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json


STATUS_FILE = "/var/lib/dpkg/status"
KEYS = ("packages", "reboot_required")

# The packages whose versions every facts document carries.
WATCHED_NAMES = frozenset(
    "docker.io docker-ce docker-ce-cli docker-cli docker-compose-plugin containerd containerd.io runc podman"
    " podman-docker moby-engine python3 python3-minimal needrestart unattended-upgrades dkms mokutil"
    " cuda-drivers cuda-keyring datacenter-gpu-manager libcuda1 libnvsdm linux-generic"
    " doca-ofed doca-all doca-networking doca-host mlnx-ofed-kernel-utils mlnx-ofa_kernel".split()
)
WATCHED_PREFIXES = (
    "nvidia-",
    "libnvidia-",
    "firmware-nvidia-",
    "xserver-xorg-video-nvidia",
    "linux-image-",
    "linux-headers-",
    "linux-modules-nvidia-",
    "cuda-drivers-",
    "datacenter-gpu-manager-",
    "kmod-nvidia",
)

# Files whose POSIX lock means "a package manager is at work", in the order they are worth naming.
APT_LOCK_FILES = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)

_INSTALLED = ("installed", "triggers-pending", "triggers-awaited")
_INTERRUPTED = ("half-installed", "unpacked", "half-configured")


class PackageState:
    """One dpkg stanza: ``want`` (install, hold, deinstall, purge, unknown), ``flag`` (ok, reinstreq),
    ``status`` (installed, half-configured, config-files …), ``version`` and ``architecture``."""

    __slots__ = ("architecture", "flag", "name", "status", "version", "want")

    def __init__(self, name: str, architecture: str, version: str, want: str, flag: str, status: str) -> None:
        self.name = name
        self.architecture = architecture
        self.version = version
        self.want = want
        self.flag = flag
        self.status = status

    @property
    def installed(self) -> bool:
        """Unpacked and configured. Triggers that wait are other packages' business."""
        return self.status in _INSTALLED and self.flag == "ok"

    @property
    def interrupted(self) -> bool:
        """Between unpacked and configured, or marked as needing reinstallation."""
        return self.status in _INTERRUPTED or self.flag != "ok"

    @property
    def described(self) -> str:
        """The status, and whether dpkg wants the package installed again, in the words of ``dpkg -l``."""
        return self.status if self.flag == "ok" else self.status + ", reinst-required"

    @property
    def held(self) -> bool:
        return self.want == "hold"


class Dpkg:
    """Reads dpkg's status file; the index is kept until the file changes (inode, size, mtime)."""

    def __init__(self, root: str = "/") -> None:
        self._path = os.path.join(root, STATUS_FILE.lstrip("/"))
        self._stamp: Optional[Tuple[int, int, int]] = None
        self._index: Dict[str, List[bytes]] = {}

    def get(self, name: str) -> Optional[PackageState]:
        """The state of ``name`` or ``name:architecture``; None when dpkg has never heard of it.

        Of several architectures an installed one is preferred.
        """
        self._refresh()
        plain, _, architecture = name.partition(":")
        found = [parse_stanza(stanza) for stanza in self._index.get(plain, ())]
        if architecture and architecture != "any":
            found = [state for state in found if state.architecture in (architecture, "all")]
        found.sort(key=lambda state: (not state.installed, not state.interrupted))
        return found[0] if found else None

    def installed(self, name: str) -> Optional[str]:
        """The installed version of ``name``, or None when it is not (fully) installed."""
        state = self.get(name)
        return state.version if state is not None and state.installed else None

    def unusual(self) -> List[PackageState]:
        """The packages that are not plainly installed or gone: interrupted ones and holds."""
        self._refresh()
        states = [
            parse_stanza(stanza)
            for stanzas in self._index.values()
            for stanza in stanzas
            if b"\nStatus: install ok installed\n" not in stanza
        ]
        return [state for state in states if state.interrupted or state.held]

    def names(self) -> List[str]:
        self._refresh()
        return list(self._index)

    def _refresh(self) -> None:
        updates = _update_files(os.path.join(os.path.dirname(self._path), "updates"))
        try:
            stat = os.stat(self._path)
            # dpkg replaces the file, so inode, size and time tell; pending updates are read every time.
            stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if stamp == self._stamp and not updates:
                return
            with open(self._path, "rb") as stream:
                data = stream.read()
        except FileNotFoundError:
            stamp, data = (0, 0, 0), b""
        self._index = index_stanzas(data)
        for path in updates:
            with open(path, "rb") as stream:
                _overlay(self._index, index_stanzas(stream.read()))
        self._stamp = None if updates else stamp


def index_stanzas(data: bytes) -> Dict[str, List[bytes]]:
    """Package name -> its stanzas, without reading more of them than the first line (dpkg writes
    ``Package`` first). Stanzas keep no surrounding newlines; each gets one at its end for searching."""
    index: Dict[str, List[bytes]] = {}
    for stanza in data.split(b"\n\n"):
        if stanza.startswith(b"\n"):
            stanza = stanza.lstrip(b"\n")
        if not stanza.startswith(b"Package: "):
            continue
        name = stanza[9 : stanza.find(b"\n", 9)].strip().decode("ascii", "replace")
        index.setdefault(name, []).append(stanza + b"\n")
    return index


def parse_stanza(stanza: bytes) -> PackageState:
    """The few fields fleet needs of one stanza (as :func:`index_stanzas` gives it)."""
    want, flag, status = (_field(stanza, b"Status") + " ? ? ?").split()[:3]
    return PackageState(
        name=_field(b"\n" + stanza, b"Package"),
        architecture=_field(stanza, b"Architecture"),
        version=_field(stanza, b"Version"),
        want=want,
        flag=flag,
        status=status,
    )


def _field(stanza: bytes, name: bytes) -> str:
    start = stanza.find(b"\n" + name + b": ")
    if start < 0:
        return ""
    start += len(name) + 3
    return stanza[start : stanza.find(b"\n", start)].decode("utf-8", "replace").strip()


def _update_files(directory: str) -> List[str]:
    """dpkg's own journal: numbered stanzas not yet merged, left there when dpkg was interrupted."""
    try:
        names = [name for name in os.listdir(directory) if name.isdigit()]
    except OSError:
        return []
    return [os.path.join(directory, name) for name in sorted(names)]


def _overlay(index: Dict[str, List[bytes]], newer: Dict[str, List[bytes]]) -> None:
    for name, stanzas in newer.items():
        for stanza in stanzas:
            architecture = _field(stanza, b"Architecture")
            kept = [old for old in index.get(name, []) if _field(old, b"Architecture") != architecture]
            index[name] = [*kept, stanza]


def lock_holder(host: Host) -> Optional[Json]:
    """Who holds a lock of apt or dpkg: {"pid", "command", "file"}, or None when all are free.

    F_GETLK asks the kernel without taking the lock. The pid is None when the holder is outside this
    pid namespace.
    """
    for path in APT_LOCK_FILES:
        pid = _locked_by(host.path(path))
        if pid is not None:
            return {"pid": pid or None, "command": command_of(host, pid) if pid else None, "file": path}
    return None


def _locked_by(path: str) -> Optional[int]:
    """The pid that holds a POSIX lock on ``path`` (0: unknown), or None when it is free."""
    import fcntl
    import struct

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None  # never locked, or not ours to know: apt itself will wait then
    try:
        # struct flock of 64-bit Linux: type, whence, start, length, pid.
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


def command_of(host: Host, pid: int) -> Optional[str]:
    """The command line of a process, cut to 200 characters; None when it is gone."""
    try:
        with open(host.path("/proc/%d/cmdline" % pid), "rb") as stream:
            raw = stream.read(4096)
    except OSError:
        return None
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:200] or None


def manager_of(host: Host) -> Optional[str]:
    """ "apt", "dnf" or None, by which one has a database here."""
    if os.path.exists(host.path(STATUS_FILE)) and _executable(host, "/usr/bin/apt-get"):
        return "apt"
    if _executable(host, "/usr/bin/dnf") or _executable(host, "/usr/bin/dnf5"):
        return "dnf"
    return "apt" if _executable(host, "/usr/bin/apt-get") else None


def _executable(host: Host, path: str) -> bool:
    return os.access(host.path(path), os.X_OK)


def watched(status: Dpkg) -> Dict[str, str]:
    """name -> version of the watched packages that are installed."""
    names = [name for name in status.names() if name in WATCHED_NAMES or name.startswith(WATCHED_PREFIXES)]
    found: Dict[str, str] = {}
    for name in sorted(names):
        state = status.get(name)
        if state is not None and state.installed:
            found[name] = state.version
    return found


def lists_age_s(host: Host, now: float) -> Optional[int]:
    """Seconds since apt's lists were last refreshed; None when there are none."""
    lists = host.path("/var/lib/apt/lists")
    try:
        if not any(
            name.endswith(("Release", "Packages", ".lz4", ".gz", ".xz")) for name in os.listdir(lists)
        ):
            return None
    except OSError:
        return None
    newest = 0.0
    # apt works in partial/ at every refresh, also when all files were current.
    for path in (
        lists,
        os.path.join(lists, "partial"),
        host.path("/var/lib/apt/periodic/update-success-stamp"),
    ):
        try:
            newest = max(newest, os.stat(path).st_mtime)
        except OSError:
            continue
    return max(0, int(now - newest))


def reboot_required(host: Host) -> Json:
    """What Debian and Ubuntu packages leave behind when they want a reboot."""
    required = os.path.exists(host.path("/run/reboot-required"))
    try:
        with open(host.path("/run/reboot-required.pkgs"), encoding="utf-8", errors="replace") as stream:
            names = sorted({line.strip() for line in stream if line.strip()})
    except OSError:
        names = []
    return {"required": required, "packages": names}


def _held_by_fleet(host: Host, held: List[str]) -> Json:
    """Those of the holds that fleet set: the others are somebody's decision."""
    from fleet.agent.resources.package import holds_of_fleet

    try:
        ours = holds_of_fleet(host)
    except PermissionError:
        return {"held_by_fleet": None, "held_by_fleet_reason": "permission"}
    return {"held_by_fleet": [name for name in held if name in ours]}


def collect(host: Host) -> Json:
    """The ``packages`` and ``reboot_required`` parts of the facts document."""
    import time

    manager = manager_of(host)
    document: Json = {"manager": manager, "interrupted": [], "states": {}, "held": [], "lock_holder": None}
    document.update({"sources_errors": [], "lists_age_s": None, "installed": {}})
    if manager == "apt":
        from fleet.agent.package_manager import apt_sources

        status = host.dpkg
        unusual = status.unusual()
        states = {state.name: state.described for state in unusual if state.interrupted}
        document["interrupted"], document["states"] = sorted(states), states
        document["held"] = sorted({state.name for state in unusual if state.held})
        document.update(_held_by_fleet(host, document["held"]))
        document["lock_holder"] = lock_holder(host)
        document["sources_errors"] = apt_sources.problems(apt_sources.read_all(host))
        document["lists_age_s"] = lists_age_s(host, time.time())
        if document["lists_age_s"] is None:
            document["lists_age_s_reason"] = "not_collected"  # never refreshed
        document["installed"] = watched(status)
    elif manager == "dnf":
        from fleet.agent.package_manager import dnf

        document["installed"] = dnf.watched(host, WATCHED_NAMES, WATCHED_PREFIXES)
        document["lists_age_s_reason"] = "not_supported"
    else:
        document["manager_reason"] = document["lists_age_s_reason"] = "not_supported"
    return {"packages": document, "reboot_required": reboot_required(host)}
