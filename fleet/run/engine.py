"""Plays a playbook over an inventory: plays in order, batches within a play, hosts within a batch.

:meth:`Engine.play` is the one entry; the engine is given everything it needs, and it returns the
outcome of every host. Threads are used because every host is a connection that mostly waits.
"""

from __future__ import annotations

import getpass
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from fleet.core.connection import ConnectionSettings
from fleet.core.errors import ExitCode, overall
from fleet.inventory import Host, Inventory
from fleet.modules.base import ControllerResult
from fleet.playbook.compile import HostCompiler, RunOptions
from fleet.playbook.model import Play, Playbook
from fleet.playbook.pins import may_be_pinned
from fleet.run import outcome as ended
from fleet.run import pins
from fleet.run.budget import batches, exhausted
from fleet.run.bus import EventBus
from fleet.run.control import Control
from fleet.run.host_run import HostRun, Ledger, RunContext
from fleet.run.identity import MachineRegistry
from fleet.run.link import Connect, Link
from fleet.run.outcome import HostOutcome
from fleet.run.request import RunRequest

_SHOWN = 5  # hosts that a message names


@dataclass(frozen=True)
class RunResult:
    """How the run ended: outcomes by host in inventory order."""

    run: str
    outcomes: Mapping[str, HostOutcome]

    @property
    def exit_code(self) -> ExitCode:
        """The run's exit code, by the published precedence: bad input only where no host was touched."""
        found = self.outcomes.values()
        codes = [outcome.exit_code for outcome in found]
        if any(outcome.bad_input for outcome in found) and not any(outcome.touched for outcome in found):
            codes.append(ExitCode.BAD_INPUT)
        return overall(codes)


