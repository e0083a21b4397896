"""apt: waiting for its locks, refreshing, simulating, installing, and putting dpkg in order afterwards.

apt is a guest's guest: it never asks, never restarts services by helper tools, and never does more than
its simulation said. It is interrupted by SIGINT to apt alone, which lets dpkg finish; what it says is
read by :mod:`fleet.agent.package_manager.apt_messages`.
"""

from __future__ import annotations

import time

from fleet.agent.driver import build_errors
from fleet.agent.facts import packages as facts
from fleet.agent.package_manager import (
    PackageManager,
    Request,
    Transaction,
    apt_messages,
    apt_sources,
    dpkg_version,
    refusals,
)
from fleet.agent.resources.base import StepCancelled, StepFailed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing module costs start-up time
    from typing import Callable, List, Optional

    from fleet.agent.host import Host
    from fleet.agent.process import Result
    from fleet.agent.protocol import Json
    from fleet.agent.resources.base import Reporter


ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_MODE": "l",  # list only: restarting services kills jobs
    "NEEDRESTART_SUSPEND": "1",
    "UCF_FORCE_CONFFOLD": "1",
    "APT_LISTCHANGES_FRONTEND": "none",
}
COMMIT_DEADLINE_S = 7200.0  # a DKMS build for several kernels takes many minutes
REFRESH_DEADLINE_S = 600.0
LISTS_MAXIMUM_AGE_S = 24 * 3600
REFRESH_TRIES = 3


