"""File systems, and the room where it matters: the engine's store and /boot.

Network file systems are listed but never asked for their size: a dead NFS server would hang the question.
"""

from __future__ import annotations

import os

from fleet.agent.facts import engine, read_text, reason_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json

    Mount = Tuple[str, str, str]  # mount point, device, file system


KEYS = ("disks", "paths")

_LOCAL = frozenset(
    "ext2 ext3 ext4 xfs btrfs zfs f2fs jfs reiserfs bcachefs vfat exfat ntfs ntfs3 overlay".split()
)
_REMOTE = frozenset(
    "nfs nfs4 cifs smb3 smbfs ceph lustre gpfs beegfs 9p afs glusterfs ocfs2 gfs2 wekafs pvfs2".split()
)


def parse_mounts(text: str) -> List[Mount]:
    """/proc/self/mounts, in mounting order, octal escapes resolved."""
    mounts: List[Mount] = []
    for line in text.splitlines():
        columns = line.split(" ")
        if len(columns) >= 3:
            mounts.append((_unescape(columns[1]), _unescape(columns[0]), columns[2]))
    return mounts


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def mount_of(path: str, mounts: List[Mount]) -> Mount:
    """The mount that holds ``path``: the longest prefix; of mounts over one another the last."""
    best: Mount = ("/", "none", "unknown")
    for mount in mounts:
        point = mount[0].rstrip("/")
        if (path == point or path.startswith(point + "/")) and len(mount[0]) >= len(best[0]):
            best = mount
    return best


def is_remote(file_system: str) -> bool:
    return file_system in _REMOTE or file_system in ("fuse", "fuseblk") or file_system.startswith("fuse.")


def shown(mounts: List[Mount]) -> List[Mount]:
    """The mounts worth listing: disks and network file systems, each device once (bind mounts repeat it),
    and what is mounted on /."""
    last = {mount[0]: mount for mount in mounts}  # a later mount hides an earlier one
    kept: List[Mount] = []
    devices = set()
    for mount in last.values():
        point, device, file_system = mount
        if file_system not in _LOCAL and not is_remote(file_system) and point != "/":
            continue
        if file_system == "overlay" and point != "/":
            continue  # a container's
        if device in devices and file_system != "zfs" and point != "/":
            continue
        devices.add(device)
        kept.append(mount)
    return kept


def _sizes(host: Host, point: str, file_system: str) -> Json:
    keys = ("size_bytes", "free_bytes", "free_inodes")
    if is_remote(file_system):
        reason = "not_collected"
    else:
        try:
            stat = os.statvfs(host.path(point))
        except OSError as error:
            reason = reason_of(error)
        else:
            sizes: Json = {
                "size_bytes": stat.f_blocks * stat.f_frsize,
                "free_bytes": stat.f_bavail * stat.f_frsize,
            }
            # btrfs and vfat make inodes as needed and report none at all.
            sizes["free_inodes"] = stat.f_favail if stat.f_files else None
            if not stat.f_files:
                sizes["free_inodes_reason"] = "not_supported"
            return sizes
    nothing: Json = dict.fromkeys(keys)
    nothing.update({key + "_reason": reason for key in keys})
    return nothing


def describe(host: Host, path: str) -> Json:
    """{"path", "mount", "file_system", "free_bytes"} of what holds, or would hold, ``path``."""
    real = os.path.realpath(path) if host.root == "/" else path
    point, _, file_system = mount_of(real, parse_mounts(read_text(host, "/proc/self/mounts")))
    sizes = _sizes(host, point, file_system)
    part = {"path": path, "mount": point, "file_system": file_system, "free_bytes": sizes["free_bytes"]}
    if sizes["free_bytes"] is None:
        part["free_bytes_reason"] = sizes["free_bytes_reason"]
    return part


def collect(host: Host) -> Json:
    """The ``disks`` and ``paths`` parts."""
    mounts = parse_mounts(read_text(host, "/proc/self/mounts"))
    # Containers have single files mounted, such as /etc/hosts.
    mounts = [mount for mount in mounts if mount[2] not in _LOCAL or os.path.isdir(host.path(mount[0]))]
    disks = []
    for point, device, file_system in shown(mounts):
        disk: Json = {"mount": point, "device": device, "file_system": file_system}
        disk.update(_sizes(host, point, file_system))
        disks.append(disk)
    store = engine.configured_store(engine.read_daemon_json(host))
    return {"disks": disks, "paths": {"engine_root": describe(host, store), "boot": describe(host, "/boot")}}
