"""Is there room: where the engine will really store images, on /, and for a driver?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.audit.driver import to_be_changed
from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.rule import Rule, Sample, Wanted, rule
from fleet.audit.settled import has_image, settled

DEFAULT_FREE_BYTES = 10_000_000_000
LEAST_INODES = 100_000
LEAST_ON_ROOT = 500_000_000
LEAST_ON_BOOT = 300_000_000

#: What a driver takes, in bytes, by where it goes: libraries and firmware; sources and built modules of two
#: kernels; the downloaded packages with compiler and headers. Estimates.
DRIVER_BYTES = {"/usr": 2_500_000_000, "/var/lib/dkms": 1_000_000_000, "/var/cache/apt": 1_000_000_000}
_NVIDIA = {"driver": {"source": "nvidia"}}


@rule(
    "preflight.disk",
    gate=True,
    reads=("paths.engine_root.free_bytes",),
    known_bad=Sample({"paths.engine_root.free_bytes": 5_400_000_000}),
)
def engine_root(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Free bytes and inodes where images go. Reads ``free_bytes``, ``settings`` and ``image_digest``.

    An image that is already there needs no room: a converged host stays converged however full it is.
    """
    if wanted.get("image_digest") and has_image(facts, str(wanted["image_digest"])):
        return
    place = _place(facts, wanted)
    limit = int(wanted.get("free_bytes") or DEFAULT_FREE_BYTES)
    free = int(place.get("free_bytes") or 0)
    path = place["path"]
    if free < limit:
        yield self.finding(
            f"{path} has {free / 1e9:.1f} GB free; the image needs {limit / 1e9:.1f} GB",
            observed=free,
            limit=limit,
            source="image_free_bytes of the playbook: layers are unpacked beside what was downloaded",
            remedy=f"make room on {place.get('mount') or path}, or set data-root in docker_engine_settings",
        )
    inodes = place.get("free_inodes")
    if inodes is not None and inodes < LEAST_INODES:
        yield self.finding(
            f"{path} has only {inodes} inodes free",
            observed=inodes,
            limit=LEAST_INODES,
            source="a PyTorch image unpacks to some 50,000 files",
            remedy="remove small files there, or set data-root in docker_engine_settings to another place",
        )


def _place(facts: Facts, wanted: Wanted) -> Mapping[str, Any]:
    """The file system of the wanted ``data-root`` where one is set, else of the engine's root now."""
    root = fact(facts, "paths.engine_root")
    path = str((wanted.get("settings") or {}).get("data-root") or root.get("path"))
    disk = _file_system(facts, path)
    if path != root.get("path"):
        return {"path": path, **disk}
    return {"free_inodes": disk.get("free_inodes"), **root, "path": path}


def _file_system(facts: Facts, path: str) -> Mapping[str, Any]:
    """The mounted file system that holds, or would hold, a path; empty where none is known."""
    mounts = [disk for disk in fact(facts, "disks") or [] if _below(path, str(disk.get("mount") or ""))]
    found: Mapping[str, Any] = max(mounts, key=lambda each: len(str(each["mount"])), default={})
    return found


def _below(path: str, mount: str) -> bool:
    return bool(mount) and (path == mount or path.startswith(mount.rstrip("/") + "/"))


@rule(
    "preflight.root_full", known_bad=Sample({"disks.0.free_bytes": 200_000_000, "engine.responding": False})
)
def root_full(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The root file system has room to work: without it apt, logs and fleet's own journal fail as well.

    A warning on a host that has all that is wanted.
    """
    free = _file_system(facts, "/").get("free_bytes")
    if free is not None and free < LEAST_ON_ROOT:
        yield self.finding(
            f"/ has only {free / 1e6:.0f} MB free: apt, logs and everything else would fail, not only the image",
            observed=free,
            limit=LEAST_ON_ROOT,
            source="an estimate: package lists and a log for each step",
            remedy="apt-get clean && journalctl --vacuum-size=200M",
            severity=Severity.WARNING if settled(facts, wanted) else None,
        )


@rule(
    "preflight.boot_room",
    known_bad=Sample(
        {
            "paths.boot": {
                "path": "/boot",
                "mount": "/boot",
                "free_bytes": 90_000_000,
                "free_inodes": 60_000,
            },
            "driver.loaded": None,
        },
        _NVIDIA,
        gpu=True,
    ),
)
def boot_room(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Where a driver is to be installed, /boot has room for new initramfs images. Reads ``driver``.

    Only a /boot of its own is looked at here. Fails closed: its room must be known.
    """
    boot = fact(facts, "paths.boot") or {}
    if to_be_changed(facts, wanted) is None or boot.get("mount") == "/":
        return
    free = boot.get("free_bytes")
    if free is None:
        yield self.unknown(facts, "paths.boot.free_bytes")
    elif free < LEAST_ON_BOOT:
        yield self.finding(
            f"/boot has {free / 1e6:.0f} MB free; a new initramfs needs {LEAST_ON_BOOT / 1e6:.0f} MB",
            observed=free,
            limit=LEAST_ON_BOOT,
            source="an estimate: the new image is written beside the old one, for each kernel, modules included",
            remedy="remove kernels that are not used any more: apt-get autoremove --purge",
        )


@rule(
    "preflight.driver_room",
    known_bad=Sample({"disks.0.free_bytes": 3_000_000_000, "driver.loaded": None}, _NVIDIA, gpu=True),
)
def driver_room(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Where a driver is to be installed, /usr, /var/lib/dkms and /var/cache/apt have room for it. Reads ``driver``.

    What lies on one file system counts together. Fails closed: the room must be known.
    """
    if to_be_changed(facts, wanted) is None:
        return
    needs: dict[str, list[str]] = {}
    for path in DRIVER_BYTES:
        needs.setdefault(str(_file_system(facts, path).get("mount") or ""), []).append(path)
    for mount, paths in needs.items():
        free, limit = (
            _file_system(facts, paths[0]).get("free_bytes"),
            sum(DRIVER_BYTES[path] for path in paths),
        )
        if free is None:
            yield self.unknown(facts, "disks")
        elif free < limit:
            yield self.finding(
                f"{mount} has {free / 1e9:.1f} GB free; a driver needs {limit / 1e9:.1f} GB in {', '.join(paths)}",
                observed=free,
                limit=limit,
                source="an estimate for a driver with compiler, headers and modules for two kernels",
                remedy="apt-get clean && apt-get autoremove --purge",
            )