class Apt(PackageManager):
    """apt-get of one host. ``sleep`` and ``clock`` are the seams for tests of waiting."""

    name = "apt"
    upgrade_command = "apt-get install --only-upgrade"

    def __init__(
        self,
        host: Host,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._sleep = sleep
        self._clock = clock

    def compare(self, left: str, right: str) -> int:
        return dpkg_version.compare(left, right)

    def wait_for_lock(self, limit_s: float, report: Reporter) -> None:
        """Poll, without ever taking a lock; say who holds it when that changes and every 15 s."""
        started = self._clock()
        said, said_at = "", started
        while True:
            holder = facts.lock_holder(self._host)
            if holder is None:
                return
            if self._host.cancelled():
                raise StepCancelled("cancelled while waiting for the package lock")
            waited = self._clock() - started
            who = describe_holder(holder)
            if waited >= limit_s:
                raise StepFailed(
                    "the package lock %s is still held by %s after %d s" % (holder["file"], who, waited),
                    "wait until it has ended, or look what it does: %s; do not delete the lock file"
                    % ("ps -fp %d" % holder["pid"] if holder["pid"] else "fuser -v %s" % holder["file"]),
                )
            if who != said or self._clock() - said_at >= 15:
                said, said_at = who, self._clock()
                report.progress(
                    "waiting for %s to release the package lock (%d of %d s)" % (who, waited, limit_s)
                )
            self._sleep(1.0)

    def repair(self, request: Request, report: Reporter) -> None:
        """``dpkg --configure -a`` once, if something is half done; then install again, once, what was cut off
        while being unpacked. What stays broken must be part of the request (a new version may mend it)."""
        broken = self._interrupted()
        if not broken:
            return
        report.output(
            "an earlier installation was interrupted (%s): dpkg --configure -a\n" % ", ".join(broken)
        )
        result = self._configure(report)
        left = self._broken_outside(request)
        if left and self._reinstall(left, request, report):
            left = self._broken_outside(request)
        if left:
            problem = build_errors.failure(self._host, result.stdout + "\n" + result.stderr)
            if problem is not None:
                raise StepFailed(problem["what"], problem["remedy"], result)
            raise StepFailed(
                "dpkg --configure -a does not get these packages configured: %s" % ", ".join(left),
                "see why with: dpkg --configure -a; then mend or remove them",
                result,
            )

    def _broken_outside(self, request: Request) -> List[str]:
        names = self._interrupted()
        return [name for name in names if not (request.names(name) or request.allows(name))]

    def _reinstall(self, names: List[str], request: Request, report: Reporter) -> bool:
        """Whether something was tried: only what dpkg wants reinstalled, and only if nothing else changes."""
        cut_off = {state.name for state in self._host.dpkg.unusual() if state.flag != "ok"}
        names = [name for name in names if name in cut_off]
        if not names:
            return False
        again = Request(
            dict.fromkeys(names), reinstall=True, change_held=True, lock_timeout_s=request.lock_timeout_s
        )
        transaction = self.simulate(again)
        if refusals(transaction, again, self.compare):
            return False
        report.output("installing again what was cut off: %s\n" % ", ".join(names))
        self.commit(again, transaction, report)
        return True

    def _interrupted(self) -> List[str]:
        return sorted({state.name for state in self._host.dpkg.unusual() if state.interrupted})

    def _configure(self, report: Reporter) -> Result:
        return self._host.run(
            ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"],
            deadline_s=COMMIT_DEADLINE_S,
            env=ENVIRONMENT,
            on_output=report.output,
            interrupt="sigint_leader",
            cancellable=False,  # it mends what a cancel may have left
        )

    def ensure_known(self, request: Request, report: Reporter) -> None:
        if request.remove:
            return
        age = facts.lists_age_s(self._host, time.time())
        missing = self._not_offered(request)
        if not missing and age is not None and age <= LISTS_MAXIMUM_AGE_S:
            return
        self.refresh([], report)
        missing = self._not_offered(request)
        if missing:
            raise StepFailed(
                "no repository of this host offers %s" % "; ".join(missing),
                "check names and versions, and that the repository that holds them is configured",
            )

    def _not_offered(self, request: Request) -> List[str]:
        """What is wanted and neither installed nor offered, in words."""
        names = list(request.wanted)
        result = self._host.run(["apt-cache", "policy", "--", *names], deadline_s=60.0, env=ENVIRONMENT)
        problem = self._named(apt_messages.explain(result.stderr))
        if problem is not None and problem["reason"] in ("signed_by_conflict", "malformed_source"):
            raise StepFailed(problem["what"], problem["remedy"], result)
        policy = apt_messages.parse_policy(result.stdout)
        missing: List[str] = []
        for name, version in request.wanted.items():
            known = policy.get(name) or policy.get(name.partition(":")[0])
            if version is None and (known is None or known["candidate"] is None):
                missing.append("%s%s" % (name, " (a virtual package, or unknown here)" if known else ""))
            elif version is not None and (known is None or version not in known["versions"]):
                offered = ", ".join(known["versions"][:5]) if known and known["versions"] else "none"
                missing.append("%s in version %s (offered: %s)" % (name, version, offered))
        return missing

    def refresh_all(self, report: Reporter) -> None:
        self.refresh([], report)

    def lists_outdated(self, failure: StepFailed) -> bool:
        text = "%s\n%s" % (failure.stdout or "", failure.stderr or "")
        problem = apt_messages.explain(text)
        return problem is not None and problem["reason"] in ("not_found", "mirror_sync")

    def refresh(self, options: List[str], report: Reporter, *, wait: bool = True) -> None:
        """``apt-get update``; a mirror in the middle of a change is tried again, everything else is an end.

        apt exits 0 on many failed updates, so what it says counts, not its code. ``wait``: for the locks of
        the host's own lists.
        """
        for attempt in range(1, REFRESH_TRIES + 1):
            if wait:
                self.wait_for_lock(300.0, report)
            report.progress("refreshing the package lists")
            argv = ["apt-get", "update", "-o", "Acquire::Retries=2", "-o", "DPkg::Lock::Timeout=60", *options]
            result = self._host.run(
                argv, deadline_s=REFRESH_DEADLINE_S, env=ENVIRONMENT, on_output=report.output
            )
            if result.cancelled:
                raise StepCancelled("cancelled while refreshing the package lists")
            problem = self._named(apt_messages.refresh_problem(result.stdout + "\n" + result.stderr))
            if problem is None and result.ok:
                return
            if problem is None:
                raise StepFailed("apt-get update failed: %s" % result.ending(), "apt-get update", result)
            if not problem["transient"] or attempt == REFRESH_TRIES:
                raise StepFailed(problem["what"], problem["remedy"], result)
            report.progress("%s; trying again" % problem["what"])
            self._pause(10.0 * attempt)

    def _pause(self, seconds: float) -> None:
        ends = self._clock() + seconds
        while self._clock() < ends and not self._host.cancelled():
            self._sleep(0.5)

    def simulate(self, request: Request) -> Transaction:
        argv = ["apt-get", "-s", "-y", *self.command(request)]
        result = self._host.run(argv, deadline_s=120.0, env=ENVIRONMENT)
        if not result.ok:
            self._fail(result, "the package manager cannot do this")
        return apt_messages.parse_simulation(result.stdout)

    def command(self, request: Request) -> List[str]:
        """The words after ``apt-get [-s] -y``: the same for simulation and for the real thing."""
        options = ["-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=%d" % request.lock_timeout_s]
        options += ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
        if request.change_held:
            options.append("--allow-change-held-packages")
        if request.remove:
            return [*options, "remove", "--", *request.wanted]
        if request.allow_downgrade:
            options.append("--allow-downgrades")
        if request.reinstall:
            options.append("--reinstall")
        if not request.install_recommends:
            options.append("--no-install-recommends")
        names = [
            name if version is None else "%s=%s" % (name, version) for name, version in request.wanted.items()
        ]
        return [*options, "install", "--", *names]

    def commit(self, request: Request, transaction: Transaction, report: Reporter) -> Optional[Result]:
        total = len(transaction.removes if request.remove else transaction.installs)
        progress = apt_messages.Progress(total, report.progress)

        def on_output(text: str, stream: str) -> None:
            report.output(text, stream)
            if stream == "stdout":
                progress.feed(text)

        result = self._host.run(
            ["apt-get", "-y", *self.command(request)],
            deadline_s=COMMIT_DEADLINE_S,
            env=ENVIRONMENT,
            on_output=on_output,
            interrupt="sigint_leader",
        )
        if result.ok:
            return result
        if result.running_pid is not None:
            raise StepFailed(
                "apt-get (pid %d) did not end after it was asked to" % result.running_pid,
                "wait for it, then run again: ps -fp %d" % result.running_pid,
                result,
            )
        # Where a module did not build, configuring builds it again, for minutes, to the same end.
        if self._interrupted() and not build_errors.explain(result.stdout + result.stderr, lambda path: None):
            self._configure(report)
        self._fail(result, "removing packages failed" if request.remove else "installing packages failed")
        return None

    def _fail(self, result: Result, doing: str) -> None:
        if result.cancelled:
            raise StepCancelled("%s: cancelled" % doing, None, result)
        text = result.stdout + "\n" + result.stderr
        problem = build_errors.failure(self._host, text) or self._named(apt_messages.explain(text))
        if problem is not None:
            raise StepFailed("%s: %s" % (doing, problem["what"]), problem["remedy"], result)
        errors = [line[3:] for line in text.splitlines() if line.startswith("E: ")]
        words = "; ".join(errors[:3]) or result.ending()
        raise StepFailed("%s: %s" % (doing, words), "read apt's output above; then run again", result)

    def _named(self, problem: Optional[Json]) -> Optional[Json]:
        """``problem``, with the list files it is about where apt itself names only the repository."""
        if problem is None or problem["reason"] != "signed_by_conflict":
            return problem
        found = apt_sources.problems(apt_sources.read_all(self._host))
        return dict(problem, what="; ".join([problem["what"], *found])) if found else problem

    def hold(self, names: List[str], held: bool) -> None:
        lines = "".join("%s %s\n" % (name, "hold" if held else "install") for name in names)
        result = self._host.run(["dpkg", "--set-selections"], stdin=lines, deadline_s=60.0, env=ENVIRONMENT)
        if not result.ok:
            verb = "hold" if held else "unhold"
            raise StepFailed(
                "cannot %s %s: %s" % (verb, ", ".join(names), result.stderr.strip() or result.ending()),
                "apt-mark %s %s" % (verb, " ".join(names)),
                result,
            )


def describe_holder(holder: Json) -> str:
    """ "unattended-upgrade (pid 2448)" """
    if not holder["pid"]:
        return "a process outside this container"
    return "%s (pid %d)" % (holder["command"] or "a process", holder["pid"])
