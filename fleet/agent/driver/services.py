"""The services that keep a driver loaded: stopped while it is changed, and started again whatever happens.

Which were stopped is on the disk before the first of them is: a worker that is killed in between leaves a
note, and the next attempt starts them.
"""

from __future__ import annotations

import os

from fleet.agent import files
from fleet.agent.protocol import canonical
from fleet.agent.resources.base import expect
from fleet.agent.resources.service import unit_name

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from types import TracebackType
    from typing import Iterable, List, Optional, Type

    from fleet.agent.host import Host
    from fleet.agent.resources.base import Reporter

DEADLINE_S = 180.0  # the fabric manager trains every link before it is up


def left_stopped(host: Host) -> List[str]:
    """The units that fleet stopped and has not started again, on this host."""
    from fleet.agent import strict_json

    try:
        names = strict_json.load(_path(host))
    except (OSError, ValueError):
        return []  # no such note, or cut short by a crash before anything was stopped
    return [str(name) for name in names] if isinstance(names, list) else []


class Stopped:
    """``with Stopped(…)``: those of ``names`` that run are stopped, and started again at the end.

    Units that an earlier attempt left stopped are started as well. A unit that does not start is a
    StepFailed where all else went well, and a line of output where something else already failed; its name
    stays in the note.
    """

    def __init__(self, host: Host, names: Iterable[str], report: Reporter) -> None:
        self._host = host
        self._names = [unit_name(name) for name in names]
        self._report = report
        self._stopped = left_stopped(host)

    def __enter__(self) -> None:
        running = [name for name in self._names if _active(self._host, name) and name not in self._stopped]
        if not running:
            return
        self._stopped = sorted({*self._stopped, *running})
        _note(self._host, self._stopped)
        try:
            for name in reversed(running):
                self._report.progress("stop " + name)
                result = self._host.run(["systemctl", "stop", "--", name], on_output=self._report.output)
                expect(result, "stopping %s" % name, "look at: systemctl status %s" % name)
        except BaseException:
            self._start_again()
            raise

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        failed = self._start_again()
        if failed and error is None:
            from fleet.agent.resources.base import StepFailed

            raise StepFailed(
                "stopped for the driver, and not started again: %s" % "; ".join(failed),
                "look at: journalctl -u %s -n 50; then run again" % failed[0].partition(":")[0],
            )

    def _start_again(self) -> List[str]:
        """Start what was stopped; ``unit: why`` of each that does not. Nothing breaks it off but death."""
        self._host.shielded = True
        try:
            return self._start_each()
        finally:
            self._host.shielded = False

    def _start_each(self) -> List[str]:
        failed = []
        for name in self._stopped:
            self._report.progress("start " + name)
            # Not cancellable: a run that was cancelled owes the host its services all the same.
            result = self._host.run(
                ["systemctl", "start", "--", name],
                deadline_s=DEADLINE_S,
                on_output=self._report.output,
                cancellable=False,
            )
            if not result.ok:
                failed.append("%s: %s" % (name, result.stderr.strip() or result.ending()))
                self._report.output("%s does not start again: %s\n" % (name, result.ending()), "stderr")
        _note(self._host, [text.partition(":")[0] for text in failed])
        return failed


def _active(host: Host, name: str) -> bool:
    if not os.path.isdir(host.path("/run/systemd/system")):
        return False
    return host.units([name])[name].get("ActiveState") in ("active", "activating", "reloading")


def _note(host: Host, names: List[str]) -> None:
    if names:
        files.write_state(host, _path(host), canonical(names))
    elif os.path.exists(_path(host)):
        os.unlink(_path(host))


def _path(host: Host) -> str:
    return os.path.join(host.state_dir, "stopped-for-the-driver.json")
