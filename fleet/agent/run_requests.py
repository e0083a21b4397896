"""Requests about runs: check, start, attach, cancel, finish, unlock, journal; and the stream of records.

The state machine of a run on one host that these move along is drawn in docs/protocol.md.
"""

from __future__ import annotations

import os
import time

from fleet.agent import resources
from fleet.agent.bundle import BadBundle, Bundles, running_from
from fleet.agent.check import CheckPass
from fleet.agent.control import NoWorker, ask
from fleet.agent.history import History
from fleet.agent.journal import Tail, read_journal
from fleet.agent.lease import Lease, Locked
from fleet.agent.paths import make_private_folder, valid_run
from fleet.agent.pending import Pending
from fleet.agent.plans import BadPlan, check_plan, load_plan, save_plan
from fleet.agent.protocol import (
    ERROR_BAD_REQUEST,
    ERROR_FAILED,
    ERROR_LOCKED,
    ERROR_PERMISSION,
    SEGMENT_DONE,
    plan_hash,
)
from fleet.agent.runs import close_run, reopen_run
from fleet.agent.session import RequestError
from fleet.agent.step_host import StepHost
from fleet.agent.units import NotStarted, start_worker, unit_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from fleet.agent.channel import Channel
    from fleet.agent.machine import Machine
    from fleet.agent.paths import Paths
    from fleet.agent.protocol import Json, Plan
    from fleet.agent.units import Started

WORKER_WAIT_S = 40.0  # for a worker that was started to say that it began
_POLL_S = 0.02  # for new records while a worker writes
_IDLE_S = 30.0
_ALIVE_EVERY_S = 0.25
# A whole journal in one answer: records are left out from the front beyond this many characters.
_JOURNAL_LIMIT = 12 * 1024 * 1024


