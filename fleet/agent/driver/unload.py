"""Taking graphics drivers out of the kernel: who is in the way, in which order, and whether it worked.

Nothing here ends anybody's process. A module that stays is :class:`StillLoaded`: a reboot takes it out, and
whether one may be planned is the resource's to say.
"""

from __future__ import annotations

from fleet.agent.driver import seen
from fleet.agent.resources.base import StepCancelled, StepFailed, last_words
from fleet.agent.resources.service import unit_name

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Dict, Iterable, List, Optional, Set, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json
    from fleet.agent.resources.base import Reporter

DEADLINE_S = 120.0
# Each goes before those it uses.
ORDER = (
    "nvidia_fs",
    "gdrdrv",
    "nvidia_drm",
    "nvidia_modeset",
    "nvidia_uvm",
    "nvidia_peermem",
    "nvidia_vgpu_vfio",
    "nvidia",
    "nova_drm",
    "nova",
    "nova_core",
    "nouveau",
)
RIVALS = ("nova_drm", "nova", "nova_core", "nouveau")
_FAMILY = {
    "nouveau": ("nouveau",),
    "nova_core": ("nova_drm", "nova", "nova_core"),
    "nova": ("nova_drm", "nova"),
    "nvidia": tuple(name for name in ORDER if name not in RIVALS),
}
_NAMED = 5  # holders that a message names


class StillLoaded(Exception):
    """A module cannot be taken out of the running kernel; the message says which and why."""


def order(host: Host, drivers: List[str]) -> List[str]:
    """The loaded modules to take out for these drivers (nvidia, nouveau, nova_core, nova), in order."""
    wanted: Set[str] = set()
    for driver in drivers:
        wanted.update(_FAMILY.get(driver, (driver,)))
    ordered = [name for name in ORDER if name in wanted] + sorted(wanted.difference(ORDER))
    return [name for name in ordered if seen.is_loaded(host, name)]


def may_stop(holders: List[Json], services: Iterable[str]) -> List[str]:
    """The units that may be stopped and started again: ``services``, and those of holders of that kind."""
    units = [unit_name(str(name)) for name in services]
    for holder in holders:
        unit = holder.get("unit") or ""
        if holder["kind"] == "service" and unit.endswith(".service") and unit not in units:
            units.append(unit)
    return units


def in_use(holders: List[Json], stopped: List[str]) -> List[Json]:
    """Those holders that stay when the units ``stopped`` are: people's work, displays, services in containers."""
    return [
        holder
        for holder in holders
        if holder["kind"] != "service" or (holder.get("unit") or "") not in stopped
    ]


def words(holders: List[Json]) -> str:
    """``python (pid 40335, user anna, container 3f2a…), …``"""
    described = [_word(holder) for holder in holders[:_NAMED]]
    if len(holders) > _NAMED:
        described.append("%d more" % (len(holders) - _NAMED))
    return ", ".join(described)


def _word(holder: Json) -> str:
    parts = ["pid %s" % holder["pid"], "user %s" % (holder.get("user") or holder.get("uid"))]
    if holder.get("container_id"):
        parts.append("container %s" % str(holder["container_id"])[:12])
    elif holder.get("unit"):
        parts.append("unit %s" % holder["unit"])
    return "%s (%s)" % (holder["command"], ", ".join(parts))


def unnamed(host: Host, modules: List[str]) -> Optional[str]:
    """What still counts as use of ``modules`` beyond each other, in words; None when nothing does.

    Asked once the services are stopped and nobody has a device open: what is left shows no process.
    """
    for name in modules:
        others = [top for top in seen.on_top(host, name) if top not in modules]
        if others:
            return "%s is used by the module %s" % (name, ", ".join(others))
    counts: List[Tuple[str, int]] = [(name, seen.references(host, name) or 0) for name in modules]
    known = _uses(host, modules)
    for name, count in counts:
        if count > known[name]:
            left = count - known[name]
            return "%s is used %d time%s by what shows no process" % (name, left, "" if left == 1 else "s")
    return None


# What these modules use, for kernels that do not list it in their ``holders``.
_USES = {
    "nvidia_drm": ("nvidia_modeset",),
    "nvidia_modeset": ("nvidia",),
    "nvidia_uvm": ("nvidia",),
    "nvidia_peermem": ("nvidia",),
    "nvidia_fs": ("nvidia",),
    "gdrdrv": ("nvidia",),
    "nvidia_vgpu_vfio": ("nvidia",),
    "nova_drm": ("nova_core",),
    "nova": ("nova_core",),
}


def _uses(host: Host, modules: List[str]) -> Dict[str, int]:
    """How many of ``modules`` are on top of each."""
    found = {}
    for name in modules:
        tops = set(seen.on_top(host, name)).intersection(modules)
        tops.update(top for top in modules if name in _USES.get(top, ()))
        found[name] = len(tops)
    return found


def take_out(host: Host, modules: List[str], report: Reporter) -> None:
    """Unload ``modules`` in the order given. Raises StillLoaded at the first that stays."""
    for name in modules:
        if seen.is_builtin(host, name):
            raise StepFailed(
                "%s is built into this kernel and cannot be unloaded" % name,
                "switch it off at boot: module_blacklist=%s on the kernel's command line, then reboot" % name,
            )
        report.progress("unloading " + name)
        result = host.run(["rmmod", name], deadline_s=DEADLINE_S, on_output=report.output)
        if result.cancelled:
            raise StepCancelled("unloading %s was cancelled" % name, None, result)
        if not result.ok and seen.is_loaded(host, name):
            said = last_words(result, 1).replace("rmmod: ERROR: ", "")
            raise StillLoaded(said or "%s stays loaded (%s)" % (name, result.ending()))
