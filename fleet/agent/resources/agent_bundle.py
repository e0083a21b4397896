"""The bundle that the host's own timer runs: ``agent/current`` names the one this very agent came in.

The link is what the unit's working directory says, so that a newer fleet moves it on without touching the
unit, and pruning keeps what it names (:mod:`fleet.agent.bundle`). Present, a textfile that the last report
wrote elsewhere is taken away; absent, everything the timer's runs left is.
"""

from __future__ import annotations

import os

from fleet import __version__
from fleet.agent import report as agent_report
from fleet.agent.bundle import CURRENT, Bundles, running_digest
from fleet.agent.paths import Paths, remove_durably
from fleet.agent.protocol import STATE_DIR, Json
from fleet.agent.resources.base import Difference, Provides, Reporter, Resource, StepFailed, difference
from fleet.agent.textfile import NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

# systemd's note of when a persistent timer last fired; it outlives the timer.
STAMP = "/var/lib/systemd/timers/stamp-fleet-agent.timer"


class AgentBundle(Resource):
    """args: state present|absent; textfile: the path of the metrics the unit writes, None for none."""

    kind = "agent_bundle"

    def read(self, host: Host, args: Json) -> Json:
        """``current`` and ``wanted`` bundle in words, whether they are the same and there, ``leftovers``."""
        bundles = _bundles(host)
        try:
            current = bundles.current()
        except OSError as error:
            raise StepFailed(
                "%s cannot be read as a link: %s" % (bundles.folder(CURRENT), error.strerror),
                "move away what is there; fleet makes the link",
            ) from None
        state: Json = {"current": None, "wanted": None, "same": False, "leftovers": _leftovers(host, args)}
        if current is not None:
            version = bundles.version(current)
            state["current"] = _words(version or "a bundle that is gone", current)
        if args.get("state") != "absent":
            running = _running()
            state["wanted"] = _words(__version__, running)
            state["same"] = current == running and bundles.installed(running)
        return state

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        found = [difference("leftover", path, None) for path in state["leftovers"]]
        if args.get("state") == "absent":
            gone = [difference("bundle", state["current"], None)] if state["current"] is not None else []
            return gone + found
        if not state["same"]:
            found.insert(0, difference("bundle", state["current"], state["wanted"]))
        return found

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """See :class:`Resource`."""
        bundles = _bundles(host)
        wanted = None if args.get("state") == "absent" else _running()
        try:
            if wanted is not None and not bundles.installed(wanted):
                raise StepFailed(
                    "the bundle %s is not in %s" % (wanted, os.path.dirname(bundles.folder(wanted)))
                )
            bundles.make_current(wanted)
            for path in _leftovers(host, args):
                remove_durably(path)
        except OSError as error:
            raise StepFailed(
                "cannot change %s: %s" % (error.filename or bundles.folder(CURRENT), error.strerror)
            ) from None
        return None

    def provides(self, args: Json) -> Provides:
        """The link, also when it is to go."""
        return Provides(files=["%s/agent/%s" % (STATE_DIR, CURRENT)])


def _bundles(host: Host) -> Bundles:
    return Bundles(Paths(host.state_dir, host.runtime_dir))


def _running() -> str:
    digest = running_digest()
    if digest is None:
        raise StepFailed(
            "this agent runs from a checkout of fleet and not from a bundle, so there is none to install",
            "run the playbook from a controller: fleet run INVENTORY PLAYBOOK",
        )
    return digest


def _words(version: str, digest: str) -> str:
    return "%s (%s)" % (version, digest[:12])


def _leftovers(host: Host, args: Json) -> List[str]:
    """Files of earlier runs that have no place in what is wanted."""
    textfile = agent_report.recorded_textfile(host.state_dir)
    found = []
    if textfile is not None and textfile != args.get("textfile") and textfile.endswith("/" + NAME):
        found.append(host.path(textfile))
    if args.get("state") == "absent":
        found += [host.path(STAMP), "%s/%s" % (host.state_dir, agent_report.FILE)]
    return [path for path in found if os.path.lexists(path)]


RESOURCE = AgentBundle()
