"""The initramfs of the kernels that run and boot next: newer than the modprobe files that it must hold.

A blacklist counts at boot only when it is in there. It is rebuilt for each kernel by name, since the tools'
own choice may be another kernel than the one that boots.
"""

from __future__ import annotations

import os

from fleet.agent import files
from fleet.agent.driver import seen
from fleet.agent.protocol import KNOWN_AFTER_APPLY, Json, canonical
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Reporter,
    Resource,
    StepFailed,
    difference,
    expect,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

DEADLINE_S = 900.0
LIST_DEADLINE_S = 120.0
_IMAGES = ("/boot/initrd.img-%s", "/boot/initramfs-%s.img", "/boot/initrd-%s")
_REMEDY = "df -h /boot ; then see what it says by hand: %s"


class Initramfs(Resource):
    """args: files, the paths that every initramfs must be newer than."""

    kind = "initramfs"

    def read(self, host: Host, args: Json) -> Json:
        """{"kernels": [{"release", "image": path or None, "newer": [files newer than it], "lacks": [files
        that a look inside did not find]}]}; a kernel that boots without an initramfs has none."""
        return {"kernels": [_kernel(host, release, args["files"]) for release in seen.kernels(host)]}

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        found = []
        for kernel in state["kernels"]:
            if kernel["newer"]:
                found.append(difference(kernel["image"], "older than " + ", ".join(kernel["newer"]), "newer"))
            elif kernel["lacks"]:
                found.append(
                    difference(kernel["image"], "without " + ", ".join(kernel["lacks"]), "with them")
                )
        return found

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """Rebuild, then look inside where there is a tool to look with."""
        changing = [entry["path"] for entry in differences]
        for kernel in self.read(host, args)["kernels"]:
            if kernel["image"] in changing:
                report.progress("rebuilding %s" % kernel["image"])
                _rebuild(host, kernel["release"], kernel["image"], report)
                _verify(host, kernel["release"], kernel["image"], args["files"])
        return None

    def requires(self, args: Json) -> Provides:
        """The files, as far as earlier steps bring them."""
        return Provides(files=[str(path) for path in args["files"]])

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """Packages to come may bring a kernel, or rebuild the initramfs themselves; a file that changes is
        newer afterwards."""
        if provided.get("packages"):
            return KNOWN_AFTER_APPLY
        touched = any(provided.contains("files", path) for path in args["files"])
        return KNOWN_AFTER_APPLY if touched and not differences else None


def _kernel(host: Host, release: str, wanted: List[str]) -> Json:
    image = next((path % release for path in _IMAGES if os.path.exists(host.path(path % release))), None)
    if image is None:
        return {"release": release, "image": None, "newer": [], "lacks": []}
    built = os.stat(host.path(image)).st_mtime_ns
    newer = []
    for path in wanted:
        signature = files.changed_at(host, path)
        if signature is not None and signature[0] > built:
            newer.append(path)
    return {"release": release, "image": image, "newer": newer, "lacks": _known_to_lack(host, image)}


def _rebuild(host: Host, release: str, image: str, report: Reporter) -> None:
    if host.which("update-initramfs") is not None:
        argv = ["update-initramfs", "-u", "-k", release]
    elif host.which("dracut") is not None:
        argv = ["dracut", "-f", image, release]
    else:
        raise StepFailed(
            "%s must be rebuilt, and this host has neither update-initramfs nor dracut" % image,
            "install initramfs-tools (Debian, Ubuntu) or dracut, then run again",
        )
    result = host.run(argv, deadline_s=DEADLINE_S, on_output=report.output)
    expect(result, "rebuilding %s" % image, _REMEDY % " ".join(argv))


def _verify(host: Host, release: str, image: str, wanted: List[str]) -> None:
    """StepFailed where the new image lacks one of the files. That is remembered for as long as the image
    stays the same: it is newer than the files, and would pass for good."""
    tool = next((name for name in ("lsinitramfs", "lsinitrd") if host.which(name) is not None), None)
    if tool is None:
        return _remember(host, image, [])
    result = host.run([tool, image], deadline_s=LIST_DEADLINE_S)
    expect(result, "looking into %s" % image, "by hand: %s %s" % (tool, image))
    held = {
        line.split(" -> ")[0].split()[-1].lstrip("./") for line in result.stdout.splitlines() if line.strip()
    }
    lacks = [path for path in wanted if os.path.exists(host.path(path)) and path.lstrip("/") not in held]
    _remember(host, image, lacks)
    if lacks:
        raise StepFailed(
            "the initramfs of kernel %s was rebuilt and does not hold %s: at the next boot it would not count"
            % (release, ", ".join(lacks)),
            "see why %s leaves them out (a hook, or hostonly settings); do not reboot before" % tool,
        )
    return None


def _known_to_lack(host: Host, image: str) -> List[str]:
    from fleet.agent import strict_json

    try:
        known = strict_json.load(_path(host)).get(image) or {}
    except (OSError, ValueError, AttributeError):
        return []  # nothing was ever found lacking, or the note was cut short by a crash
    return list(known["lacks"]) if known.get("image") == files.changed_at(host, image) else []


def _remember(host: Host, image: str, lacks: List[str]) -> None:
    if lacks:
        note = {image: {"image": files.changed_at(host, image), "lacks": lacks}}
        files.write_state(host, _path(host), canonical(note))


def _path(host: Host) -> str:
    return os.path.join(host.state_dir, "initramfs-lacks.json")


RESOURCE = Initramfs()
