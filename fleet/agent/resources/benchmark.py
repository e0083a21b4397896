"""``benchmark``: what the host's GPUs do, measured in containers of the pinned image or with the host's own Python.

What was measured is kept in ``checks/benchmark.json`` of the state directory beside the key of what it depends on;
while the key is equal nothing is run again, unless it is asked for. A test that fails does not fail the step: the
controller judges. The step fails where nothing could be run at all. The work is done by :mod:`fleet.agent.bench`.
"""

from __future__ import annotations

from fleet.agent.bench.record import keep, key, last
from fleet.agent.container_check.seen import pinned
from fleet.agent.engine import EngineError
from fleet.agent.protocol import KNOWN_AFTER_APPLY, Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Resource,
    StepCancelled,
    StepFailed,
    difference,
)
from fleet.agent.resources.image import engine_failure

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Any, List, Optional

    from fleet.agent.bench.source import Folders
    from fleet.agent.host import Host
    from fleet.agent.resources.base import Reporter


class Benchmark(Resource):
    """See the module. ``args``: suite "quick" | "full" | "burn", where "container" | "host", reference, digest
    (None: not pinned), request "auto" | "gpus" | "cdi", ``gpus`` ("all", a number, or a list of indexes and
    UUIDs), evenly_occupied (measure GPUs that others use, too), repeat, python (None: one that has torch is
    looked for), groups (None: all of the suite), environment (variables that the site adds), deadline_s."""

    kind = "benchmark"

    def read(self, host: Host, args: Json) -> Json:
        """{"key": what the figures depend on now, "record": that of last time or None}."""
        return {"key": _key(host, args), "record": last(host)}

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """One difference: it is to be measured again, or was not with what it depends on as it is now."""
        now, before = state["key"], state["record"]
        if before is None:
            return [difference("benchmark", None, args["suite"])]
        known = before.get("key") or {}
        changed = sorted(name for name in {*now, *known} if known.get(name) != now.get(name))
        if changed:
            return [difference("benchmark", "measured with another %s" % ", ".join(changed), args["suite"])]
        if args.get("repeat"):
            return [difference("benchmark", "measured at %s" % before.get("ended_at"), args["suite"])]
        return []

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """Measure, keep what was found, give it. Raises StepCancelled once that is kept, too."""
        from fleet.agent.bench.run import Suite
        from fleet.agent.bench.source import Folders

        with Folders(host) as folders:
            suite = Suite(host, args, _runner(host, args, folders), report)
            found = suite.run()
        found["key"] = _key(host, args)
        if suite.cancelled:
            found["key"]["cancelled"] = True  # so that it is not taken for a whole one
        kept = keep(host, found)
        if suite.cancelled:
            raise StepCancelled("the benchmark was cancelled; what had been measured is kept")
        return {"registered": {"benchmark": kept}}

    def requires(self, args: Json) -> Provides:
        if args["where"] != "container":
            return Provides()
        return Provides(engine=True, images=[args["reference"]])

    def forecast(self, args: Json, provided: Provides) -> str:
        """What an earlier step changes, this one measures anew."""
        return KNOWN_AFTER_APPLY

    def rereads(self, args: Json) -> bool:
        """What is to be repeated always is still to be repeated afterwards."""
        return not args.get("repeat")


def _key(host: Host, args: Json) -> Json:
    if args["where"] != "container":
        from fleet.agent.bench.host import find

        python, version = find(host, args.get("python"))
        return key(host, args, None, None, "%s of %s" % (version, python))
    try:
        image = host.docker.image(pinned(args))
        info = host.docker.info()
    except EngineError as error:
        raise engine_failure(error, "cannot ask for the image %s" % args["reference"]) from None
    if image is None:
        raise StepFailed(
            "the image %s is not on this host" % pinned(args), "put an image task for it before this one"
        )
    return key(host, args, image, info, None)


def _runner(host: Host, args: Json, folders: Folders) -> Any:
    if args["where"] == "container":
        from fleet.agent.bench.container import Containers

        return Containers(host, args, folders)
    from fleet.agent.bench.host import Processes, find

    return Processes(host, find(host, args.get("python"))[0], folders, args.get("environment"))


RESOURCE = Benchmark()
