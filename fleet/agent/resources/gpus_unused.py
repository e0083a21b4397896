"""``gpus_unused``: nobody works on the GPUs now, just before what would disturb them is done.

A plan is made of facts that are minutes old by the time a long step begins. Where somebody began to work since,
the step ends pending, and nothing of what comes after it is done.
"""

from __future__ import annotations

from fleet.agent.driver import seen, unload
from fleet.agent.protocol import Json
from fleet.agent.resources.base import Difference, Reporter, Resource, StepPending, difference

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import List, Optional

    from fleet.agent.host import Host


class GpusUnused(Resource):
    """args: purpose (what would disturb them, "to replace driver 550.163.01 by 580.159.03"), remedy."""

    kind = "gpus_unused"

    def read(self, host: Host, args: Json) -> Json:
        """{"used_by": words, or None}. Raises StepFailed where some process may not be looked at."""
        working = [holder for holder in seen.holders(host) if holder["kind"] != "service"]
        return {"used_by": unload.words(working) if working else None}

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        used_by = state["used_by"]
        return [difference("GPUs", "used by %s" % used_by, "used by nobody")] if used_by else []

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """Raises StepPending unless they have gone meanwhile: nothing here ends anybody's process."""
        used_by = self.read(host, args)["used_by"]
        if used_by:
            raise StepPending(
                "needs leave %s: a GPU is in use by %s" % (args["purpose"], used_by), str(args["remedy"])
            )
        return {"changed": False}


RESOURCE = GpusUnused()
