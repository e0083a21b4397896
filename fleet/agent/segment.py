"""Applies one plan, step by step: the heart of the worker, without its process.

Each step: condition, read, diff; where something differs an intent (on the disk before anything is
touched), apply, read again, result. What happens when a worker dies between any two of these, and
comes back, is decided here from the journal's :class:`~fleet.agent.history.Work`. The check pass
(:mod:`fleet.agent.check`) is this without the second half.
"""

from __future__ import annotations

import errno
import time

from fleet.agent import orphans
from fleet.agent.check import reboot_required
from fleet.agent.conditions import Outcome, evaluate
from fleet.agent.history import Work, outcome_of
from fleet.agent.machine import valid_boot_id
from fleet.agent.plans import DEADLINE_S
from fleet.agent.protocol import (
    CANCELLED,
    CHANGED,
    FAILED,
    INTERRUPTED,
    OK,
    PENDING,
    SEGMENT_CANCELLED,
    SEGMENT_DONE,
    SEGMENT_FAILED,
    SEGMENT_INTERRUPTED,
    SEGMENT_PENDING,
    SEGMENT_REBOOT,
    SKIPPED,
)
from fleet.agent.reporter import StepReporter
from fleet.agent.resources import UnknownKind
from fleet.agent.resources.base import RebootRequested, StepCancelled, StepFailed, StepPending
from fleet.agent.step_host import Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from fleet.agent.history import History
    from fleet.agent.journal import Journal
    from fleet.agent.pending import Pending
    from fleet.agent.protocol import Json, Plan, Step
    from fleet.agent.resources.base import Resource
    from fleet.agent.scrub import Scrubber
    from fleet.agent.step_host import StepHost

    Ending = tuple[str, Optional[str]]

TEXT_LIMIT = 256 * 1024  # characters of stdout, and of stderr, in a result
RECORD_LIMIT = 4 * 1024 * 1024  # characters of everything else in a result
_BUG = "bug in fleet: "
_EARLIER = "applied before its worker was interrupted"


class NotJournalled(Exception):
    """The journal cannot be written, so nothing more may be done; the message says why."""


class Terminated(BaseException):
    """SIGTERM: stop at once, leaving the step at its intent. Not an Exception, so no resource eats it."""


