"""Reads and replaces files on the host so that no reader ever sees half of one.

Contents are written beside the target, checked, flushed and renamed over it; owner, mode and SELinux
context of the file that was there are kept unless others are asked for. A symbolic link is followed:
its target is replaced, the link stays. Used by every resource that owns a file.
"""

from __future__ import annotations

import errno
import os
import stat

from fleet.agent.paths import sync_folder
from fleet.agent.protocol import Json
from fleet.agent.resources.base import MASK, Difference, StepFailed, difference, expect, last_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, Sequence, Union

    from fleet.agent.host import Host

READ_LIMIT = 16 * 1024 * 1024  # a larger file is never read whole; it differs from anything fleet writes
DIFF_LINES = 200
_CHUNK = 1024 * 1024
VALIDATE_DEADLINE_S = 60.0
_REMOVED, _MADE = "removed", "made"  # folders of notes under the state directory
_KEPT_ATTRIBUTES = ("security.selinux", "system.posix_acl_access")


# -- reading -----------------------------------------------------------------------------------------


def read_bytes(host: Host, path: str) -> Optional[bytes]:
    """The contents, or None when there is no such file. A directory in its place is StepFailed."""
    try:
        with open(host.path(path), "rb") as file:
            data = file.read(READ_LIMIT + 1)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise StepFailed(
            "%s is a directory where a file is wanted" % path, "move it away, or choose another path"
        ) from None
    except OSError as error:
        raise StepFailed("cannot read %s: %s" % (path, error.strerror)) from None
    if len(data) > READ_LIMIT:
        raise StepFailed("%s is larger than %d MiB" % (path, READ_LIMIT // 2**20), "look at what it holds")
    return data


def read_text(host: Host, path: str) -> Optional[str]:
    """The contents as text, undecodable bytes escaped; None when there is no such file."""
    data = read_bytes(host, path)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def attributes(host: Host, path: str, args: Json, follow: bool = True) -> Json:
    """What is at ``path``: {"exists", "kind", "mode", "owner", "group", "owner_ok", "group_ok"}.

    ``owner_ok`` and ``group_ok`` say whether they are those ``args`` ask for: names are compared by
    number, and only the host can translate them.
    """
    try:
        found = os.stat(host.path(path)) if follow else os.lstat(host.path(path))
    except (FileNotFoundError, NotADirectoryError):
        return {"exists": False, "kind": None, "mode": None, "owner": None, "group": None}
    except OSError as error:
        raise StepFailed("cannot look at %s: %s" % (path, error.strerror)) from None
    owner, group = args.get("owner"), args.get("group")
    return {
        "exists": True,
        "kind": _kind(found.st_mode),
        "mode": "%04o" % stat.S_IMODE(found.st_mode),
        "owner": host.user_name(found.st_uid),
        "group": host.group_name(found.st_gid),
        "owner_ok": owner is None or host.user_id(owner) == found.st_uid,
        "group_ok": group is None or host.group_id(group) == found.st_gid,
    }


def attribute_differences(state: Json, args: Json) -> List[Difference]:
    """How mode, owner and group of something that exists differ from what is asked for."""
    found = []
    if args.get("mode") is not None and int(state["mode"], 8) != octal(args["mode"]):
        found.append(difference("mode", state["mode"], "%04o" % octal(args["mode"])))
    for name in ("owner", "group"):
        if args.get(name) is not None and not state[name + "_ok"]:
            found.append(difference(name, state[name], str(args[name])))
    return found


def octal(mode: Union[str, int]) -> int:
    """The number of a mode written in octal digits."""
    try:
        return int(str(mode), 8)
    except ValueError:
        raise StepFailed("%r is not a mode in octal digits" % mode, 'write it like "0644"') from None


def changed_at(host: Host, path: str) -> Optional[List[int]]:
    """The signature of what is at ``path`` now, [when it last changed in ns, inode, size]; None if absent.

    A folder counts with the files in it. A file that fleet removed counts as changed at its removal.
    """
    real = host.path(path)
    try:
        found = os.stat(real)
    except OSError:
        return _tombstone(host, path)
    signature = [max(found.st_mtime_ns, found.st_ctime_ns), found.st_ino, found.st_size]
    if stat.S_ISDIR(found.st_mode):
        for name in sorted(os.listdir(real)):
            entry = _stat_or_none(os.path.join(real, name))
            if entry is None:
                continue  # a dangling link, or gone while we looked
            signature[0] = max(signature[0], entry.st_mtime_ns, entry.st_ctime_ns)
    return signature


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


# -- writing -----------------------------------------------------------------------------------------


def replace(
    host: Host, path: str, data: bytes, args: Json, *, default_mode: int = 0o644, backup: bool = False
) -> Optional[str]:
    """Make ``data`` the contents of ``path``; return the path of the backup, if one was made.

    ``args`` may hold mode, owner, group and ``validate`` (an argv with ``%s`` for the new file, which
    must exit 0 before the file takes its place).
    """
    target = os.path.realpath(host.path(path))
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise StepFailed(
            "the directory of %s does not exist" % path,
            "create %s first, with a directory task" % os.path.dirname(path),
        )
    temporary = os.path.join(folder, ".%s.fleet-new" % os.path.basename(target))
    try:
        before = _stat_or_none(target)
        kept = _backup(path, target, before) if backup and before is not None else None
        _write_new(host, temporary, data, before, args, default_mode, target)
        _validate(host, path, temporary, args.get("validate"))
        if backup and before is None:
            _note(host, path, _MADE)
        _rename(temporary, target, data)
        sync_folder(folder)
    except OSError as error:
        raise _write_failed(path, error) from None
    finally:
        _unlink_if_there(temporary)
    if before is None:
        _restore_context(host, path)
    return kept


def put_back(host: Host, path: str, since_ns: int) -> bool:
    """Make ``path`` again what it was at ``since_ns`` (wall clock), as far as :func:`replace` with a backup has
    changed or made it since; whether that was done. What is replaced is kept as PATH.fleet-refused."""
    folder, name = os.path.split(os.path.realpath(host.path(path)))
    backups = []
    for other in os.listdir(folder) if os.path.isdir(folder) else ():
        if other.startswith(name + ".fleet-") and other.endswith(".bak"):
            made = _stat_or_none(os.path.join(folder, other))
            if made is not None and made.st_mtime_ns > since_ns:
                backups.append((made.st_mtime_ns, other))
    made = _stat_or_none(_note_path(host, path, _MADE))
    if made is not None and made.st_mtime_ns > since_ns:
        backups.append((made.st_mtime_ns, ""))
    refused = read_bytes(host, path)
    if not backups or refused is None:
        return False
    replace(host, path + ".fleet-refused", refused, {}, default_mode=0o600)
    first = min(backups)[1]
    if first:
        replace(host, path, read_bytes(host, os.path.join(os.path.dirname(path), first)) or b"", {})
    else:
        remove(host, path)
    return True


def make_folders(path: str, mode: int = 0o755) -> None:
    """Make a folder of this machine and its parents, with ``mode`` whatever the umask: the agent's is 077, and
    what apt's or a service's own user must enter would be closed to it. Folders that are there stay as they are."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, mode)
        except FileExistsError:
            continue  # another process made it meanwhile
        os.chmod(folder, mode)


def set_attributes(host: Host, path: str, args: Json, follow: bool = True) -> None:
    """Give ``path`` the mode, owner and group asked for."""
    real = host.path(path)
    try:
        uid, gid = wanted_ids(host, args)
        if uid != -1 or gid != -1:
            os.chown(real, uid, gid, follow_symlinks=follow)
        if args.get("mode") is not None and (follow or not os.path.islink(real)):
            os.chmod(real, octal(args["mode"]))  # after chown, which clears set-id bits
    except OSError as error:
        raise _write_failed(path, error) from None


def remove(host: Host, path: str) -> None:
    """Remove a file. When is kept, because services that read it must notice (see :func:`changed_at`)."""
    try:
        _note(host, path, _REMOVED)
        _unlink_if_there(host.path(path))
        sync_folder(os.path.dirname(host.path(path)))
    except OSError as error:
        raise _write_failed(path, error) from None


def write_state(host: Host, path: str, text: str) -> None:
    """Replace a file of fleet's own under the state directory (a real path), atomically."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


def wanted_ids(host: Host, args: Json) -> Any:
    """The (uid, gid) that ``args`` ask for, -1 where they ask for none."""
    uid = gid = -1
    if args.get("owner") is not None:
        found = host.user_id(args["owner"])
        if found is None:
            raise StepFailed("there is no user %s" % args["owner"], "create it first, with a user task")
        uid = found
    if args.get("group") is not None:
        found = host.group_id(args["group"])
        if found is None:
            raise StepFailed("there is no group %s" % args["group"], "create it first, with a group task")
        gid = found
    return uid, gid


def _write_new(
    host: Host,
    temporary: str,
    data: bytes,
    before: Optional[os.stat_result],
    args: Json,
    default_mode: int,
    target: str,
) -> None:
    uid, gid = wanted_ids(host, args)
    mode = default_mode
    if before is not None:
        uid = before.st_uid if uid == -1 else uid
        gid = before.st_gid if gid == -1 else gid
        mode = stat.S_IMODE(before.st_mode)
    if args.get("mode") is not None:
        mode = octal(args["mode"])
    _unlink_if_there(temporary)  # left by a worker that was killed
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        if (uid, gid) != (-1, -1):
            os.fchown(fd, uid, gid)
        if before is not None:
            _copy_attributes(target, fd)
        os.fchmod(fd, mode)
        os.fsync(fd)


def _rename(temporary: str, target: str, data: bytes) -> None:
    try:
        os.rename(temporary, target)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        # A file that is itself a mount (/etc/hosts in a container) cannot be renamed over. Overwriting
        # and then cutting means it is never empty.
        found = os.stat(temporary)
        with open(target, "r+b") as file:
            file.write(data)
            file.truncate()
            file.flush()
            os.fchown(file.fileno(), found.st_uid, found.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
            os.fsync(file.fileno())


def _validate(host: Host, path: str, temporary: str, argv: Optional[Sequence[str]]) -> None:
    if not argv:
        return
    command = [word.replace("%s", temporary) for word in argv]
    result = host.run(command, deadline_s=VALIDATE_DEADLINE_S)
    if result.cancelled:
        expect(result, "checking the new " + path)
    if not result.ok:
        said = last_words(result).replace(temporary, path)
        raise StepFailed(
            "the new %s was refused by %s (%s): %s" % (path, argv[0], result.ending(), said),
            "the file was left as it was; correct the contents",
            result,
        )


def _backup(path: str, target: str, before: os.stat_result) -> str:
    """Copy the file to PATH.fleet-<UTC time>.bak, unless a backup with these contents is there."""
    import time

    folder, name = os.path.split(target)
    for other in sorted(os.listdir(folder)):
        is_backup = other.startswith(name + ".fleet-") and other.endswith(".bak")
        if is_backup and _same_contents(target, os.path.join(folder, other)):
            os.utime(os.path.join(folder, other))  # it is the newest again: see put_back
            return os.path.join(os.path.dirname(path), other)
    stem = time.strftime(".fleet-%Y%m%dT%H%M%SZ", time.gmtime())
    suffix, number = stem + ".bak", 1
    while os.path.lexists(target + suffix):  # another one of this second
        suffix, number = "%s-%d.bak" % (stem, number), number + 1
    fd = os.open(target + suffix, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(target, "rb") as source, os.fdopen(fd, "wb") as file:
        for chunk in iter(lambda: source.read(_CHUNK), b""):
            file.write(chunk)
        file.flush()
        os.fchown(fd, before.st_uid, before.st_gid)
        os.fchmod(fd, stat.S_IMODE(before.st_mode))
        os.fsync(fd)
    return path + suffix


def _same_contents(one: str, other: str) -> bool:
    if os.path.getsize(one) != os.path.getsize(other):
        return False
    with open(one, "rb") as first, open(other, "rb") as second:
        return all(chunk == second.read(_CHUNK) for chunk in iter(lambda: first.read(_CHUNK), b""))


def _copy_attributes(source: str, fd: int) -> None:
    for name in _KEPT_ATTRIBUTES:
        try:
            os.setxattr(fd, name, os.getxattr(source, name))
        except OSError:
            continue  # not set, or this file system has none


def _restore_context(host: Host, path: str) -> None:
    """Give a new file the SELinux context its place asks for, where SELinux is on."""
    if os.path.exists(host.path("/sys/fs/selinux/enforce")) and host.which("restorecon"):
        expect(
            host.run(["restorecon", path], deadline_s=VALIDATE_DEADLINE_S), "setting the context of " + path
        )


def _stat_or_none(path: str) -> Optional[os.stat_result]:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _write_failed(path: str, error: OSError) -> StepFailed:
    remedies = {
        errno.ENOSPC: "free some space on its file system: df -h %s" % path,
        errno.EROFS: "its file system is mounted read-only; find out why with: dmesg | tail",
        errno.EPERM: "see whether it is marked immutable: lsattr %s" % path,
        errno.EACCES: "the agent must run as root to change this file",
        errno.EDQUOT: "raise the quota of its owner",
    }
    reason = error.strerror or str(error)
    return StepFailed("cannot write %s: %s" % (path, reason), remedies.get(error.errno or 0))


def _note_path(host: Host, path: str, what: str) -> str:
    return os.path.join(host.state_dir, what, path.strip("/").replace("%", "%25").replace("/", "%2F"))


def _note(host: Host, path: str, what: str) -> None:
    """Keep that fleet made or removed a file just now: the time is that of the note."""
    place = _note_path(host, path, what)
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        with open(place, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(path + "\n")
    except PermissionError:
        return  # an unprivileged step: no service of the system reads what that user may remove


def _tombstone(host: Host, path: str) -> Optional[List[int]]:
    found = _stat_or_none(_note_path(host, path, _REMOVED))
    return None if found is None else [found.st_mtime_ns, 0, 0]


# -- showing -----------------------------------------------------------------------------------------


def content_difference(path: str, before: Optional[bytes], after: bytes, show: bool) -> Difference:
    """The difference in contents: short summaries, and ``unified`` with at most 200 lines of diff.

    With ``show`` false (secrets) both sides are only :data:`MASK`.
    """
    if not show:
        return difference("content", None if before is None else MASK, MASK)
    found = difference("content", None if before is None else _summary(before), _summary(after))
    old, new = _text_or_none(before or b""), _text_or_none(after)
    if old is not None and new is not None:
        found["unified"] = unified(path, old, new)
    return found


def unified(path: str, before: str, after: str) -> str:
    """A unified diff of two texts, cut after 200 lines."""
    import difflib

    lines: List[str] = []
    pieces = difflib.unified_diff(
        before.splitlines(True), after.splitlines(True), path + " (now)", path + " (wanted)"
    )
    for piece in pieces:
        if len(lines) == DIFF_LINES:
            lines.append("… the rest of the difference is not shown\n")
            break
        lines.append(piece if piece.endswith("\n") else piece + "\n\\ no line break at the end\n")
    return "".join(lines)


def _summary(data: bytes) -> str:
    from fleet.agent.digest import sha256

    return "%d bytes, sha256 %s" % (len(data), sha256(data).hex()[:16])


def _text_or_none(data: bytes) -> Optional[str]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