class RunRequests:
    """Answers what concerns runs, and follows at most one journal."""

    def __init__(self, channel: Channel, paths: Paths, machine: Machine, bundle: Optional[bytes]) -> None:
        self._channel = channel
        self._paths = paths
        self._machine = machine
        self._bundle = bundle
        self._lease = Lease(paths)
        self._bundles = Bundles(paths)
        self._following: Optional[Following] = None
        self._methods: dict[str, Callable[[Json], Json]] = {
            "start": self.start,
            "attach": self.attach,
            "cancel": self.cancel,
            "finish": self.finish,
            "unlock": self.unlock,
            "journal": self.journal,
        }

    def answer(self, method: str, params: Json) -> Json:
        """The result of one request. Raises RequestError and OSError."""
        if method not in self._methods:
            raise RequestError(ERROR_BAD_REQUEST, "no such method: %s" % method)
        return self._methods[method](params)

    def stream(self) -> float:
        """Send what is new in the followed journal; how long to wait before the next look, in seconds."""
        if self._following is None:
            return _IDLE_S
        if not self._following.pump(self._channel):
            self._following = None
            return _IDLE_S
        return _POLL_S

    # -- check ---------------------------------------------------------------------------------------------

    def check(self, params: Json) -> Json:
        """Every step read and compared; nothing is written, no lease is taken."""
        plan, outcomes = self._plan(params)
        host = StepHost(
            secrets=_secrets(params),
            state_dir=self._paths.state,
            runtime_dir=self._paths.runtime,
            cancelled=self._channel.gone,
        )
        check = CheckPass(plan, host, load=resources.load, pending=Pending(self._paths), outcomes=outcomes)
        return {"results": check.run(), "hash": plan_hash(plan)}

    def _plan(self, params: Json) -> tuple[Plan, Any]:
        plan = params.get("plan")
        run = plan.get("run") if isinstance(plan, dict) else None
        outcomes = {}
        if valid_run(run) and os.access(self._paths.runs, os.X_OK):
            outcomes = History.load(self._paths.journal(str(run))).outcomes
        try:
            return check_plan(plan, outcomes), outcomes
        except BadPlan as error:
            raise RequestError(ERROR_BAD_REQUEST, str(error)) from None

    # -- start ---------------------------------------------------------------------------------------------

    def start(self, params: Json) -> Json:
        """Have a worker apply the plan, or join the one that does; then that attempt's records stream,
        after the lasting results of earlier attempts at the same plan (never an earlier end).

        A plan that was done before is not begun again: the records of its last attempt stream.
        """
        if os.geteuid() != 0 and not os.environ.get("FLEET_AGENT_STATE_DIR"):
            raise RequestError(ERROR_PERMISSION, "only root can change this host", remedy="set become: true")
        plan, _ = self._plan(params)
        secrets = _secrets(params)
        run, segment, digest = plan["run"], plan["segment"], plan_hash(plan)
        alive, history = self._claim_or_join(params, run, segment, digest)
        work = history.work(segment, digest)
        boundary = history.last_seq
        answer: Json = {"attempt": history.attempt, "unit": None, "resumed": work is not None or alive}
        if work is not None and (alive or work.status == SEGMENT_DONE):
            boundary = work.begin_seq - 1
        if alive:
            answer["unit"] = unit_name(run, history.attempt) if self._machine.systemd() else None
        elif work is not None and work.status == SEGMENT_DONE:
            self._settle(plan)
        else:
            save_plan(self._paths, plan)
            reopen_run(self._paths, run)
            answer["attempt"] = history.attempt + 1
            try:
                answer["unit"] = self._launch(run, segment, digest, answer["attempt"], secrets)
            except RequestError:
                if history.last_seq == 0 and self._lease.release(run):
                    close_run(self._paths, run, "not begun")  # it has touched nothing here
                raise
        after = params.get("after_seq")
        earlier = work.lasting_seqs() if work is not None else frozenset()
        self._follow(run, after if isinstance(after, int) else 0, boundary, earlier)
        return answer

    def _claim_or_join(self, params: Json, run: str, segment: int, digest: str) -> tuple[bool, History]:
        """Whether a worker of this very plan lives, and the journal so far. Then, or else, the lease is ours.

        A worker that has written its end, and only has to leave, is waited for.
        """
        ends = time.monotonic() + WORKER_WAIT_S
        while True:
            alive = self._claim(params, run, digest)
            history = History.load(self._paths.journal(run))
            current = history.current
            if not alive:
                return False, history
            if current is not None and current.status is None:
                if (current.segment, current.plan_hash) == (segment, digest):
                    return True, history
                break
            if time.monotonic() > ends:
                break
            time.sleep(0.01)
        what = "a worker of run %s is still busy with another plan on this host" % run
        raise RequestError(ERROR_FAILED, what, remedy="wait for it: fleet resume %s" % run)

    def _claim(self, params: Json, run: str, digest: str) -> bool:
        """Take the lease for the run; whether its worker lives."""
        now = time.time()
        record = {
            "run": run,
            "plan_hash": digest,
            "controller": _text(params, "controller"),
            "operator": _text(params, "operator"),
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "since_unix": round(now, 3),
            "pid": None,
            "boot_id": self._machine.boot_id(),
        }
        try:
            return self._lease.claim(record)
        except Locked as error:
            held = {name: error.lease.get(name) for name in ("run", "since", "operator", "controller")}
            remedy = "wait for that run, or clear its lease: fleet unlock HOST --run %s" % held["run"]
            raise RequestError(ERROR_LOCKED, str(error), remedy=remedy, **held) from None

    def _settle(self, plan: Plan) -> None:
        """A segment that was done before: the lease was claimed for nothing where it was the last."""
        if plan["last"]:
            self._lease.release(plan["run"])

    def _launch(
        self, run: str, segment: int, digest: str, attempt: int, secrets: dict[str, str]
    ) -> Optional[str]:
        """Start a worker and hand it the secrets; its unit. Raises RequestError when it does not begin."""
        make_private_folder(self._paths.runtime_of(run))
        log = self._paths.runtime_of(run) + "/worker.log"
        try:
            started = start_worker(self._machine, run, attempt, self._code(run), log)
        except (NotStarted, BadBundle) as error:
            raise RequestError(ERROR_FAILED, "the worker could not be started: %s" % error) from None
        begin = {"type": "begin", "segment": segment, "plan_hash": digest, "secrets": secrets}
        answer = self._begin(run, attempt, begin, started)
        if answer is None:
            where = "journalctl -u %s" % started.unit if started.unit is not None else log
            message = "the worker ended, or hangs, before it began%s" % _end_of(log)
            raise RequestError(ERROR_FAILED, message, remedy="look at %s on the host" % where)
        if answer["type"] == "error":
            raise RequestError(
                str(answer.get("kind")), "the worker did not begin: %s" % answer.get("message")
            )
        return started.unit

    def _begin(self, run: str, attempt: int, begin: Json, started: Started) -> Optional[Json]:
        """Say begin as soon as the worker listens; its answer, None when there will be none."""
        now = time.monotonic()
        ends, look = now + WORKER_WAIT_S, now + _ALIVE_EVERY_S
        while now < ends:
            try:
                return ask(self._paths.control(run), begin, timeout_s=WORKER_WAIT_S)
            except NoWorker:
                time.sleep(0.01)
            now = time.monotonic()
            if now >= look:
                look = now + _ALIVE_EVERY_S
                if History.load(self._paths.journal(run)).attempt >= attempt:
                    return {"type": "begun"}  # it began, and is gone already: the stream will say so
                if started.gone():
                    return None
        return None

    def _code(self, run: str) -> str:
        """The folder a worker's code runs from: the bundle the run was started with, if still there."""
        digest = self._bundles.of_run(run)
        if digest is not None:
            return self._bundles.folder(digest)
        folder = running_from() if self._bundle is None else self._bundles.install(self._bundle)
        if os.path.dirname(folder) == self._paths.bundles:
            self._bundles.remember(run, os.path.basename(folder))
        return folder

    # -- the other requests ----------------------------------------------------------------------------------

    def attach(self, params: Json) -> Json:
        """Follow a journal from a sequence number on."""
        run, after = _run(params), params.get("after_seq", 0)
        if not isinstance(after, int):
            raise RequestError(ERROR_BAD_REQUEST, "after_seq is a whole number")
        live = self._alive(run)
        last = History.load(self._paths.journal(run)).last_seq
        self._follow(run, after, after, frozenset())
        return {"live": live, "last_seq": last}

    def cancel(self, params: Json) -> Json:
        """Ask the run's worker to stop at its next step edge."""
        run = _run(params)
        if not self._alive(run):
            return {"sent": False}
        try:
            answer = ask(self._paths.control(run), {"type": "cancel"})
        except NoWorker:
            return {"sent": False}
        return {"sent": answer["type"] == "cancelling"}

    def finish(self, params: Json) -> Json:
        """The controller says that this host's part of the run is over."""
        run = _run(params)
        if not self._left(run):
            return {"released": False}
        released = self._lease.release(run)
        close_run(self._paths, run, "finished")
        return {"released": released}

    def unlock(self, params: Json) -> Json:
        """Clear the lease by the name of the run that holds it."""
        run = _run(params)
        released = self._lease.release(run)
        if released:
            close_run(self._paths, run, "unlocked")
        return {"released": released}

    def journal(self, params: Json) -> Json:
        """What the journal of a run holds (the newest records, if not all fit) and the newest plan."""
        run = _run(params)
        records = read_journal(self._paths.journal(run))
        segment = next((record["segment"] for record in reversed(records) if record["kind"] == "begin"), None)
        try:
            plan = load_plan(self._paths, run, segment) if segment is not None else None
        except BadPlan:
            plan = None
        return {"records": _newest(records), "plan": plan, "live": self._alive(run)}

    def _left(self, run: str) -> bool:
        """Whether no worker of the run lives; one that has written its end is given the time to leave."""
        ends = time.monotonic() + WORKER_WAIT_S
        while self._alive(run):
            current = History.load(self._paths.journal(run)).current
            if current is None or current.status is None or time.monotonic() > ends:
                return False
            time.sleep(0.01)
        return True

    def _alive(self, run: str) -> bool:
        held = self._lease.read()
        return held is not None and held["run"] == run and self._lease.worker_alive()

    def _follow(self, run: str, after: int, boundary: int, earlier: frozenset[int]) -> None:
        if self._following is not None:
            self._following.tail.close()
        tail = Tail(self._paths.journal(run), after)
        self._following = Following(run, tail, boundary, earlier, lambda: self._alive(run))


