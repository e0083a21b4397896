"""Forward simulation for the check pass: what earlier steps would bring, and what that makes unknown.

A step is judged by the host as it is now. Where an earlier step would change what this one reads,
that judgement is worth nothing; :class:`Forecast` says so instead of guessing.
"""

from __future__ import annotations

from fleet.agent.protocol import KNOWN_AFTER_APPLY
from fleet.agent.resources.base import Provides

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from fleet.agent.host import Host
    from fleet.agent.protocol import Json
    from fleet.agent.resources.base import Resource

# Two steps about one unit or directory add to each other; two about one of these decide the same thing.
_DECIDED_BY_ONE = ("files", "packages", "users", "groups", "images")


class Forecast:
    """What the steps judged so far would bring: for certain, or perhaps."""

    def __init__(self) -> None:
        self.certain = Provides()
        self.possible = Provides()
        self.opaque = False  # a step that would change something has not declared what

    def add(self, provides: Provides, *, certain: bool) -> None:
        """A step that would change (or, not ``certain``, might) brings these."""
        (self.certain if certain else self.possible).merge(provides)
        self.opaque = self.opaque or not provides

    def everything(self) -> Provides:
        """What they would bring, certainly or perhaps."""
        both = Provides()
        both.merge(self.certain)
        both.merge(self.possible)
        return both

    def before_reading(
        self, host: Host, resource: Resource, args: Json, *, handler: bool
    ) -> Optional[tuple[str, str]]:
        """(status, reason) where the host as it is cannot tell; None where reading it can.

        A ``handler`` acts on what earlier steps decided; that they did is no reason for doubt.
        """
        needed = resource.requires(args)
        affected = self._affected(needed)
        if affected:
            absent = host.absent(affected)
            if absent:
                return self._absent_now(resource, args, absent)
        own = Provides() if handler else self._decided_earlier(resource.provides(args))
        if own:
            return KNOWN_AFTER_APPLY, "an earlier step would change %s too" % _words(own)
        return None

    def when_equal(self, resource: Resource, args: Json) -> Optional[tuple[str, str]]:
        """(status, reason) where a step that differs in nothing now may differ once it is reached."""
        watched = Provides(files=args["reflects"]) if isinstance(args.get("reflects"), list) else Provides()
        touched = self._affected(watched)
        if not touched:
            return None
        status = resource.forecast(args, self.certain) if self.certain.common(touched) else KNOWN_AFTER_APPLY
        return status, "it reflects %s, which an earlier step would change" % _words(touched)

    def _absent_now(self, resource: Resource, args: Json, absent: Provides) -> tuple[str, str]:
        reason = "needs %s, which an earlier step would bring" % _words(absent)
        if list(absent.common(self.certain)) == list(absent):
            return resource.forecast(args, self.certain), reason
        return KNOWN_AFTER_APPLY, reason.replace("would", "may")

    def _affected(self, wanted: Provides) -> Provides:
        both = wanted.common(self.certain)
        both.merge(wanted.common(self.possible))
        return both

    def _decided_earlier(self, provides: Provides) -> Provides:
        decided = Provides()
        for category, name in self._affected(provides):
            if category in _DECIDED_BY_ONE:
                decided.add(category, name)
        return decided


def _words(things: Provides) -> str:
    return ", ".join("%s %s" % (_ONE_OF.get(category, category), name) for category, name in things)


_ONE_OF = {
    "packages": "package",
    "files": "file",
    "directories": "folder",
    "units": "unit",
    "users": "user",
    "groups": "group",
    "commands": "command",
    "images": "image",
}
