"""The worker: one process that applies one segment's plan, whatever becomes of the connection.

Started by a session (:mod:`fleet.agent.units`) with no more than a run and an attempt on its command
line; the secrets arrive over the control socket, once. Holds the lease's lock while it lives. What it
does to the host is in :mod:`fleet.agent.segment`; what it writes, in docs/protocol.md.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from fleet.agent import resources
from fleet.agent.control import ControlServer
from fleet.agent.history import History
from fleet.agent.journal import Journal
from fleet.agent.lease import Lease, Locked, WorkerAlive
from fleet.agent.machine import Machine
from fleet.agent.paths import Paths, make_private_folder, valid_run
from fleet.agent.pending import Pending
from fleet.agent.plans import BadPlan, load_plan
from fleet.agent.protocol import (
    ERROR_BAD_REQUEST,
    ERROR_FAILED,
    FAILED,
    SEGMENT_CANCELLED,
    SEGMENT_DONE,
    SEGMENT_FAILED,
    SEGMENT_PENDING,
    SEGMENT_REBOOT,
    plan_hash,
)
from fleet.agent.runs import close_run, prune
from fleet.agent.scrub import Scrubber
from fleet.agent.segment import NotJournalled, Segment, Terminated
from fleet.agent.step_host import StepHost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Optional

    from fleet.agent.protocol import Json, Plan

BEGIN_WAIT_S = 60.0  # for the session's begin; a worker nobody talks to must not keep the lock
EXIT_USAGE = 64
EXIT_LOCKED = 75
EXIT_TERMINATED = 143
EXIT_NOT_JOURNALLED = 74
_FREES_THE_HOST = (SEGMENT_FAILED, SEGMENT_CANCELLED, SEGMENT_PENDING)


def main(argv: list[str], machine: Optional[Machine] = None) -> int:
    """``--run RUN --attempt N``: apply what begin says. Returns the exit code, for systemd's eyes only."""
    if len(argv) != 4 or argv[0] != "--run" or argv[2] != "--attempt" or not valid_run(argv[1]):
        _log("usage: worker --run RUN --attempt N")
        return EXIT_USAGE
    os.umask(0o077)
    paths = Paths.from_environment(os.environ)
    return Worker(paths, machine or Machine(), argv[1], int(argv[3])).run()


def _log(text: str) -> None:
    """To the unit's journal, or the worker's log file."""
    sys.stderr.write("fleet worker: %s\n" % text)