class Segment:
    """One plan on its way to being true. :meth:`run` returns how it ended: (status, reason)."""

    def __init__(
        self,
        plan: Plan,
        work: Work,
        history: History,
        *,
        journal: Journal,
        host: StepHost,
        scrubber: Scrubber,
        load: Callable[[str], Resource],
        pending: Pending,
        boot_id: str,
        alarm: bool = True,
    ) -> None:
        self._plan = plan
        self._work = work
        self._outcomes: dict[str, Outcome] = history.outcomes
        self._journal = journal
        self._host = host
        self._scrubber = scrubber
        self._load = load
        self._pending = pending
        self._boot_id = boot_id
        self._alarm = alarm
        self.counts: dict[str, int] = {}
        self.reporter: Optional[StepReporter] = None  # of the step being applied
        self.stopping = False  # set by SIGTERM: stop at the next edge without an end
        self.in_resource = False  # a resource's code runs: an exception may be raised into it

    def may_raise(self) -> bool:
        """Whether a signal handler may raise now: into a resource's code, never into the journal's."""
        return self.in_resource and not self._host.shielded and not self._journal.written_by_me()

    # -- the order of steps -----------------------------------------------------------------------

    def run(self) -> Ending:
        """Do every step that is still to be done. Raises NotJournalled and Terminated."""
        for index, step in enumerate(self._plan["steps"]):
            lasting = self._work.lasting(step["id"])
            if lasting is not None:
                self._count(lasting["status"])
                continue
            if self.stopping:
                raise Terminated
            if self._host.cancelled():
                return SEGMENT_CANCELLED, "cancelled before step %s" % step["id"]
            ending = self._perform(step, index)
            if ending is not None:
                return ending
        return SEGMENT_DONE, None

    def _perform(self, step: Step, index: int) -> Optional[Ending]:
        """One step to its result. The segment's ending where this step ends it."""
        started = time.monotonic()
        self.reporter = StepReporter(self._journal, self._scrubber, step["id"], time.monotonic)
        try:
            fields = self._attempt(step, index)
        except RebootRequested as request:
            return self._journal_reboot(step, request)
        finally:
            self.in_resource = False
        self._finish_output()
        fields["duration_s"] = round(time.monotonic() - started, 3)
        self._write_result(step, fields)
        return _ending_of(step, fields)

    def _attempt(self, step: Step, index: int) -> Json:
        """The result's fields. What goes wrong becomes a status; what is a bug is named one."""
        try:
            fields = self._resumed(step)
            return self._converge(step, index) if fields is None else fields
        except StepCancelled as error:
            return _failure(CANCELLED, error)
        except StepPending as error:
            return _failure(PENDING, error)
        except StepFailed as error:
            return _failure(FAILED, error)
        except (OSError, UnknownKind) as error:
            return {"status": FAILED, "reason": str(error) or type(error).__name__}
        except (RebootRequested, NotJournalled):
            raise
        except Exception as error:  # a bug is named as one, and ends this host's run cleanly
            return self._bug(error)

    # -- coming back to a step that was interrupted --------------------------------------------------

    def _resumed(self, step: Step) -> Optional[Json]:
        """The result of a step that an earlier worker began, where it can be told without doing it again."""
        name = step["id"]
        begun = name in self._work.intents
        resource = self._load(step["resource"])
        if step["resource"] == "reboot" and begun:
            return self._after_reboot(name)
        earlier = (self._work.results.get(name) or {}).get("status")
        broken_off = earlier in (INTERRUPTED, CANCELLED) and name in self._work.attempted
        if not (begun or broken_off) or resource.may_repeat(step["args"]):
            if begun:
                self._await_orphans(step)
            return None
        if begun and name in self._work.handled:
            return {"status": CHANGED, "reason": _EARLIER}
        return {
            "status": INTERRUPTED,
            "reason": "it was being applied when its worker ended, and may not be done twice",
            "remedy": "look at the host: if it took effect, or did not begin, say so with creates, unless or "
            "repeatable: true in the task, then unlock the host and run again",
        }

    def _await_orphans(self, step: Step) -> None:
        """Let a command end that the killed worker left running: the step must not run twice at once."""
        folder = self._host.output_dir
        if folder is None:
            return None
        ends = time.monotonic() + float(step.get("deadline_s") or DEADLINE_S)
        told = False
        while True:
            left = orphans.running(folder)
            if not left:
                return orphans.forget(folder)
            if self._host.cancelled() or self.stopping or time.monotonic() > ends:
                raise StepFailed(
                    "process %d, started by an earlier worker for this step, still runs" % left[0],
                    "wait for it, or end it on the host, then resume the run",
                )
            if not told and self.reporter is not None:
                self.reporter.progress("waiting for process %d, left by a killed worker" % left[0])
                told = True
            time.sleep(0.1)

    def _after_reboot(self, name: str) -> Optional[Json]:
        """Changed when this is another boot than the one the reboot was asked in; None to ask again."""
        before = self._work.reboots.get(name) or self._work.intents[name]
        if not (valid_boot_id(before) and valid_boot_id(self._boot_id)):
            raise StepFailed(
                "cannot tell whether the host rebooted: boot id %r before, %r now" % (before, self._boot_id),
                "read /proc/sys/kernel/random/boot_id on the host",
            )
        if before == self._boot_id:
            return None
        return {"status": CHANGED, "reason": "boot id %s, before %s" % (self._boot_id, before)}

    # -- one step ------------------------------------------------------------------------------------

    def _converge(self, step: Step, index: int) -> Json:
        begun = step["id"] in self._work.intents
        reason = None if begun else self._unwanted(step)
        if reason is not None:
            return {"status": SKIPPED, "reason": reason}
        resource, args = self._load(step["resource"]), step["args"]
        with Limits(self._host, step, alarm=self._alarm, may_raise=self.may_raise):
            self.in_resource = True
            differences = resource.diff(resource.read(self._host, args), args)
            self.in_resource = False
            if not differences:
                return self._already(step, begun)
            self._write_intent(step, index)
            added = self._notify(step)
            try:
                extras = self._apply(step, resource, differences)
            except StepFailed:
                self._withdraw(step, added, resource, differences)
                raise
        self._handled(step)
        fields: Json = {"status": CHANGED, "diff": differences}
        fields.update(extras or {})
        if fields.pop("changed", True) is False:  # a command that only looks
            fields["status"] = OK
            for name in added:
                self._pending.remove(name)
        return fields

    def _unwanted(self, step: Step) -> Optional[str]:
        """Why the step is skipped, or None."""
        when = step.get("when")
        if when is not None and not evaluate(when, self._outcomes, lambda: reboot_required(self._host)):
            return "its condition is false"
        handler = step.get("handler")
        if handler is not None and handler not in self._pending:
            return "nothing notified %s" % handler
        return None

    def _already(self, step: Step, begun: bool) -> Json:
        """No difference: as wanted from the start, or made so by the worker that died after its intent."""
        if begun:
            self._notify(step)
        self._handled(step)
        if not begun:
            return {"status": OK}
        return {"status": CHANGED, "reason": _EARLIER}

    def _apply(self, step: Step, resource: Resource, differences: list[Json]) -> Optional[Json]:
        """Apply and, where the kind converges, prove it by reading again."""
        args = step["args"]
        assert self.reporter is not None
        self.in_resource = True
        extras = resource.apply(self._host, args, differences, self.reporter)
        if resource.rereads(args):
            self._host.invalidate()
            left = resource.diff(resource.read(self._host, args), args)
            if left:
                raise StepFailed(
                    "applied, but it still differs: %s" % ", ".join(str(entry.get("path")) for entry in left),
                    "look at the step's output; something on the host undoes or refuses the change",
                )
        self.in_resource = False
        return extras

    # -- handlers --------------------------------------------------------------------------------------

    def _notify(self, step: Step) -> list[str]:
        """Put the step's notifications on the disk; those this call added."""
        handlers = step.get("notify") or []
        return [name for name in handlers if self._pending.add(name, self._plan["run"], step["id"])]

    def _withdraw(self, step: Step, added: list[str], resource: Resource, before: list[Json]) -> None:
        """Apply failed: where it changed nothing at all, what it notified is not to be run."""
        if not added or not resource.rereads(step["args"]):
            return
        try:
            unchanged = resource.diff(resource.read(self._host, step["args"]), step["args"]) == before
        except (StepFailed, OSError):
            return  # cannot be told: the handlers stay pending
        for handler in added if unchanged else ():
            self._pending.remove(handler)

    def _handled(self, step: Step) -> None:
        handler = step.get("handler")
        if handler is not None:
            self._pending.remove(handler)
            self._append("handled", handler=handler, step=step["id"])

    # -- the journal -----------------------------------------------------------------------------------

    def _write_intent(self, step: Step, index: int) -> None:
        self._append(
            "intent",
            segment=self._plan["segment"],
            step=step["id"],
            index=index,
            total=len(self._plan["steps"]),
            task=step.get("task", ""),
        )

    def _write_result(self, step: Step, fields: Json) -> None:
        """Write the result, whole or, where it is too large or the disk too full, without its texts."""
        if fields["status"] == CHANGED:
            for handler in step.get("notify") or ():
                self._append("notified", handler=handler, step=step["id"])
        if fields["status"] == FAILED and step.get("ignore_errors") and not fields.get("bug"):
            fields["ignored"] = True
        record: Json = dict.fromkeys(("diff", "reason", "exit_code", "stdout", "stderr", "registered"))
        record.update(_bounded(fields), segment=self._plan["segment"], step=step["id"])
        try:
            self._append("result", **record)
        except NotJournalled:
            lean = {key: record[key] for key in ("segment", "step", "status", "exit_code", "duration_s")}
            self._append(
                "result", **dict(lean, reason="(the disk is full)", ignored=record.get("ignored", False))
            )
        self._outcomes[step["id"]] = outcome_of(record)
        self._count(record["status"])

    def _journal_reboot(self, step: Step, request: RebootRequested) -> Ending:
        self._finish_output()
        self._append("reboot", step=step["id"], boot_id=self._boot_id, deadline_s=request.deadline_s)
        return SEGMENT_REBOOT, None

    def _append(self, kind: str, **fields: Any) -> None:
        try:
            self._journal.append(kind, **fields)
        except OSError as error:
            remedy = "; free some space under /var/lib/fleet" if error.errno == errno.ENOSPC else ""
            raise NotJournalled("cannot write the journal: %s%s" % (error.strerror, remedy)) from error

    def _finish_output(self) -> None:
        if self.reporter is not None:
            self.reporter.finish()
            self.reporter = None

    def _bug(self, error: Exception) -> Json:
        import traceback

        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        if self.reporter is not None:
            self.reporter.remark(text[-16384:])
        return {"status": FAILED, "reason": "%s%s: %s" % (_BUG, type(error).__name__, error), "bug": True}

    def _count(self, status: str) -> None:
        self.counts[status] = self.counts.get(status, 0) + 1


