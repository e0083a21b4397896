"""The CDI specification that tells container engines of this host's GPUs: of this driver, of these GPUs.

One of another driver names libraries that are gone, and every container with a GPU then fails to start.
"""

from __future__ import annotations

import os

from fleet.agent import files
from fleet.agent.driver import cdi, seen
from fleet.agent.protocol import KNOWN_AFTER_APPLY, Json
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

DEADLINE_S = 120.0


class CdiSpecification(Resource):
    """args: path, command (argv that generates one; ``--output`` is added), driver_version (None: the
    loaded driver's)."""

    kind = "cdi_specification"

    def read(self, host: Host, args: Json) -> Json:
        """{"specification": see :func:`fleet.agent.driver.cdi.parse`, None without one; "exists", "loaded":
        the driver's version, "other_gpus": how its GPUs differ, in words or None}."""
        text = files.read_text(host, args["path"])
        specification = cdi.parse(text) if text is not None else None
        loaded = seen.loaded(host)
        return {
            "exists": text is not None,
            "specification": specification,
            "loaded": loaded["version"] if loaded else None,
            "other_gpus": cdi.other_gpus(specification, seen.gpus(host)) if specification else None,
        }

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        path, found = args["path"], state["specification"]
        wanted = args.get("driver_version") or state["loaded"]
        if found is None:
            before = "not one of NVIDIA's devices" if state["exists"] else None
            return [difference(path, before, "driver %s" % (wanted or "that is loaded"))]
        if wanted is not None and found["driver_version"] not in (None, wanted):
            return [difference("driver", found["driver_version"], wanted)]
        if state["other_gpus"] is not None:
            return [difference("GPUs", state["other_gpus"], "this host's")]
        return []

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """Generate where no engine looks, judge, then put in place."""
        text = _generate(host, args, report)
        made = cdi.parse(text)
        if made is None:
            raise StepFailed(
                "%s made no specification of NVIDIA devices" % args["command"][0],
                "look at what it makes: %s" % " ".join(args["command"]),
            )
        loaded = seen.loaded(host)
        state = {
            "exists": True,
            "specification": made,
            "loaded": loaded["version"] if loaded else None,
            "other_gpus": cdi.other_gpus(made, seen.gpus(host)),
        }
        for entry in self.diff(state, args):
            raise StepFailed(
                "the specification just made is for another %s: %s instead of %s"
                % (entry["path"], entry["before"], entry["after"]),
                "see whether the driver's libraries and modules agree: nvidia-smi",
            )
        files.replace(host, args["path"], text.encode("utf-8", "surrogateescape"), {"mode": "0644"})
        return None

    def requires(self, args: Json) -> Provides:
        """The generator, and a loaded driver for it to ask."""
        return Provides(commands=[args["command"][0]], modules=["nvidia"])

    def provides(self, args: Json) -> Provides:
        """The file."""
        return Provides(files=[args["path"]])

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """A driver to come may be the very one that the specification is of, or another."""
        to_come = provided.contains("modules", "nvidia") or bool(provided.get("packages"))
        pinned = args.get("driver_version") is not None and not any(
            entry["path"] == "GPUs" for entry in differences
        )
        return KNOWN_AFTER_APPLY if to_come and not (pinned and differences) else None


def _generate(host: Host, args: Json, report: Reporter) -> str:
    """What the command writes. Its name must end as the real one does, which tells the command the format,
    and engines read every such file beside it: so it lies in a folder, which they do not look into."""
    target = args["path"]
    if host.which(str(args["command"][0])) is None:
        raise StepFailed(
            "no_generator: nothing on this host makes a CDI specification: there is no %s"
            % args["command"][0],
            "install nvidia-container-toolkit, or name a command that makes one, writing it to --output=FILE:"
            " cdi_command of container_toolkit",
        )
    folder = os.path.join(os.path.dirname(target), ".fleet-new")
    temporary = os.path.join(folder, os.path.basename(target))
    files.make_folders(host.path(folder))
    try:
        argv = [*(str(word) for word in args["command"]), "--output=" + temporary]
        result = host.run(argv, deadline_s=DEADLINE_S, on_output=report.output)
        expect(result, "generating the CDI specification", "see whether the driver answers: nvidia-smi")
        text = files.read_text(host, temporary)
    finally:
        for name in os.listdir(host.path(folder)):
            os.unlink(os.path.join(host.path(folder), name))
        os.rmdir(host.path(folder))
    if not text:
        raise StepFailed(
            "%s wrote nothing to %s" % (argv[0], temporary), "run it by hand: %s" % " ".join(argv)
        )
    return text


RESOURCE = CdiSpecification()
