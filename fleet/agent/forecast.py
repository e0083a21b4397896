"""Forward simulation for the check pass: what earlier steps would bring, and what that makes unknown.

A step is judged by the host as it is now. Where an earlier step would change what this one reads,
that judgement is worth nothing; :class:`Forecast` says so instead of guessing.
"""

from __future__ import annotations

import os

from fleet.agent.protocol import KNOWN_AFTER_APPLY, OK, WOULD_CHANGE
from fleet.agent.resources.base import Provides

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, Optional, Tuple

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json
    from fleet.agent.resources.base import Resource

# Two steps about one directory add to each other; two about one of these decide the same thing.
_DECIDED_BY_ONE = ("files", "packages", "users", "groups", "images", "switched")
_SINGULAR = {"directories": "folder", "switched": "unit"}  # the others lose their s
POLICY = "/usr/sbin/policy-rc.d"  # a site's own say in what Debian's package scripts may start
PRESETS = "/etc/systemd/system-preset"  # … and in what is enabled
# What deb-systemd-helper remembers of a unit from an earlier installation, for one not to be enabled again.
_REMEMBERED = "/var/lib/systemd/deb-systemd-helper-enabled/%s.dsh-also"


class Forecast:
    """What the steps judged so far would bring: for certain, or perhaps."""

    def __init__(self) -> None:
        self._all = _Brought()
        self._since: Dict[str, _Brought] = {}  # by unit that its package's scripts start: what comes later
        self._packaged = Provides()  # units that packages bring
        self.opaque = False  # a step that would change something has not declared what it brings

    def add(self, provides: Provides, *, certain: bool) -> None:
        """A step that would change (or, not ``certain``, might) brings these."""
        for brought in (self._all, *self._since.values()):
            (brought.certain if certain else brought.possible).merge(provides)
        self.opaque = self.opaque or all(category == "switched" for category, _ in provides)
        if provides.get("packages"):
            self._packaged.merge(Provides(units=provides.get("units")))
            self._since.update((unit, _Brought()) for unit in provides.get("started"))

    def everything(self) -> Provides:
        """What they would bring, certainly or perhaps."""
        return _joined(self._all.certain, self._all.possible)

    def before_reading(
        self, host: Host, resource: Resource, args: Json, *, handler: bool
    ) -> Optional[Tuple[str, Optional[str]]]:
        """(status, reason) where the host as it is cannot tell; None where reading it can.

        A ``handler`` acts on what earlier steps decided; that they did is no reason for doubt.
        """
        own = Provides() if handler else self._decided_earlier(resource.provides(args))
        if own:
            return KNOWN_AFTER_APPLY, "an earlier step would change %s too" % _words(own)
        affected = self._all.affected(resource.requires(args))
        if affected:
            absent = host.absent(affected)
            if absent:
                return self._absent_now(host, resource, args, absent)
        return None

    def when_equal(self, resource: Resource, args: Json) -> Optional[Tuple[str, str]]:
        """(status, reason) where a step that differs in nothing now may differ once it is reached."""
        touched = self._all.affected(_watched(args))
        if not touched:
            return None
        status = KNOWN_AFTER_APPLY
        if self._all.certain.common(touched):
            status = resource.forecast(args, self._certain_but_started())
        return status, "it reflects %s, which an earlier step would change" % _words(touched)

    def _absent_now(
        self, host: Host, resource: Resource, args: Json, absent: Provides
    ) -> Tuple[str, Optional[str]]:
        if absent.common(self._all.certain) != absent:
            return KNOWN_AFTER_APPLY, "needs %s, which an earlier step may bring" % _words(absent)
        provided, doubt = self._after_scripts(host, absent)
        status = resource.forecast(args, provided)
        if status == OK:
            return self._as_left(args, absent)
        if status == WOULD_CHANGE:
            return status, None  # a thing that is not there differs; that its place is not either is no news
        doubt = "; " + doubt if doubt else ""
        return status, "needs %s, which an earlier step would bring%s" % (_words(absent), doubt)

    def _after_scripts(self, host: Host, absent: Provides) -> Tuple[Provides, Optional[str]]:
        """What is certain, with ``started`` and ``idle`` as this host's package manager makes them; and
        why units that the packages' scripts start may stay as they are, where that is so."""
        provided = self._certain_but_started()
        units = self._packaged.common(absent).get("units")
        if not units:
            return provided, None
        from fleet.agent.facts.packages import manager_of

        if manager_of(host) == "dnf":  # its distributions start nothing that nobody asked for
            return _joined(provided, Provides(idle=units)), None
        started = Provides(started=self._all.certain.get("started")).common(Provides(started=units))
        doubt = self._doubt(host, units) if started else None
        return _joined(provided, started) if doubt is None else provided, doubt

    def _certain_but_started(self) -> Provides:
        provided = _joined(self._all.certain)
        provided.sets.pop("started", None)
        return provided

    def _doubt(self, host: Host, units: Iterable[str]) -> Optional[str]:
        if os.path.exists(host.path(POLICY)) or self.everything().contains("files", POLICY):
            return "%s may keep its package from starting it" % POLICY
        if _has_presets(host.path(PRESETS)):
            return "a preset in %s may keep its package from enabling it" % PRESETS
        if any(os.path.exists(host.path(_REMEMBERED % unit)) for unit in units):
            return "it was installed before, and may have been disabled then"
        return None

    def _as_left(self, args: Json, absent: Provides) -> Tuple[str, Optional[str]]:
        """A service that its package leaves as wanted, unless what it reflects changes after that."""
        watched = _watched(args)
        for unit in absent.get("units"):
            since = self._since[unit]
            touched = since.affected(watched)
            if touched:
                status = WOULD_CHANGE if since.certain.common(touched) else KNOWN_AFTER_APPLY
                how = "would" if status == WOULD_CHANGE else "may"
                reason = "its package starts it, and a later step %s change %s" % (how, _words(touched))
                return status, reason
        return OK, None

    def _decided_earlier(self, provides: Provides) -> Provides:
        decided = Provides()
        for category, name in self._all.affected(provides):
            if category in _DECIDED_BY_ONE:
                decided.add(category, name)
        return decided


class _Brought:
    """What a row of steps would bring, by how certain that is."""

    def __init__(self) -> None:
        self.certain = Provides()
        self.possible = Provides()

    def affected(self, wanted: Provides) -> Provides:
        """Those of ``wanted`` that one of the steps brings, certainly or perhaps."""
        return _joined(wanted.common(self.certain), wanted.common(self.possible))


def _joined(*parts: Provides) -> Provides:
    whole = Provides()
    for part in parts:
        whole.merge(part)
    return whole


def _watched(args: Json) -> Provides:
    return Provides(files=args["reflects"]) if isinstance(args.get("reflects"), list) else Provides()


def _has_presets(folder: str) -> bool:
    return os.path.isdir(folder) and any(name.endswith(".preset") for name in os.listdir(folder))


def _words(things: Provides) -> str:
    """``unit docker.service, folder /etc/x``."""
    return ", ".join(
        "%s %s" % (_SINGULAR.get(category, category.rstrip("s")), name) for category, name in things
    )
