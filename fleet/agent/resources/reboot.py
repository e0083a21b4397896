"""A reboot: what decides whether one is due. The worker and the controller carry it out."""

from __future__ import annotations

import os

from fleet.agent.protocol import KNOWN_AFTER_APPLY, Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    RebootRequested,
    Reporter,
    Resource,
    difference,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

DEADLINE_S = 600.0
REQUIRED = "/run/reboot-required"


class Reboot(Resource):
    """args: deadline_s (until the host must be back), only_if_required."""

    kind = "reboot"
    converges = False

    def read(self, host: Host, args: Json) -> Json:
        """{"required": bool, "packages": [those that ask for it]}."""
        return {
            "required": os.path.exists(host.path(REQUIRED)),
            "packages": _lines(host.path(REQUIRED + ".pkgs")),
        }

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        if args.get("only_if_required") and not state["required"]:
            return []
        why = " for " + ", ".join(state["packages"]) if state["packages"] else ""
        return [difference("boot", "this one", "a new one" + why)]

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """Always raises: :class:`RebootRequested`, or StepFailed where the host would lose its GPU driver."""
        from fleet.agent.driver import next_boot

        next_boot.must_keep_the_driver(host)
        raise RebootRequested(float(args.get("deadline_s") or DEADLINE_S))

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """Packages to come may ask for one."""
        due_later = args.get("only_if_required") and not differences and provided.get("packages")
        return KNOWN_AFTER_APPLY if due_later else None


def _lines(path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return sorted({line.strip() for line in file if line.strip()})
    except OSError:
        return []


RESOURCE = Reboot()