class Following:
    """One journal on its way to the controller: up to ``boundary`` only the records ``earlier`` names."""

    def __init__(
        self, run: str, tail: Tail, boundary: int, earlier: frozenset[int], alive: Callable[[], bool]
    ) -> None:
        self.tail = tail
        self._run = run
        self._boundary = boundary
        self._earlier = earlier
        self._alive = alive
        self._looked = 0.0

    def pump(self, channel: Channel) -> bool:
        """Send the records there are; False when there will be no more.

        A worker that is gone without a word (killed, or its host out of memory) is said so, once.
        """
        now = time.monotonic()
        ended = now - self._looked >= _ALIVE_EVERY_S and not self._alive()
        if now - self._looked >= _ALIVE_EVERY_S:
            self._looked = now
        while True:  # after the look: what a worker wrote before it ended is sent before that is said
            records = self.tail.read()
            for record in records:
                if record["seq"] > self._boundary or record["seq"] in self._earlier:
                    channel.send({"type": "record", "record": record})
            if not records:
                break
        if ended:
            if self.tail.last_kind not in (None, "end"):
                channel.send({"type": "idle", "run": self._run, "last_seq": self.tail.last_seq})
            self.tail.close()
        return not ended


def _end_of(log: str) -> str:
    """The last words of a worker's log, for a message."""
    try:
        with open(log, "rb") as stream:
            said = stream.read()[-500:].decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return ": " + said if said else ""


def _newest(records: list[Json]) -> list[Json]:
    """The newest records that fit in one answer, in order."""
    from fleet.agent.protocol import canonical

    size, first = 0, len(records)
    for record in reversed(records):
        size += len(canonical(record).encode("utf-8"))
        if size > _JOURNAL_LIMIT:
            break
        first -= 1
    return records[first:]


def _run(params: Json) -> str:
    run = params.get("run")
    if not valid_run(run):
        raise RequestError(ERROR_BAD_REQUEST, "not the id of a run: %r" % (run,))
    return str(run)


def _text(params: Json, name: str) -> str:
    value = params.get(name)
    return value if isinstance(value, str) else "unknown"


def _secrets(params: Json) -> dict[str, str]:
    secrets = params.get("secrets", {})
    if not isinstance(secrets, dict) or not all(isinstance(value, str) for value in secrets.values()):
        raise RequestError(ERROR_BAD_REQUEST, "secrets is an object of texts by id")
    return secrets