def _ending_of(step: Step, fields: Json) -> Optional[Ending]:
    status, reason = fields["status"], "%s: %s" % (step.get("task") or step["id"], fields.get("reason"))
    if status == INTERRUPTED:
        return SEGMENT_INTERRUPTED, reason
    if status == CANCELLED:
        return SEGMENT_CANCELLED, reason
    if status == PENDING:
        return SEGMENT_PENDING, reason
    if status == FAILED and (not step.get("ignore_errors") or fields.get("bug")):
        return SEGMENT_FAILED, reason
    return None


def _failure(status: str, error: StepFailed) -> Json:
    return {
        "status": status,
        "reason": error.what,
        "remedy": error.remedy,
        "exit_code": error.exit_code,
        "stdout": error.stdout,
        "stderr": error.stderr,
    }


def _bounded(fields: Json) -> Json:
    """``fields`` with long texts cut to their ends and an oversized rest left out by name."""
    import json

    bounded = dict(fields)
    for name in ("stdout", "stderr"):
        if isinstance(bounded.get(name), str):
            bounded[name] = bounded[name][-TEXT_LIMIT:]
    for name in ("registered", "diff"):
        if bounded.get(name) is not None and len(json.dumps(bounded[name], default=str)) > RECORD_LIMIT:
            bounded[name] = None
            bounded[name + "_dropped"] = "more than %d characters" % RECORD_LIMIT
    return bounded
