"""Before the first host of a run is touched: can every host have the versions that are pinned?

A distribution's archive keeps only its newest build. A run that finds out halfway leaves one half of a fleet on a
version that the other half cannot get any more. So every host is asked first, and one refusal refuses the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet.core.errors import FleetError
from fleet.modules.base import ControllerResult
from fleet.playbook.compile import HostCompiler
from fleet.run.host_run import HostRun
from fleet.run.link import Link


def refused(compiler: HostCompiler, link: Link) -> Sequence[ControllerResult]:
    """The pins that this host cannot have; ``compiler`` is one of its own, for this question only.

    Empty where the host cannot be asked, too: what is wrong with it the run itself says, of this host alone.
    """
    try:
        groups = {"groups": compiler.fact_groups}
        facts = link.agent.request("facts", groups, deadline_s=HostRun.FACTS_DEADLINE_S)
        queries = compiler.queries(facts)
        if not queries:
            return ()
        return compiler.pins_refused(facts, link.answers(queries, HostRun.QUERY_DEADLINE_S))
    except FleetError:
        return ()
    finally:
        link.close()