@dataclass
class Engine:
    """Everything a run needs, given from outside."""

    run: str
    inventory: Inventory
    playbook: Playbook
    request: RunRequest
    connect: Connect
    bus: EventBus
    ledger: Ledger
    control: Control
    only_hosts: frozenset[str] | None = None
    resuming: bool = False
    settings: Mapping[str, ConnectionSettings] = field(default_factory=dict)
    on_host_end: Callable[[HostOutcome], None] = lambda outcome: None

    def __post_init__(self) -> None:
        self._machines = MachineRegistry()
        self._outcomes: dict[str, HostOutcome] = {}
        self._compiled: dict[str, HostCompiler] = {}
        self._lock = threading.Lock()
        self._budget_spent = False
        self._carriers = carriers_of(self.settings)
        self._options = self._make_options()
        self._context = self._make_context()

    def play(self) -> RunResult:
        """Play every play; a host that did not end well takes no part in later plays."""
        refused = self._refused_pins()
        if refused:
            self._refuse(refused)
            return RunResult(self.run, self._in_order())
        for number, play in enumerate(self.playbook.plays):
            hosts = [host for host in self._hosts_of(play) if self._may_go_on(host.name)]
            for batch in batches(hosts, play.serial):
                if self.control.cancelled or self._budget_spent:
                    self._skip(batch)
                    continue
                for wave in waves(batch, self._carriers):
                    self._play_wave(play, number, wave)
                self._judge(play, batch)
        return RunResult(self.run, self._in_order())

    def _refused_pins(self) -> dict[str, ControllerResult]:
        """Host -> a pin that it cannot have, where several hosts are about to be changed; see :mod:`.pins`."""
        hosts = self._all_hosts()
        if self.request.check or len(hosts) < 2:
            return {}  # a host alone refuses for itself
        if self.resuming and any(self.ledger.saved(host) for host in hosts):
            return {}  # some are changed already: the others go on as they were to
        # Of each host its first play only: what a later one finds, earlier ones may have brought.
        first: dict[str, tuple[Play, int, Host]] = {}
        for number, play in enumerate(self.playbook.plays):
            for host in self._hosts_of(play):
                first.setdefault(host.name, (play, number, host))
        asked = [
            one
            for one in first.values()
            if may_be_pinned(one[0], one[2].name, one[2].variables, self._options)
        ]
        with ThreadPoolExecutor(max_workers=max(1, min(self.request.forks, len(asked)))) as pool:
            found = list(pool.map(lambda one: self._ask_for_pins(*one), asked))
        return {host.name: said[0] for (_, _, host), said in zip(asked, found, strict=True) if said}

    def _ask_for_pins(self, play: Play, number: int, host: Host) -> Sequence[ControllerResult]:
        if self.control.cancelled:
            return ()
        link = Link(self.settings[host.name], self.connect, self.control)
        return pins.refused(self._compiler(play, number, host), link)

    def _all_hosts(self) -> list[str]:
        """The hosts of all plays, in inventory order."""
        names = {host.name for play in self.playbook.plays for host in self._hosts_of(play)}
        return [name for name in self.inventory.hosts if name in names]

    def _refuse(self, refused: Mapping[str, ControllerResult]) -> None:
        """End every host of the run: no host is changed where one of them cannot have what is pinned."""
        more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        who = ", ".join(list(refused)[:_SHOWN]) + more
        for name in self._all_hosts():
            if name in refused:
                self.bus.publish("controller_result", name, **refused[name].as_json())
                reason, remedy = refused[name].text, refused[name].remedy
                self._end(HostOutcome(name, ended.FAILED, reason, remedy))
            else:
                reason = f"not started: a version that is pinned cannot be had on {who}; no host was changed"
                self._end(HostOutcome(name, ended.SKIPPED, reason))

    def _hosts_of(self, play: Play) -> list[Host]:
        limited = {host.name for host in self.inventory.select(self.request.limit)}
        if self.only_hosts is not None:
            limited &= self.only_hosts
        return [host for host in self.inventory.select(play.hosts) if host.name in limited]

    def _may_go_on(self, name: str) -> bool:
        outcome = self._outcomes.get(name)
        return outcome is None or outcome.status == ended.CONVERGED

    def _play_wave(self, play: Play, number: int, wave: Sequence[Host]) -> None:
        with ThreadPoolExecutor(max_workers=max(1, min(self.request.forks, len(wave)))) as pool:
            futures = [pool.submit(self._play_host, play, number, host) for host in wave]
            for future in futures:
                future.result()  # a bug in fleet is raised here, not kept

    def _play_host(self, play: Play, number: int, host: Host) -> None:
        if self.control.cancelled:
            self._end(HostOutcome(host.name, ended.CANCELLED, "not started: the run was cancelled"))
            return
        link = Link(self.settings[host.name], self.connect, self.control)
        compiler = self._compiler(play, number, host)

        def publish(kind: str, /, **data: Any) -> None:
            self.bus.publish(kind, host.name, **data)

        carries = host.name in self._carriers
        outcome = HostRun(host.name, compiler, link, publish, self._context, carries_others=carries).run()
        self._compiled[host.name] = compiler
        self._end(outcome)

    def _compiler(self, play: Play, number: int, host: Host) -> HostCompiler:
        """The compiler of this play on this host, going on from the play before it."""
        before = self._compiled.get(host.name)
        return HostCompiler(
            play,
            host.name,
            host.variables,
            self.run,
            self._options,
            first_segment=before.next_segment if before is not None else 1,
            last_play=number == len(self.playbook.plays) - 1,
            state=before.state if before is not None else None,
        )

    def _make_options(self) -> RunOptions:
        request = self.request
        return RunOptions(
            check=request.check,
            diff=request.diff,
            tags=frozenset(request.tags),
            skip_tags=frozenset(request.skip_tags),
            disrupt=request.disrupt,
            extra_vars=request.extra_vars,
            command=request.command + " --limit {host}",
            search=(self.inventory.inventory_dir,) if self.inventory.inventory_dir else (),
        )

    def _make_context(self) -> RunContext:
        return RunContext(
            run=self.run,
            check=self.request.check,
            operator=getpass.getuser(),
            controller=socket.gethostname(),
            control=self.control,
            machines=self._machines,
            ledger=self.ledger,
            resuming=self.resuming,
            again=self.request.command,
        )

    def _end(self, outcome: HostOutcome) -> None:
        with self._lock:
            before = self._outcomes.get(outcome.host)
            if before is not None:
                outcome.counts.update(before.counts)
                outcome.touched = outcome.touched or before.touched
            self._outcomes[outcome.host] = outcome
        self.on_host_end(outcome)

    def _skip(self, hosts: Iterable[Host]) -> None:
        status = ended.CANCELLED if self.control.cancelled else ended.SKIPPED
        reason = "not started: " + (
            "the run was cancelled" if self.control.cancelled else "too many hosts before it did not end well"
        )
        for host in hosts:
            self._end(HostOutcome(host.name, status, reason))

    def _judge(self, play: Play, batch: Sequence[Host]) -> None:
        bad = sum(not self._outcomes[host.name].well for host in batch)
        if exhausted(bad, len(batch), play.max_fail_percentage, play.any_errors_fatal):
            self._budget_spent = True

    def _in_order(self) -> dict[str, HostOutcome]:
        return {name: self._outcomes[name] for name in self.inventory.hosts if name in self._outcomes}


def waves(hosts: Sequence[Host], carriers: frozenset[str]) -> list[list[Host]]:
    """``hosts`` in the order they may be worked on: those that carry others' SSH path (bastions that are
    in the inventory too) come when all the others are done."""
    last = [host for host in hosts if host.name in carriers]
    first = [host for host in hosts if host.name not in carriers]
    return [wave for wave in (first, last) if wave]


def carriers_of(settings: Mapping[str, ConnectionSettings]) -> frozenset[str]:
    """Names of the hosts by way of which others are reached."""
    jumps = {jump.address for setting in settings.values() for jump in setting.jumps}
    return frozenset(name for name, setting in settings.items() if setting.endpoint.address in jumps)