class Worker:
    """One attempt at one segment of ``run``."""

    def __init__(self, paths: Paths, machine: Machine, run: str, attempt: int) -> None:
        import threading

        self._paths = paths
        self._machine = machine
        self._run = run
        self._attempt = attempt
        self._cancel = threading.Event()
        self._asked = threading.Event()  # begin has arrived
        self._answered = threading.Event()  # and its answer is known
        self._begin: Json = {}
        self._answer: Json = {}
        self._segment: Optional[Segment] = None
        self._boot_id = machine.boot_id()

    def run(self) -> int:
        """Take the lock, wait for begin, apply, end."""
        make_private_folder(self._paths.runtime_of(self._run))
        lease = Lease(self._paths)
        try:
            lock = lease.hold(self._run, os.getpid(), self._boot_id)
        except (Locked, WorkerAlive) as error:
            _log(str(error))
            return EXIT_LOCKED
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a stray Ctrl-C: cancel has its own way
        server = ControlServer(self._paths.control(self._run))
        self._in_thread(server)
        try:
            if not self._asked.wait(BEGIN_WAIT_S):
                _log("no session said begin; giving up")
                return EXIT_LOCKED
            return self._work(lease)
        except Terminated:
            return EXIT_TERMINATED
        finally:
            server.close()
            os.close(lock)

    # -- the control socket ------------------------------------------------------------------------------

    def _in_thread(self, server: ControlServer) -> None:
        import threading

        thread = threading.Thread(target=server.serve, args=(self._reply, self._idle), daemon=True)
        thread.start()

    def _reply(self, message: Json) -> Json:
        """The answer to one message; runs in the control thread."""
        kind = message["type"]
        if kind == "cancel":
            self._cancel.set()
            return {"type": "cancelling", "attempt": self._attempt}
        if kind == "begin" and not self._asked.is_set():
            self._begin = message
            self._asked.set()
            self._answered.wait(BEGIN_WAIT_S)
            return self._answer or {"type": "error", "kind": ERROR_FAILED, "message": "no journal in time"}
        if kind in ("begin", "ping"):
            return {"type": "begun", "attempt": self._attempt, "run": self._run}
        return {"type": "error", "kind": ERROR_BAD_REQUEST, "message": "not a control message: %s" % kind}

    def _idle(self) -> None:
        segment = self._segment
        reporter = segment.reporter if segment is not None else None
        if reporter is not None:
            reporter.tick()

    def _say(self, answer: Json) -> None:
        self._answer = answer
        self._answered.set()

    # -- the work ----------------------------------------------------------------------------------------

    def _work(self, lease: Lease) -> int:
        secrets = self._begin.get("secrets") or {}
        scrubber = Scrubber(secrets.values())
        try:
            plan = load_plan(self._paths, self._run, self._begin["segment"])
            if plan is None or plan_hash(plan) != self._begin["plan_hash"]:
                raise BadPlan("the plan on the disk is not the one that begin names")
            history, journal = self._open_journal(scrubber, plan)
        except (OSError, BadPlan) as error:
            self._say({"type": "error", "kind": ERROR_FAILED, "message": str(error)})
            return EXIT_NOT_JOURNALLED
        self._begin = {}  # the secrets stay in the host object alone
        self._segment = self._make_segment(plan, history, journal, scrubber, secrets)
        self._say({"type": "begun", "attempt": self._attempt, "run": self._run})
        return self._apply(plan, journal, lease)

    def _open_journal(self, scrubber: Scrubber, plan: Plan) -> tuple[History, Journal]:
        """The journal with this attempt's begin written, and the history up to and with it."""
        path = self._paths.journal(self._run)
        history = History.load(path)
        journal = Journal(path, clock=time.time, clean=scrubber.value)
        begin = journal.append(
            "begin",
            segment=plan["segment"],
            plan_hash=plan_hash(plan),
            attempt=self._attempt,
            boot_id=self._boot_id,
            pid=os.getpid(),
        )
        history.add(begin)
        return history, journal

    def _make_segment(
        self, plan: Plan, history: History, journal: Journal, scrubber: Scrubber, secrets: dict[str, str]
    ) -> Segment:
        host = StepHost(
            secrets=secrets,
            state_dir=self._paths.state,
            runtime_dir=self._paths.runtime,
            output_dir=self._paths.runtime_of(self._run) + "/output",
            cancelled=self._cancel.is_set,
        )
        assert history.current is not None
        return Segment(
            plan,
            history.current,
            history,
            journal=journal,
            host=host,
            scrubber=scrubber,
            load=resources.load,
            pending=Pending(self._paths),
            boot_id=self._boot_id,
        )

    def _apply(self, plan: Plan, journal: Journal, lease: Lease) -> int:
        assert self._segment is not None
        try:
            status, reason = self._segment.run()
            self._end(plan, journal, status, reason)
        except NotJournalled as error:
            return self._give_up(plan, journal, lease, str(error))
        finally:
            self._segment.in_resource = False
        if status == SEGMENT_REBOOT:
            self._reboot(plan, journal)
        elif (status == SEGMENT_DONE and plan["last"]) or status in _FREES_THE_HOST:
            close_run(self._paths, self._run, status)
            lease.release(self._run, by_worker=True)
        journal.close()
        prune(self._paths, self._run)
        return 0

    def _end(self, plan: Plan, journal: Journal, status: str, reason: Optional[str]) -> None:
        assert self._segment is not None
        try:
            counts = self._segment.counts
            journal.append("end", segment=plan["segment"], status=status, reason=reason, counts=counts)
        except OSError as error:
            raise NotJournalled("cannot write the journal: %s" % error.strerror) from error

    def _give_up(self, plan: Plan, journal: Journal, lease: Lease, reason: str) -> int:
        """The disk takes no more. Say so in the journal's last room if there is some; nothing was applied."""
        _log(reason)
        try:
            self._end(plan, journal, SEGMENT_FAILED, reason)
            lease.release(self._run, by_worker=True)
            close_run(self._paths, self._run, SEGMENT_FAILED)
        except (NotJournalled, OSError) as error:
            _log(str(error))
        return EXIT_NOT_JOURNALLED

    def _reboot(self, plan: Plan, journal: Journal) -> None:
        """Ask for the reboot; where that is refused, the step failed and the segment with it."""
        refusal = self._machine.reboot()
        if refusal is None:
            return
        step = plan["steps"][-1]
        journal.append("result", segment=plan["segment"], step=step["id"], status=FAILED, reason=refusal)
        self._end(plan, journal, SEGMENT_FAILED, refusal)

    def _terminate(self, number: int, frame: Optional[FrameType]) -> None:
        """SIGTERM, most likely because the host shuts down: leave the step at its intent."""
        import threading

        segment = self._segment
        if segment is None or segment.may_raise():
            raise Terminated
        segment.stopping = True
        if segment.in_resource:  # in the journal just now: a moment later
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
