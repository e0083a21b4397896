"""The engine of a host without systemd: it answers, and is no older than the configuration it reads.

Whoever starts it there keeps it running, so it is looked at and never restarted: a restart that is due ends the
step pending. What a reload applies is applied, by the signal that the engine reloads on. The same is
:mod:`.service`'s on hosts with systemd, and what a reload reflected is kept in the same place.
"""

from __future__ import annotations

import os
import signal

from fleet.agent.protocol import KNOWN_AFTER_APPLY, WOULD_CHANGE, Json
from fleet.agent.resources.base import (
    Difference,
    Provides,
    Reporter,
    Resource,
    StepFailed,
    StepPending,
    difference,
)
from fleet.agent.resources.service import keep_reflected, signatures_of, stale_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from fleet.agent.host import Host

COMMAND = "dockerd"
UNIT = "docker.service"
_START_FIELD = 22 - 3  # starttime of proc_pid_stat(5), counted from the field after the command's name


class EngineProcess(Resource):
    """args: reflects [paths], reload (a reload applies what changed), restart (one is due in any case)."""

    kind = "engine_process"

    def read(self, host: Host, args: Json) -> Json:
        """{"answers", "pid": of the engine or None where it is not seen from here, "stale": the first of
        ``reflects`` that is newer than the process, or None}."""
        from fleet.agent.facts import services

        pid = services.running(host, (COMMAND,))
        stale = None
        if pid is not None:
            started_us = started_after_boot_us(host, pid)
            unit = {"ActiveState": "active", "ExecMainStartTimestampMonotonic": str(started_us)}
            # A start that cannot be told is no reason to ask anybody for a restart.
            stale = stale_path(host, UNIT, unit, args.get("reflects") or ()) if started_us else None
        return {"answers": _answers(host), "pid": pid, "stale": stale}

    def diff(self, state: Json, args: Json) -> List[Difference]:
        """See :class:`Resource`."""
        if not state["answers"]:
            return [difference("state", "does not answer", "started")]
        if args.get("restart"):
            return [difference("restart", "runs as before", "restarted")]
        if state["stale"]:
            how = "reload" if args.get("reload") else "restart"
            return [difference(how, "started before %s changed" % state["stale"], how + "ed")]
        return []

    def apply(
        self, host: Host, args: Json, differences: List[Difference], report: Reporter
    ) -> Optional[Json]:
        """Reload; StepPending for what only whoever starts the engine can do."""
        state = self.read(host, args)
        how = differences[0]["path"]
        if how == "state":
            raise StepPending(
                "the Docker Engine does not answer, and without systemd nothing here starts it",
                "start dockerd as this host starts its services, then run again",
            )
        if how == "restart":
            whose = "" if state["pid"] is None else " (process %d)" % state["pid"]
            why = "%s changed" % state["stale"] if state["stale"] else "what it reads when it starts changed"
            raise StepPending(
                "the Docker Engine%s must be restarted, since %s; there is no systemd to do it"
                % (whose, why),
                "stop dockerd and start it again as this host starts its services, then run again",
            )
        _reload(host, state["pid"], args["reflects"], report)
        return None

    def provides(self, args: Json) -> Provides:
        """No new thing: the engine, in another state."""
        return Provides(switched=[UNIT])

    def forecast(self, args: Json, provided: Provides) -> str:
        """An earlier step would change what it reflects."""
        return WOULD_CHANGE

    def outlook(self, args: Json, differences: List[Difference], provided: Provides) -> Optional[str]:
        """A package to come may bring the engine, and its scripts may start it."""
        return KNOWN_AFTER_APPLY if differences and provided.get("packages") else None


def started_after_boot_us(host: Host, pid: int) -> int:
    """When a process started, in microseconds since boot; 0 where that cannot be told.

    The kernel counts in ticks, cut off: the end of the tick is given, since a file written just before the
    start would else count as newer.
    """
    try:
        with open(host.path("/proc/%d/stat" % pid), encoding="utf-8", errors="replace") as file:
            fields = file.read(4096).rpartition(")")[2].split()
        ticks = int(fields[_START_FIELD])
    except (OSError, IndexError, ValueError):
        return 0
    return (ticks + 1) * 1000000 // os.sysconf("SC_CLK_TCK") if ticks else 0


def _answers(host: Host) -> bool:
    from fleet.agent.engine import EngineError

    try:
        host.docker.short_version()
    except EngineError:
        return False
    return True


def _reload(host: Host, pid: int, reflects: List[str], report: Reporter) -> None:
    signatures = signatures_of(host, reflects)
    report.progress("reload %s (process %d)" % (COMMAND, pid))
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as error:
        raise StepFailed(
            "%s (process %d) cannot be told to reload: %s" % (COMMAND, pid, error.strerror),
            "see whether it still runs; then run again",
        ) from None
    keep_reflected(host, UNIT, signatures)


RESOURCE = EngineProcess()
