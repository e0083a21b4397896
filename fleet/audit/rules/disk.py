"""Is there room where the engine will really store images?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding
from fleet.audit.rule import Rule, Sample, Wanted, rule

DEFAULT_FREE_BYTES = 10_000_000_000
LEAST_INODES = 100_000


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
    if wanted.get("image_digest") and _has_image(facts, str(wanted["image_digest"])):
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


def _has_image(facts: Facts, digest: str) -> bool:
    images = fact(facts, "engine.images") or []
    return any(digest in (image.get("digests") or []) for image in images)


def _place(facts: Facts, wanted: Wanted) -> Mapping[str, Any]:
    """The file system of the wanted ``data-root`` where one is set, else of the engine's root now."""
    root = fact(facts, "paths.engine_root")
    path = str((wanted.get("settings") or {}).get("data-root") or root.get("path"))
    mounts = [disk for disk in fact(facts, "disks") or [] if _below(path, str(disk.get("mount") or ""))]
    disk: Mapping[str, Any] = max(mounts, key=lambda each: len(str(each["mount"])), default={})
    if path != root.get("path"):
        return {"path": path, **disk}
    return {"free_inodes": disk.get("free_inodes"), **root, "path": path}


def _below(path: str, mount: str) -> bool:
    return bool(mount) and (path == mount or path.startswith(mount.rstrip("/") + "/"))
