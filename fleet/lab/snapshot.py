"""Everything about a host that a change would show in, read from outside the host.

The file tree is read through ``/proc/PID/root`` of the host's first process, packages from dpkg's
own database there, so that neither fleet nor the host's Python is asked about itself. Needs root.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.lab import faults
from fleet.lab.engine import Json
from fleet.lab.lab import Lab

TREES = ("etc", "usr", "opt", "root", "srv", "var/lib", "var/spool", "home")
# Written by a running system without anybody's doing: systemd's timers, seed and clock files, the
# linger and journal catalogues; databases of a running engine and of containerd; sudo's memory of
# who was lectured.
VOLATILE = (
    "var/lib/systemd",
    "var/lib/private",
    "var/lib/containerd",
    "var/lib/docker",
    "var/lib/sudo",
    "var/lib/dbus",
)
# Written by Debian's sudo itself, in the home of a member of group sudo, when it is first used.
SUDO_MARK = ".sudo_as_admin_successful"
# Units that come and go with every login, and those systemd makes for mounts and devices, an
# engine's network namespaces among them.
VOLATILE_UNITS = (
    "session-",
    "user-runtime-dir@",
    "user@",
    "user-",
    "run-user-",
    "systemd-tmpfiles-clean",
    "ssh@",
    "dev-",
    "run-docker-",
    "sys-",
)


@dataclass(frozen=True)
class Snapshot:
    """{"section": {key: value}}: files, packages, units, users, groups, containers."""

    sections: dict[str, dict[str, str]]

    def differences(self, later: Snapshot) -> list[str]:
        """One line for everything that is not the same in ``later``; empty where nothing changed."""
        found = []
        for section, before in self.sections.items():
            after = later.sections[section]
            for key in sorted(before.keys() | after.keys()):
                if before.get(key) != after.get(key):
                    was, now = before.get(key, "absent"), after.get(key, "absent")
                    found.append(f"{section} {key}: {was} -> {now}")
        return found


def snapshot(lab: Lab, host: str) -> Snapshot:
    """Take one of ``host``, which must be running."""
    root = Path(f"/proc/{faults.pid(lab, host)}/root")
    return Snapshot(
        {
            "file": dict(_files(root)),
            "package": dict(_packages(root)),
            "unit": _units(lab, host),
            "user": _database(root / "etc/passwd"),
            "group": _database(root / "etc/group"),
            "container": _containers(lab, host),
        }
    )


def _files(root: Path) -> Iterator[tuple[str, str]]:
    """(path, type, mode, owner, size and what identifies its content) of everything in TREES."""
    device = root.stat().st_dev
    pending = [root / tree for tree in TREES]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            path = os.path.relpath(entry.path, root)
            status = entry.stat(follow_symlinks=False)
            if path in VOLATILE or entry.name == SUDO_MARK or status.st_dev != device:
                continue
            if stat.S_ISDIR(status.st_mode):
                pending.append(Path(entry.path))
            yield f"/{path}", _described(entry.path, path, status)


def _described(where: str, path: str, status: os.stat_result) -> str:
    head = f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}"
    if stat.S_ISLNK(status.st_mode):
        return f"{head} -> {os.readlink(where)}"
    if not stat.S_ISREG(status.st_mode):
        return head
    # Of the 300 MB under /usr the time of the last write tells enough; elsewhere the content counts.
    if path.startswith("usr/"):
        return f"{head} {status.st_size} bytes, written {status.st_mtime_ns}"
    with open(where, "rb") as handle:
        content = hashlib.sha256(handle.read()).hexdigest()
    return f"{head} {status.st_size} bytes, sha256 {content[:16]}"


def _packages(root: Path) -> Iterator[tuple[str, str]]:
    for paragraph in (root / "var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(
            line.split(": ", 1)
            for line in paragraph.splitlines()
            if ": " in line and not line.startswith(" ")
        )
        if "Package" in fields:
            yield fields["Package"], f"{fields.get('Version', '-')} ({fields['Status']})"


def _units(lab: Lab, host: str) -> dict[str, str]:
    listed = faults.shell(
        lab,
        host,
        "systemctl list-units --all --plain --no-legend --no-pager; systemctl list-unit-files --no-legend",
    )
    units: dict[str, str] = {}
    for line in listed.splitlines():
        words = line.split()
        if not words or words[0].startswith(VOLATILE_UNITS):
            continue
        is_unit = len(words) > 3 and words[1] in ("loaded", "not-found", "masked", "error", "bad-setting")
        value = f"{words[2]}/{words[3]}" if is_unit else words[1]
        if value == "inactive/dead":
            continue  # systemd lists such a unit only while it happens to have it in memory
        units[f"{words[0]} ({'state' if is_unit else 'file'})"] = value
    return units


def _database(path: Path) -> dict[str, str]:
    rows = (line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    return {row[0]: row[1] for row in rows}


def _containers(lab: Lab, host: str) -> dict[str, str]:
    """What the host's engine runs: image, state and since when, per container."""
    listed = faults.execute(lab, host, "docker", "ps", "--all", "--quiet", "--no-trunc", check=False)
    if listed.returncode != 0 or not listed.stdout.split():
        return {}
    inspected = faults.execute(lab, host, "docker", "inspect", *listed.stdout.split()).stdout
    documents: list[Json] = json.loads(inspected)
    return {
        document["Name"].lstrip("/"): (
            f"{document['Id'][:12]} of {document['Image'][7:19]}, {document['State']['Status']} "
            f"since {document['State']['StartedAt']}"
        )
        for document in documents
    }
